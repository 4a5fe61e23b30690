"""What tasks for real models share: the answer in a completion (`exact:` compares all of it).

Such a task has no alphabet: its prompts are plain language, and a model that knows single characters cannot read them.
"""

MAX_NEW_TOKENS = 64  # tokens of a completion: enough for an answer without reasoning


def final_answer(completion: str) -> str:
    """The part of a completion that is the answer, without the white space around it.

    GRPO recipes for reasoning ask for `<think>...</think><answer>...</answer>`. Models that were trained with such a
    recipe write these tags even if nobody asks for them; other models just answer. So the answer is the text between
    the last pair of answer tags. Without such a pair, it is the text after the last `</think>`; without that tag, it
    is the whole completion. Reasoning that is still under way has no answer yet.

    Args:
        completion: What the model wrote.

    Returns:
        The answer; "" if there is none.

    Example:
        >>> final_answer("<think>2 + 2 is 5, no</think> <answer> 4 </answer> I am sure.")
        '4'
        >>> final_answer("<think>2 + 2 is 5, no</think> 4 ")
        '4'
        >>> final_answer(" 4 "), final_answer("<think>2 + 2 is 4, let me see")
        ('4', '')
    """
    if completion.rfind("<think>") > completion.rfind("</think>"):
        return ""
    end = completion.rfind("</answer>")
    start = completion.rfind("<answer>", 0, max(end, 0))
    if start >= 0:
        return completion[start + len("<answer>") : end].strip()
    return completion.rpartition("</think>")[2].strip()
