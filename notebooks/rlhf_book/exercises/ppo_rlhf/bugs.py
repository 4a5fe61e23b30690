"""Find the bug: a reference that is not there."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── a reference that walks along ───────────────────────────────────────────────────────────────────────────────────


def suspect_reference(policy: torch.nn.Module) -> torch.nn.Module:
    """The frozen start, against which the KL penalty is measured."""
    reference = policy
    reference.eval()
    return reference


def distance_after_training(make: Callable[[torch.nn.Module], torch.nn.Module]) -> None:
    """The policy learns to prefer outcome 0; its distance from the reference."""
    torch.manual_seed(0)
    policy, states = torch.nn.Linear(4, 3), torch.randn(64, 4)
    reference = make(policy)
    for step in range(4):
        logp = policy(states).log_softmax(-1)
        with torch.no_grad():
            at_ref = reference(states).log_softmax(-1)
        kl = (logp.exp() * (logp - at_ref)).sum(-1).mean()
        print(f"step {step}: outcome 0 {logp.exp()[:, 0].mean():.2f}, KL {kl:.3f}")
        policy.zero_grad()
        (-logp[:, 0].mean()).backward()
        with torch.no_grad():
            for weight in policy.parameters():
                if weight.grad is not None:
                    weight.sub_(2.0 * weight.grad)


def the_reference_stands_still(
    make: Callable[[torch.nn.Module], torch.nn.Module],
) -> None:
    """The policy's weights are changed: what the reference says may not change, and the policy must still be trainable."""
    torch.manual_seed(1)
    policy, states = torch.nn.Linear(4, 3), torch.randn(5, 4)
    reference = make(policy)
    before: Tensor = reference(states).detach().clone()
    assert torch.equal(before, policy(states).detach()), (
        "it does not begin as the policy"
    )
    assert all(weight.requires_grad for weight in policy.parameters()), (
        "the policy can no longer be trained"
    )
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(1.0)
    change = (reference(states).detach() - before).abs().max().item()
    assert change == 0, (
        f"the policy moved, and the reference moved with it, by {change:.2f}"
    )


def mended_reference(policy: torch.nn.Module) -> torch.nn.Module:
    """The frozen start, against which the KL penalty is measured."""
    import copy

    return copy.deepcopy(policy).requires_grad_(False).eval()


WALKING_REFERENCE = Bug(
    id="rlhf-walking-reference",
    title="a penalty that is always 0",
    concept="four-models",
    minutes=5,
    statement="""
    In a training run the KL penalty is on. Its coefficient is raised from 0.05 to 0.5 and then to 5, and nothing changes:
    the policy drifts as if there were no penalty. The cell finds out why. Without a penalty it trains a small policy towards
    one outcome, and prints the distance from the reference. In the first line the distance should be 0. What should the
    others be?
    """,
    wrong=suspect_reference,
    symptom=distance_after_training,
    reveals=the_reference_stands_still,
    mended=mended_reference,
    idea="""
    Change one weight of the policy and read the same weight of the reference. How many models are there in memory?
    """,
    outline="""
    ```python
    import copy

    return ...  # a model with weights of its own; no gradient for them; dropout off
    ```

    The policy itself must stay trainable.
    """,
    moral="""
    Two names for one model: the reference is the policy, and moves with it. Every log-ratio is 0, so the penalty is 0 in value and
    in gradient, whatever its coefficient. A copy of the weights is needed, or weights that are never trained (with
    LoRA the body without its adapters). With two names for one model `eval()` also switches off the policy's dropout. A KL of 0 in the first step is right; in every step it is a symptom.
    """,
)

BUGS: tuple[Bug, ...] = (WALKING_REFERENCE,)
