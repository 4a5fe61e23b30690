"""What the tasks for real language models share: where the answer stands in a completion, and what else they need.

Such a task has no alphabet: its prompts are plain language, and a model that knows single characters cannot read them.
"""

MAX_NEW_TOKENS = 64  # of a completion, for an answer and little else; who wants to see reasoning raises it


def final_answer(completion: str) -> str:
    """The part of a completion that is the answer, without the white space around it.

    Recipes of GRPO for reasoning ask for `<think>...</think><answer>...</answer>`, and models that were trained so
    write it unasked; others just answer. So it is what stands between the last pair of answer tags; without such a pair
    what follows the last `</think>`; without that, all of it.

    Args:
        completion: What the model wrote.

    Returns:
        The answer; "" if there is none.

    Example:
        >>> final_answer("<think>2 + 2 is 5, no</think> <answer> 4 </answer> I am sure.")
        '4'
        >>> final_answer("<think>2 + 2 is 5, no</think> 4 ")
        '4'
        >>> final_answer(" 4 ")
        '4'
    """
    end = completion.rfind("</answer>")
    start = completion.rfind("<answer>", 0, max(end, 0))
    if start >= 0:
        return completion[start + len("<answer>") : end].strip()
    return completion.rpartition("</think>")[2].strip()


def package_is_missing(task: str, package: str) -> ValueError:
    """The error of a task whose package is not installed.

    Args:
        task: Its whole name.
        package: What pip calls the package.
    """
    return ValueError(f"the task {task} needs the package {package}: pip install {package}")
