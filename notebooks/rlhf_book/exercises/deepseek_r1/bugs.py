"""Find the bug: a reward for the language of a completion, as it was once written."""

from collections.abc import Callable

from ..bug import Bug


def suspect_language_reward(prompt: str, completion: str) -> float:
    """The share of small letters, the wanted language."""
    text = prompt + completion
    letters = [c for c in text if c.isalpha()]
    return sum(c.islower() for c in letters) / max(len(letters), 1)


def longer_and_longer_prompts(reward: Callable[..., float]) -> None:
    """One completion in the other language, after prompts of more and more words."""
    for words in range(4):
        prompt = "where does it end? " * words + "3+8+:"
        print(f"{words} sentences before it: {reward(prompt, '3D8B(B)'):.2f}")


def the_writer_is_paid_for_what_it_wrote(reward: Callable[..., float]) -> None:
    """The same completion earns the same after any prompt, and silence earns nothing."""
    for prompt in ("3+8+:", "where is it? 3+8+:", "WO IST ER? 3+8+:"):
        for text, worth in (("3D8B(B)", 0.0), ("3d8b(b)", 1.0), ("3D8b(b)", 2 / 3)):
            paid = reward(prompt, text)
            assert abs(paid - worth) < 1e-9, (
                f"{text} after {prompt!r} is paid {paid:.2f}"
            )
        assert reward(prompt, "") == 0.0, "an empty completion is paid"


def mended_language_reward(prompt: str, completion: str) -> float:
    """The share of small letters, the wanted language."""
    letters = [c for c in completion if c.isalpha()]
    return sum(c.islower() for c in letters) / max(len(letters), 1)


TOLD = Bug(
    id="told-in-the-question",
    title="a language that nobody speaks",
    concept="r1-recipe",
    minutes=5,
    statement="""
    A run pays for completions in the wanted language, small letters. The mean of this reward is 0.9 from the first step on and hardly
    moves, and people complain that replies to long questions come in capitals. What should each line of the cell say?
    """,
    wrong=suspect_language_reward,
    symptom=longer_and_longer_prompts,
    reveals=the_writer_is_paid_for_what_it_wrote,
    mended=mended_language_reward,
    idea="""
    Give the reward the same reply after two prompts, one in capitals and one in small letters. Which letters does
    it count?
    """,
    outline="""
    ```python
    letters = ...  # of whose text?
    return ... / max(len(letters), 1)  # silence has none
    ```
    """,
    moral="""
    The reward read the question as well, and the question is in the wanted language. So a long question pays nearly all of the reward
    for any reply, and within its group only the rest can differ; in a sum with other rewards that is little. After such a question an
    empty reply earns as much as the best. The habit: score what the policy has written and nothing else, and look at the spread of a
    reward within groups, not only at its mean.
    """,
)

BUGS = (TOLD,)
