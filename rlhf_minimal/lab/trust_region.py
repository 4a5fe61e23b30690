r"""TRPO: the longest step along the natural gradient that keeps the new policy within a measured KL of the old one.

    maximise  L(theta), the row's own surrogate (ratio times advantage, aggregated)
    subject to  mean KL(pi_old || pi_theta) <= delta     over the states that were visited

Solved as in the paper: linearise L (gradient g), take the KL to second order (its Hessian at the old policy is the
Fisher matrix F), solve F x = g by conjugate gradients, which needs only products F v, go sqrt(2 delta / x'Fx)
along x, and shrink that step until the true surrogate has grown and the true KL keeps the bound.

Everything but the row's advantages is exact: the KL sums over the whole vocabulary instead of sampling from it, and F v
is the derivative of a derivative of that KL, no approximation of F.

Left out on purpose: F from a tenth of the batch (a speed trick of appendix C), and a penalty in place of the bound.

A token is an action, the text before it the state. Paper: Schulman et al., arXiv 1502.05477, sections 5 and 6, appendix
C. Natural gradient: Kakade, "A natural policy gradient" (2001). Chapter: trust-regions.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from rlhf_minimal.functional.aggregation import Totals
from rlhf_minimal.functional.checks import (
    check_count,
    check_mask,
    check_not_negative,
    check_positive,
    check_temperature,
)
from rlhf_minimal.functional.logprobs import token_entropy, token_logprobs
from rlhf_minimal.metrics import Metrics, UpdateStats
from rlhf_minimal.models import policy_logits
from rlhf_minimal.objective import Batch, NotFinite, policy_loss
from rlhf_minimal.sample import Rollout
from rlhf_minimal.train import Recipe, fit_critic, train_step
from rlhf_minimal.train_state import Learner

Pieces = Callable[[], Iterable[Tensor]]  # scalars with a graph, one a micro-batch, whose sum is the quantity


@dataclass(frozen=True)
class TrustRegion:
    """The bound on a step, and the settings of conjugate gradients and line search.

    Args:
        max_kl: delta, the bound on the mean KL(old || new) in nats per token; the paper's .01 is usual.
        cg_iterations: Products F v that conjugate gradients may spend; the paper's 10 is usual.
        cg_damping: Added to F's diagonal while solving, so that directions that hardly change the policy are not
            followed far; the step's length uses F itself. Libraries take .1; a very large one turns the direction into
            the gradient's.
        cg_tolerance: Conjugate gradients end early at this residual, relative to the gradient's norm.
        backtracks: Times the step may be shortened before it is given up.
        shrink: Factor by which it is shortened.

    Raises:
        ValueError: If a number is out of its range; the message names it.

    Example:
        >>> TrustRegion(max_kl=0.02).cg_iterations
        10
    """

    max_kl: float = 0.01
    cg_iterations: int = 10
    cg_damping: float = 0.1
    cg_tolerance: float = 1e-6
    backtracks: int = 10
    shrink: float = 0.8

    def __post_init__(self) -> None:
        check_positive(max_kl=self.max_kl)
        check_count(cg_iterations=self.cg_iterations)
        check_not_negative(
            cg_damping=self.cg_damping, cg_tolerance=self.cg_tolerance, backtracks=self.backtracks, shrink=self.shrink
        )
        if not 0 < self.shrink < 1:
            raise ValueError(f"shrink is {self.shrink}, expected a factor between 0 and 1: it shortens a step")


@dataclass(frozen=True)
class TrustRegionStep:
    """The result of a step, or why there was none.

    Attributes:
        accepted: Whether the parameters have moved.
        why: The same in words.
        kl: Exact mean KL(old || new) of the accepted step in nats per token, at most the bound; 0 without one.
        predicted_kl: What the second-order model said of that step: half of x'Fx, times the length squared.
        improvement: Growth of the surrogate, above 0; 0 without a step.
        predicted_improvement: What the gradient alone said of it.
        backtracks: Times the step was shortened.
        cg_residual: norm of (F + damping) x - g over that of g, where conjugate gradients ended; 0 is exact.
        grad_norm: norm of g.
    """

    accepted: bool
    why: str
    kl: float = 0.0
    predicted_kl: float = 0.0
    improvement: float = 0.0
    predicted_improvement: float = 0.0
    backtracks: int = 0
    cg_residual: float = 0.0
    grad_norm: float = 0.0


def mean_kl(
    old_logits: Float[Tensor, "B T V"],
    logits: Float[Tensor, "B T V"],
    mask: Shaped[Tensor, "B T"],
    *,
    temperature: float = 1.0,
    totals: Totals | None = None,
) -> Float[Tensor, ""]:
    r"""Mean KL(old || new) of the next token over the visited states, exact (:eq:`eq-mean-kl`).

    .. math::
        \bar D(\theta) = \frac{1}{\sum_i |o_i|} \sum_{i,t} \sum_v
        \pi_{old}(v \mid s_{i,t}) \log \frac{\pi_{old}(v \mid s_{i,t})}{\pi_\theta(v \mid s_{i,t})}

    A sum over the vocabulary at every trained token, not an estimate from the tokens that were drawn.

    Chapter: trust-regions. Source: arXiv 1502.05477, eq. 12.

    Args:
        old_logits: [B, T, V] of the policy that sampled, a constant; log-probs do as well at temperature 1.
        logits: [B, T, V] of the policy being trained.
        mask: [B, T], 1 on trained tokens; logits elsewhere are never read.
        temperature: Of the sampler; the KL is between the distributions that are sampled.
        totals: Denominators of the whole optimiser batch; default: this mask.

    Returns:
        Scalar in nats per token, at least 0; 0 with a gradient of 0 where the two policies agree.

    Raises:
        ValueError: Logits that are not [B, T, V] for this mask, an all-masked batch without totals.

    Example:
        >>> old, new = torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])
        >>> mean_kl(old, new, torch.ones(1, 1))
        tensor(0.1201)
    """
    check_mask(mask)
    if not (logits.dim() == 3 and logits.shape == old_logits.shape and logits.shape[:2] == mask.shape):
        raise ValueError(
            f"old_logits {tuple(old_logits.shape)}, logits {tuple(logits.shape)} and mask {tuple(mask.shape)} must be "
            "[B, T, V], [B, T, V] and [B, T]"
        )
    check_temperature(temperature)
    totals = Totals.of(mask) if totals is None else totals
    check_count(tokens=totals.tokens)
    old, new = (_log_softmax(x, mask, temperature) for x in (old_logits.detach(), logits))  # [N, V]
    return (old.exp() * (old - new)).sum() / totals.tokens


def fisher_vector_product(
    divergence: Iterable[Tensor], parameters: Sequence[Tensor], vector: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    r"""The Fisher matrix times a vector, without the matrix (:eq:`eq-fisher-vector-product`).

    .. math::
        F v = \nabla_\theta \big( v^\top \nabla_\theta \bar D(\theta) \big) \big|_{\theta = \theta_{old}}
        \qquad F = \mathbb{E}\big[ \nabla \log \pi \; \nabla \log \pi^\top \big]

    At the old policy the Hessian of the mean KL is the Fisher matrix: the terms with second derivatives of log pi
    cancel, because probabilities sum to 1 whatever theta is. So two backward passes give a product.

    Chapter: trust-regions. Source: arXiv 1502.05477, appendix C.1.

    Args:
        divergence: Scalars that sum to the mean KL from the old policy, taken *at* the old policy, each with a graph
            of its own; one a micro-batch. A generator keeps one graph in memory at a time.
        parameters: What is differentiated.
        vector: [N], N numbers in all parameters together, in their order.

    Returns:
        [N].

    Raises:
        ValueError: A vector of another length.

    Example:
        >>> theta = torch.zeros(2, requires_grad=True)  # two logits, both probabilities 1/2: F = diag(p) - pp'
        >>> kl = mean_kl(torch.zeros(1, 1, 2), theta.view(1, 1, 2), torch.ones(1, 1))
        >>> fisher_vector_product([kl], [theta], torch.tensor([1.0, 0.0]))
        tensor([ 0.2500, -0.2500])
    """
    size = sum(p.numel() for p in parameters)
    if vector.shape != (size,):
        raise ValueError(f"vector has shape {tuple(vector.shape)}, expected ({size},): one number for each parameter")
    product = torch.zeros_like(vector)
    for piece in divergence:
        slope = _gradient(piece, parameters, create_graph=True) @ vector
        product += _gradient(slope, parameters)
    return product


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], target: Float[Tensor, " N"], *, iterations: int = 10, tolerance: float = 1e-6
) -> tuple[Float[Tensor, " N"], float]:
    r"""Solves A x = b for a symmetric positive A that is only known by its products (:eq:`eq-conjugate-gradients`).

    .. math::
        \alpha = \frac{r^\top r}{p^\top A p} \qquad x \leftarrow x + \alpha p \qquad r \leftarrow r - \alpha A p
        \qquad p \leftarrow r + \frac{r^\top r}{r_{before}^\top r_{before}}\, p

    From x = 0 and r = p = b. After k products x is the best answer that these k products allow (in A's own norm), and
    after as many as A has different eigenvalues it is exact but for rounding.

    Chapter: trust-regions. Source: arXiv 1502.05477, appendix C; Hestenes and Stiefel (1952).

    Args:
        product: v [N] -> A v [N].
        target: [N] b.
        iterations: Products that may be spent.
        tolerance: Ends early at a residual of at most this much of the norm of b.

    Returns:
        x [N], and the norm of A x - b over that of b (0 if b is 0: then x is 0 as well).

    Raises:
        ValueError: No iteration is allowed.

    Example:
        >>> A = torch.tensor([[2.0, 0.0], [0.0, 5.0]])
        >>> x, residual = conjugate_gradients(lambda v: A @ v, torch.tensor([2.0, 5.0]))
        >>> x.round(decimals=4)
        tensor([1., 1.])
    """
    check_count(iterations=iterations)
    check_not_negative(tolerance=tolerance)
    x, residual, direction = torch.zeros_like(target), target.clone(), target.clone()
    size = residual @ residual
    end = tolerance**2 * size
    for _ in range(iterations):
        if size <= end:
            break
        moved = product(direction)
        curvature = direction @ moved
        if not curvature > 0:  # A is zero in this direction, up to rounding: there is no step length
            break
        step = size / curvature
        x = x + step * direction
        residual = residual - step * moved
        before, size = size, residual @ residual
        direction = residual + size / before * direction
    whole = target.norm().item()
    return x, residual.norm().item() / whole if whole else 0.0


def trust_region_step(
    parameters: Sequence[Tensor], surrogate: Pieces, divergence: Pieces, region: TrustRegion = TrustRegion()
) -> TrustRegionStep:
    r"""One TRPO step on any differentiable policy (:eq:`eq-trust-region-step`).

    .. math::
        \theta = \theta_{old} + \sqrt{\frac{2 \delta}{x^\top F x}}\; x \qquad x = F^{-1} g
        \qquad g = \nabla L(\theta_{old})

    then the same times .8, .64, ... until L has grown and the mean KL is at most delta. The two are measured, not
    predicted: whatever the models of first and second order got wrong, an accepted step keeps the bound on this batch.

    Chapter: trust-regions. Source: arXiv 1502.05477, section 6 and appendix C; Kakade (2001) for x.

    Args:
        parameters: Changed in place if a step is accepted; else they are bit for bit what they were.
        surrogate: Called for L, to maximise, at the parameters as they are: scalars that sum to it.
        divergence: Likewise for the mean KL from the old policy, which must be 0 at the start.
        region: The bound and the numbers of the search.

    Returns:
        What was done, and how prediction and truth compare.

    Raises:
        NotFinite: The gradient.
        ValueError: Parameters in half precision, where a step would be rounded away.

    Example:
        >>> theta = torch.zeros(1, 1, 2, requires_grad=True)  # a coin; heads pay 1
        >>> old, mask = torch.zeros(1, 1, 2), torch.ones(1, 1)
        >>> report = trust_region_step(
        ...     [theta], lambda: [theta.softmax(-1)[0, 0, 0]], lambda: [mean_kl(old, theta, mask)], TrustRegion(0.01)
        ... )
        >>> report.accepted, report.kl <= 0.01, f"{theta.softmax(-1)[0, 0, 0]:.2f}"
        (True, True, '0.57')
    """
    for p in parameters:
        if p.dtype in (torch.float16, torch.bfloat16):
            raise ValueError(f"parameters are {p.dtype}, where small steps vanish: load the policy in float32")
    pieces = [(piece.item(), _gradient(piece, parameters)) for piece in surrogate()]
    before, gradient = sum(value for value, _ in pieces), torch.stack([g for _, g in pieces]).sum(0)
    norm = gradient.norm().item()
    if not math.isfinite(norm):
        raise NotFinite("the surrogate's gradient is not finite: the policy has left what this precision can hold")
    if norm == 0:
        return TrustRegionStep(False, "the gradient is 0: this batch gives no direction")

    def fisher(vector: Tensor) -> Tensor:
        return fisher_vector_product(divergence(), parameters, vector)

    x, residual = conjugate_gradients(
        lambda v: fisher(v) + region.cg_damping * v,
        gradient,
        iterations=region.cg_iterations,
        tolerance=region.cg_tolerance,
    )
    curvature = (x @ fisher(x)).item()  # x'Fx
    if not curvature > 0:
        why = "the direction found does not change the policy: F sees nothing of it"
        return TrustRegionStep(False, why, cg_residual=residual, grad_norm=norm)
    longest = math.sqrt(2 * region.max_kl / curvature) * x

    old = [p.detach().clone() for p in parameters]
    for backtracks in range(region.backtracks + 1):
        length = region.shrink**backtracks
        _set(parameters, old, length * longest)
        kl = _measure(divergence)
        if kl <= region.max_kl and (improvement := _measure(surrogate) - before) > 0:
            return TrustRegionStep(
                True,
                f"accepted after {backtracks} backtracks",
                kl=kl,
                predicted_kl=length**2 * region.max_kl,
                improvement=improvement,
                predicted_improvement=length * (gradient @ longest).item(),
                backtracks=backtracks,
                cg_residual=residual,
                grad_norm=norm,
            )
    _set(parameters, old)
    why = f"no step: {region.backtracks + 1} lengths were tried, and each broke the KL bound or gained nothing"
    return TrustRegionStep(False, why, backtracks=region.backtracks, cg_residual=residual, grad_norm=norm)


def trust_region_update(
    learner: Learner, recipe: Recipe, groups: Rollout, batch: Batch, step: int, *, region: TrustRegion = TrustRegion()
) -> Metrics:
    """What `train.update` does with AdamW, done with a trust region: the policy takes one step on the whole rollout.

    Its optimiser, its learning rate and `grad_clip` are not used, and `epochs` and `minibatches` concern the critic
    alone. `micro_batches` cuts every pass into pieces, as ever without changing the result; the old policy's
    distributions [tokens, V] are kept throughout.

    If no step is accepted, the policy is as it was. A critic learns either way: its regression has no trust region.

    Args:
        learner: Its policy (and critic) are changed.
        recipe: Its algorithm's surrogate is maximised, whatever its cells are; TRPO's own has no gate, no whitening.
        groups: The rollout.
        batch: Prepared from it.
        step: Number of the training step.
        region: The bound and the numbers of the search.

    Returns:
        The metrics that belong to the update.

    Raises:
        ValueError: As `trust_region_step` and `check_trust_region`.
    """
    check_trust_region(recipe)
    algorithm, config = recipe.algorithm, recipe.config
    all_rows = torch.arange(len(batch.mask), device=batch.mask.device)
    pieces = [
        (rows, batch.part(rows), (groups.prompts[rows], groups.prompt_mask[rows], groups.completions[rows]))
        for rows in all_rows.tensor_split(min(config.micro_batches, len(all_rows)))
    ]

    def surrogate() -> Iterator[Tensor]:
        for _, micro, ids in pieces:
            logits = policy_logits(learner.policy, *ids)  # [b, T, V]
            entropy = None if micro.entropy is None else token_entropy(logits, temperature=config.temperature)
            logp = token_logprobs(logits, ids[2], temperature=config.temperature)
            yield -policy_loss(algorithm, replace(micro, logp=logp, entropy=entropy))

    def divergence() -> Iterator[Tensor]:
        for (_, micro, ids), before in zip(pieces, old_logits, strict=True):
            logits = policy_logits(learner.policy, *ids)
            yield mean_kl(before, logits, micro.mask, temperature=config.temperature, totals=micro.totals)

    parameters = [p for p in learner.policy.parameters() if p.requires_grad]
    stats, old_logits = UpdateStats(), []
    with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels cannot be differentiated twice
        for rows, micro, ids in pieces:
            with torch.no_grad():
                old_logits.append(policy_logits(learner.policy, *ids))
            logp = token_logprobs(old_logits[-1], ids[2], temperature=config.temperature)
            entropy = token_entropy(old_logits[-1], temperature=config.temperature)
            micro = replace(micro, logp=logp, entropy=None if micro.entropy is None else entropy)
            stats.losses.append(policy_loss(algorithm, micro).item())
            stats.add_tokens(algorithm, micro, entropy, groups.mask[rows])
        report = trust_region_step(parameters, surrogate, divergence, region)
    stats.losses = [sum(stats.losses)]  # the micro-batches' losses add up to that of the one step
    stats.grad_norms.append(report.grad_norm)
    stats.value_losses += fit_critic(learner, recipe, groups, batch, step)
    return stats.metrics() | {
        "accepted": float(report.accepted),
        "step_kl": report.kl,
        "step_kl_predicted": report.predicted_kl,
        "improvement": report.improvement,
        "improvement_predicted": report.predicted_improvement,
        "backtracks": report.backtracks,
        "cg_residual": report.cg_residual,
    }


def trpo_step(learner: Learner, recipe: Recipe, *, region: TrustRegion = TrustRegion()) -> Metrics:
    """One step of online reinforcement learning inside a trust region: `train_step` with another update.

    Args:
        learner: Changed in place.
        recipe: Algorithm, task, reward and numbers. TRPO as published is a row without gate, such as
            `replace(ALGORITHMS["grpo"], gate=gates.none, kl=())`, or with `advantages.gae` for a critic.
        region: The bound and the numbers of the search.

    Returns:
        The step's metrics.

    Raises:
        NothingToLearn, ValueError: As `train_step` and `trust_region_update`.
    """
    return train_step(learner, recipe, update=partial(trust_region_update, region=region))


def check_trust_region(recipe: Recipe) -> None:
    """Refuses recipes that a trust region cannot train, before a run begins.

    Raises:
        ValueError: A row whose ratio is 1 whatever the policy does: no step could be seen to improve its surrogate.
            A critic on the policy's own body. LoRA, or bfloat16. A `target_kl`, which ends minibatches that are not
            there.
    """
    old_logp = torch.full((1, 2), -1.0)
    ratio = recipe.algorithm.ratio(old_logp + 0.1, old_logp, torch.ones(1, 2))
    if torch.equal(ratio, torch.ones_like(ratio)):
        raise ValueError(
            "this row's ratio is always 1 (ratios.on_policy), so no step could be seen to improve its surrogate: take "
            "a row with another ratio, or replace(algorithm, ratio=ratios.token)"
        )
    if recipe.config.critic == "shared":
        raise ValueError(
            "the critic shares the policy's body, so that its loss would move the policy out of the trust region: take "
            'critic="separate"'
        )
    if recipe.config.lora_rank is not None or recipe.config.precision != "float32":
        raise ValueError(
            "a trust region's step solves a linear system in all weights, in float32: leave LoRA (lora_rank) and "
            "bfloat16 (precision) out"
        )
    if recipe.config.target_kl is not None:
        raise ValueError(
            "target_kl ends a step's minibatches early, and a trust region has none: its bound is TrustRegion(max_kl)"
        )


def _log_softmax(logits: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """[N, V] log-probs at the N trained tokens. What is masked is not even read, so NaN there does no harm."""
    return torch.log_softmax(logits[mask != 0] / temperature, dim=-1)


def _gradient(scalar: Tensor, parameters: Sequence[Tensor], *, create_graph: bool = False) -> Tensor:
    """[N] gradient as one vector, 0 for parameters that the scalar does not touch."""
    gradients = torch.autograd.grad(
        scalar, parameters, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )
    return torch.cat([g.reshape(-1) for g in gradients])


@torch.no_grad()
def _measure(pieces: Pieces) -> float:
    return sum(piece.item() for piece in pieces())


@torch.no_grad()
def _set(parameters: Sequence[Tensor], old: Sequence[Tensor], step: Tensor | None = None) -> None:
    """Parameters become old + step; without a step they are old again, bit for bit."""
    pieces = [None] * len(old) if step is None else step.split([p.numel() for p in old])
    for p, before, piece in zip(parameters, old, pieces, strict=True):
        p.copy_(before if piece is None else before + piece.view_as(before))
