"""Find the bug: a step that does not arrive, and a mean that is shared."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── weights in half precision ────────────────────────────────────────────────────────────────────────────────────


def suspect_train(weights: Tensor, gradients: list[Tensor], lr: float) -> Tensor:
    """Gradient descent on bfloat16 weights, one step a gradient: half the memory."""
    for gradient in gradients:
        weights = (weights - lr * gradient).bfloat16()
    return weights


def way_of_a_weight(train: Callable[..., Tensor]) -> None:
    """A hundred equal steps with four learning rates: how far do the weights go?"""
    weights = (
        0.02 * torch.randn(1000, generator=torch.Generator().manual_seed(0))
    ).bfloat16()
    for lr in (1e-3, 1e-4, 1e-5, 1e-6):
        found = train(weights, [torch.ones(1000)] * 100, lr)
        gone = (weights.float() - found.float()).mean().item()
        moved = (found != weights).float().mean()
        print(
            f"lr {lr:g}: {gone / (100 * lr):.3f} of the way, "
            f"{moved:.1%} of the weights moved"
        )


def many_small_steps_are_one_large_one(train: Callable[..., Tensor]) -> None:
    """A hundred equal steps lead where one of a hundred times the length leads, to half a unit of the last place."""
    weights = (
        0.02 * torch.randn(1000, generator=torch.Generator().manual_seed(1))
    ).bfloat16()
    for lr in (1e-5, 1e-3):
        found = train(weights, [torch.ones(1000)] * 100, lr)
        wanted = weights.float() - 100 * lr
        off = (
            ((found.float() - wanted).abs() > 2.0**-8 * wanted.abs() + 1e-7)
            .float()
            .mean()
        )
        assert off == 0, f"with lr {lr:g}, {off:.0%} of the weights are somewhere else"


def mended_train(weights: Tensor, gradients: list[Tensor], lr: float) -> Tensor:
    """Gradient descent on bfloat16 weights with a float32 master copy, one step a gradient. Returns the weights."""
    master = weights.float()
    for gradient in gradients:
        master = master - lr * gradient
        weights = master.bfloat16()  # what the forward reads
    return weights


LOST_STEPS = Bug(
    id="lost-steps",
    title="training that stands still",
    concept="master-weights",
    minutes=5,
    statement="""
    To halve the memory, weights are kept in bfloat16. Loss and gradients are finite and look right, the learning rate
    is one that works well in float32, and nothing is learnt. The cell walks downhill with four learning rates
    and prints how far a weight gets.
    """,
    wrong=suspect_train,
    symptom=way_of_a_weight,
    reveals=many_small_steps_are_one_large_one,
    mended=mended_train,
    idea="""
    Add 0.00001 to a bfloat16 weight of 0.02 and print it. How many of a hundred such steps are seen?
    """,
    outline="""
    ```python
    master = ...  # float32: it saves small steps up
    for gradient in gradients:
        master = ...
        weights = ...  # what the forward reads
    ```
    """,
    moral="""
    A bfloat16 number has 8 significant bits. A step smaller than about a 512th of a weight is rounded away, and the
    next one again: nothing saves them up. So what is trained is kept in float32, and rounded for the forward (mixed
    precision); or only the corrections of a LoRA are trained, in float32. A run that steps on bfloat16 weights learns
    from its largest updates only. The habit: after the first step, count how many weights
    changed.
    """,
)


# ── a mean over processes ────────────────────────────────────────────────────────────────────────────────────────


def suspect_shared_loss(objective: Tensor, mask: Tensor, processes: int) -> Tensor:
    """Token mean of objective [B, T]: a mean of each process's own mean."""
    shares = torch.arange(len(mask)).tensor_split(processes)
    losses = [-(objective[own] * mask[own]).sum() / mask[own].sum() for own in shares]
    return torch.stack(losses).mean()


def pull_on_a_token(loss: Callable[..., Tensor]) -> None:
    """Six rows of two tokens, two of forty: the weight of a token in each kind."""
    mask = (torch.arange(40) < torch.tensor([2] * 6 + [40] * 2)[:, None]).float()
    for processes in (1, 2, 4, 8):
        objective = torch.zeros(8, 40, requires_grad=True)
        loss(objective, mask, processes).backward()
        assert objective.grad is not None
        short, long = (-objective.grad[row, 0].item() for row in (0, 7))
        print(
            f"{processes} processes: {short:.4f} in a short row, "
            f"{long:.4f} in a long one"
        )


def as_many_as_you_like(loss: Callable[..., Tensor]) -> None:
    """The gradient does not depend on how many processes share the work."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        lengths = torch.randint(1, 10, (8,), generator=generator)
        mask = (torch.arange(10) < lengths[:, None]).float()
        gradients = []
        for processes in (1, 2, 3, 8):
            objective = torch.zeros(8, 10, requires_grad=True)
            loss(objective, mask, processes).backward()
            assert objective.grad is not None
            gradients.append(objective.grad)
        apart = max(
            (gradients[0] - other).abs().max().item() for other in gradients[1:]
        )
        assert apart < 1e-6, (
            f"lengths {lengths.tolist()}: a token's pull changes by {apart:.4f} with the processes"
        )


def mended_shared_loss(objective: Tensor, mask: Tensor, processes: int) -> Tensor:
    """Token mean of objective [B, T]; each process divides by the tokens of all, and gradients are added up."""
    shares = torch.arange(len(mask)).tensor_split(processes)
    losses = [-(objective[own] * mask[own]).sum() / mask.sum() for own in shares]
    return torch.stack(losses).sum()


SHARED_MEAN = Bug(
    id="shared-mean",
    title="more machines, another result",
    concept="data-parallel",
    minutes=5,
    statement="""
    On one GPU the run behaves. On eight, with the same batch, completions stop growing. Nothing but the
    launcher has changed: each process computes the loss of its rows, and the gradients are averaged, as PyTorch's
    `DistributedDataParallel` does. The cell prints the weight of one token in a short row and in a long one.
    """,
    wrong=suspect_shared_loss,
    symptom=pull_on_a_token,
    reveals=as_many_as_you_like,
    mended=mended_shared_loss,
    idea="""
    Give one process a row of 1 token and the other a row of 9. What does each divide by, and what would one process
    alone divide by?
    """,
    outline="""
    ```python
    losses = [-(...).sum() / ... for own in shares]  # the same divisor for each
    return ...  # and what was divided already is not averaged again
    ```
    """,
    moral="""
    A mean of means is a mean only where the parts are equally large. With a row for each process, the token mean has
    turned into the mean within each response: another cell of the table. The same happens with gradient accumulation.
    The habit: denominators are counted over the whole optimiser batch before anyone goes backward, and a test compares
    one process with several on rows of unequal lengths.
    """,
)

BUGS = (LOST_STEPS, SHARED_MEAN)
