"""Find the bug: a teacher with another prompt."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug


def suspect_gap(
    student: Tensor, teacher: Tensor, completions: Tensor, prompt_length: int
) -> Tensor:
    """[B, S+T, V] and [B, S'+T, V] logits, [B, T] ids -> [B, T] gaps."""
    T = completions.shape[1]
    first = prompt_length - 1  # the logits before a token predict it
    both = [x[:, first : first + T].log_softmax(-1) for x in (student, teacher)]
    picked = [x.gather(-1, completions[..., None])[..., 0] for x in both]
    return picked[1] - picked[0]


def teacher_with_worked_examples(gap_of: Callable[..., Tensor]) -> None:
    """Student and teacher know the same; the teacher's prompt is longer."""

    def logits(ids: list[int]) -> Tensor:  # nearly sure that the next number follows
        following = (torch.tensor([ids]) + 1) % 10
        return 6.0 * torch.nn.functional.one_hot(following, 10).float()

    completion = [4, 5, 6]
    for examples in ([], [7, 8], [0, 1, 2, 7, 8]):
        both = logits([3, *completion]), logits([*examples, 3, *completion])
        gap = gap_of(*both, torch.tensor([completion]), 1)
        shown = [round(x, 1) + 0.0 for x in gap[0].tolist()]
        print(f"{len(examples)} tokens before the teacher's prompt: gaps {shown}")


def a_longer_prompt_alone_changes_nothing(gap_of: Callable[..., Tensor]) -> None:
    """If both models give each token the same probability, the gap is 0, however long the teacher's prompt is."""

    def _logits(prompt: Tensor, completions: Tensor) -> Tensor:
        ids = torch.cat([prompt.expand(len(completions), -1), completions], dim=1)
        return 6.0 * torch.nn.functional.one_hot((ids + 1) % 10, 10).float()

    completions = torch.tensor([[4, 5, 6], [4, 5, 9], [1, 2, 3]])
    for student in ([3], [2, 3]):
        for examples in ([], [7], [7, 8], [0, 1, 2, 7, 8, 9]):
            prompts = [torch.tensor([x]) for x in (student, [*examples, 3])]
            both = [_logits(x, completions) for x in prompts]
            gap = gap_of(*both, completions, len(student))
            worst = gap.abs().max().item()
            assert worst < 1e-5, (
                f"prompts of {len(student)} and {len(examples) + 1} tokens: a gap of {worst:.2f}, expected 0"
            )
    sure = _logits(torch.tensor([[3]]), completions)
    flat = torch.zeros(3, 6, 10)
    gap = gap_of(sure, flat, completions, 1)
    wanted = -torch.tensor(10.0).log() - sure[0, 0].log_softmax(-1)[4]
    assert abs(gap[0, 0] - wanted) < 1e-5, (
        "a teacher who knows nothing has log-prob -log 10 everywhere"
    )


def mended_gap(
    student: Tensor, teacher: Tensor, completions: Tensor, prompt_length: int
) -> Tensor:
    """[B, S+T, V] and [B, S'+T, V] logits, [B, T] ids -> [B, T] gaps."""
    T = completions.shape[1]
    both = [x[:, -T - 1 : -1].log_softmax(-1) for x in (student, teacher)]
    picked = [x.gather(-1, completions[..., None])[..., 0] for x in both]
    return picked[1] - picked[0]


TWO_PROMPTS = Bug(
    id="two-prompts",
    title="a teacher that reads another line",
    concept="context-distillation",
    minutes=5,
    statement="""
    Context distillation: the teacher is the same model with worked examples before the prompt. Without examples all gaps are 0,
    as they should be. With any examples the gaps are huge, although this toy model looks at the last token alone, and the student is
    driven to write what nobody would write. The cell prints the gaps of one completion for three lengths of the examples.
    """,
    wrong=suspect_gap,
    symptom=teacher_with_worked_examples,
    reveals=a_longer_prompt_alone_changes_nothing,
    mended=mended_gap,
    idea="""
    Let student and teacher be one model, with prompts of 3 and 5 tokens. At which places of the teacher's logits
    does the code look, and where does its completion begin?
    """,
    outline="""
    Count from the end, where both have the same completion:

    ```python
    both = [x[:, ... : ...].log_softmax(-1) for x in (student, teacher)]  # T places each
    ```
    """,
    moral="""
    The student's prompt length was used for both. The teacher's completion begins later, so its logits at the student's places are
    predictions inside its own prompt. The habit: count from the end, and see that a teacher equal to the student pays 0.
    """,
)

BUGS = (TWO_PROMPTS,)
