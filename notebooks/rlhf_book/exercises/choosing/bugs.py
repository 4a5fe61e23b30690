"""Find the bug: a helper that recommends a row, as it was once written."""

from collections.abc import Callable

import torch

from ..bug import Bug


def suspect_row(updates: int, critic: bool, learned_reward: bool) -> str:
    """Updates a batch, room for a critic, a learned reward? -> name of a row."""
    if critic:
        return "ppo"
    return "rloo" if learned_reward else "dr_grpo"


def push_on_a_token_that_has_moved(choose: Callable[..., str]) -> None:
    """A good token that has become three times as likely: is it pushed further?"""
    from rlhf_minimal import ALGORITHMS, gradient_weight

    ratio, good = torch.tensor(3.0), torch.tensor(1.0)
    for learned in (False, True):
        name = choose(16, False, learned)
        push = gradient_weight(ALGORITHMS[name], ratio, good).item()
        said = f"16 updates, learned reward {learned!s:5}"
        print(f"{said}: {name:8s} weight {push:.2f}")


def every_choice_has_what_the_situation_asks(choose: Callable[..., str]) -> None:
    """Sixteen updates: a token that has moved far is let go. No room: no critic. A learned reward: a KL to the start."""
    from rlhf_minimal import ALGORITHMS, gradient_weight

    for updates in (1, 16):
        for critic in (False, True):
            for learned in (False, True):
                name = choose(updates, critic, learned)
                assert name in ALGORITHMS, f"{name!r} is no row of the table"
                row = ALGORITHMS[name]
                assert critic or "values" not in row.needs, (
                    f"no room for a critic: {name}"
                )
                leashed = any(kl.against == "reference" for kl in row.kl)
                assert leashed or not learned, f"a learned reward, and no KL: {name}"
                far = gradient_weight(row, torch.tensor(3.0), torch.tensor(1.0)).item()
                assert updates == 1 or abs(far) < 0.1, (
                    f"{updates} updates without a bound: {name}"
                )


def mended_row(updates: int, critic: bool, learned_reward: bool) -> str:
    """Updates a batch, room for a critic, a learned reward? -> name of a row."""
    if critic:
        return "ppo"
    if learned_reward:
        return "rloo" if updates == 1 else "grpo"
    return "dr_grpo"


NO_BOUND = Bug(
    id="a-row-without-a-bound",
    title="the wrong row for several updates",
    concept="decision-guide",
    minutes=5,
    statement="""
    A helper recommends a row. Suppose that runs with a learned reward and sixteen updates a batch fall apart, and that the same rows with one
    update do not. The cell asks what each recommended row does at sixteen updates with a good token that has become three times as likely. It
    should be let go, with a weight below 0.1 in size. Any row is accepted that does this where the updates are sixteen, has a KL to the start where
    the reward is learned, and needs no critic where there is no room.
    """,
    wrong=suspect_row,
    symptom=push_on_a_token_that_has_moved,
    reveals=every_choice_has_what_the_situation_asks,
    mended=mended_row,
    idea="""
    List for each name what its row has: a ratio and a gate, a critic, a KL. Which of the two arguments is never
    asked after the first branch?
    """,
    outline="""
    ```python
    if critic:
        return "ppo"
    if learned_reward:
        return ...  # depends on the number of updates: a row with a bound where there are many
    return "dr_grpo"
    ```
    """,
    moral="""
    RLOO's ratio is 1 by definition and its gate is none: nothing tells the second update that the first has happened. The helper never looked at
    the number of updates. In our runs a tenth was lost without a bound at sixteen updates, and at four no difference could be shown. The habit: read the cells that a situation needs (a ratio and a gate for many updates, a KL for a learned reward, no
    values without a critic), and only then the name.
    """,
)

BUGS = (NO_BOUND,)
