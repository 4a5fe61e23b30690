r"""More cells of the advantage and normalize columns: other baselines, steps, a teacher, several rewards.

As in `functional.advantages`: token rewards [B, T] in, advantages [B, T] out, without gradient.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ..functional.advantages import (
    _centered,
    _divide,
    _gae,
    _grouped,
    _sequence_rewards,
    _spread,
    _std,
    _zscore,
    group_centered,
)
from ..functional.checks import (
    check,
    check_ddof,
    check_group,
    check_not_negative,
    check_numbers,
    check_parts,
    check_positive,
    check_rows,
    check_share,
    check_step_ends,
)
from ..functional.masked import last_token, lengths, zero_outside


def gae_by_length(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    values: Float[Tensor, "B T"],
    alpha: float = 1.5,
    gamma: float = 1.0,
) -> Float[Tensor, "B T"]:
    r"""GAE with a lambda of its own for each completion (:eq:`eq-gae-by-length`), as in VAPO and SAO.

    .. math:: \lambda_i = 1 - \frac{1}{\max(\alpha\, \lvert o_i \rvert,\, 1)}

    With one lambda for all, a reward fades over a long completion: 0.95 to the power of 100 is 0.006. Here a reward at
    the end arrives at the first token with about the same weight whatever the length, exp(-1 / alpha).

    Chapter: gae. Source: VAPO, arXiv 2504.05118; SAO, arXiv 2607.07508 (alpha 1.5).

    Args:
        mask: [B, T], 1 on trained tokens; the length counts these.
        values: [B, T], the critic's V before each token is chosen.
        alpha: above 0, usually 0.05 to 1.5; larger trusts the rewards more and the critic less.
        gamma: discount, 1 for language.

    Raises:
        ValueError: alpha not above 0, gamma outside [0, 1].

    Example:
        >>> values = torch.tensor([[0.5, 0.5]])
        >>> gae_by_length(torch.tensor([[0.0, 1.0]]), torch.ones(1, 2), values=values, alpha=1.0)  # lambda 1/2
        tensor([[0.2500, 0.5000]])
    """
    check(mask, token_rewards=token_rewards, values=values)
    check_share(gamma=gamma)
    check_positive(alpha=alpha)
    lam = 1 - 1 / (alpha * lengths(mask).to(token_rewards.dtype)).clamp(min=1.0)  # [B]
    return _gae(token_rewards, mask, values, gamma, lam)


def gpg(token_rewards: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, group_size: int) -> Float[Tensor, "B T"]:
    r"""`group_centered`, larger where few completions of the batch have a reward (:eq:`eq-gpg`).

    .. math:: A_i = \frac{B}{\lvert \{j : R_j \ne 0\} \rvert} \Big(R_i - \mathrm{mean}_{j \in g(i)} R_j\Big)

    One number for the whole batch: it changes the size of a step and no direction.

    Chapter: rloo-in-depth. Source: verl's `gpg`. Differs from the paper, arXiv 2504.02546, which counts the completions
    of groups with two different rewards.

    Returns:
        [B, T], one number a sequence; exactly 0 in a group of equal rewards.

    Example:
        >>> gpg(torch.tensor([[1.0], [0.0]]), torch.ones(2, 1), group_size=2).flatten()
        tensor([ 1., -1.])
    """
    centred = group_centered(token_rewards, mask, group_size=group_size)
    return centred * (len(mask) / torch.count_nonzero(_sequence_rewards(token_rewards, mask)).clamp(min=1))


def batch_std(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    group_size: int,
    eps: float = 1e-4,
    ddof: int = 1,
) -> Float[Tensor, "B T"]:
    r"""Reward minus the group's mean, over the batch's spread (:eq:`eq-batch-std`), as in Lite PPO and ScaleRL.

    .. math:: A_i = \frac{R_i - \mathrm{mean}_{j \in g(i)} R_j}{\mathrm{std}_{j} R_j + \epsilon}

    The std is over the raw rewards of all rows. So one number scales the whole batch: a prompt with small differences
    has a smaller gradient than one with large differences, unlike in `group_normalized`.

    Chapter: dr-grpo. Source: Lite PPO, arXiv 2508.08221; ScaleRL, arXiv 2510.13786; TRL's `scale_rewards="batch"`.

    Args:
        eps: added to the standard deviation.
        ddof: 1 = sample standard deviation, 0 = population.

    Returns:
        [B, T], one number a sequence; exactly 0 in a group of equal rewards.

    Raises:
        ValueError: a negative eps, a ddof other than 0 and 1.

    Example:
        >>> rewards = torch.tensor([[1.0], [0.0], [0.0], [0.0]])
        >>> batch_std(rewards, torch.ones(4, 1), group_size=2).flatten()
        tensor([ 0.9998, -0.9998,  0.0000,  0.0000])
    """
    check_not_negative(eps=eps)
    check_ddof(ddof)
    rewards = _grouped(token_rewards, mask, group_size)
    return _spread(_divide(_centered(rewards), _std(rewards.view(1, -1), ddof) + eps), mask)


def maxrl(
    token_rewards: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, group_size: int, eps: float = 1e-6
) -> Float[Tensor, "B T"]:
    r"""Reward minus the group's mean, over the group's mean (:eq:`eq-maxrl`).

    .. math:: A_i = \frac{R_i - \bar R_{g(i)}}{\bar R_{g(i)} + \epsilon}, \qquad \bar R_g = \mathrm{mean}_{j \in g} R_j

    For rewards of 0 and 1 the mean is the prompt's pass rate p, and a prompt weighs 1 / p: the gradient of log p, which
    is maximum likelihood, in place of p's. Hard prompts weigh more than with GRPO's 1 over the root of p (1 - p).

    Chapter: soft-gates. Source: MaxRL, arXiv 2602.02710.

    Args:
        token_rewards: [B, T]; summed over each sequence. Rewards are 0 to 1. Single ones may be negative, a group's
            mean may not: dividing by it would turn all signs.
        eps: added to the mean.

    Returns:
        [B, T], one number a sequence; exactly 0 in a group of equal rewards.

    Raises:
        ValueError: a group whose mean reward is negative, a negative eps.

    Example:
        >>> rewards = torch.tensor([[1.0], [0.0], [0.0], [0.0]])
        >>> maxrl(rewards, torch.ones(4, 1), group_size=4).flatten()
        tensor([ 3.0000, -1.0000, -1.0000, -1.0000])
    """
    check_not_negative(eps=eps)
    rewards = _grouped(token_rewards, mask, group_size)
    mean = rewards.mean(-1, keepdim=True)
    if (mean < 0).any():
        raise ValueError(
            f"the mean reward of group {int(mean.argmin())} is {mean.min().item():.4g}, and maxrl divides by it: below "
            "0 that would reward what is worse. Shift the rewards so that the least is 0, or leave out what is "
            "subtracted from them (a length penalty, a KL in the reward)"
        )
    return _spread(_divide(_centered(rewards), mean + eps), mask)


def opo(token_rewards: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, group_size: int) -> Float[Tensor, "B T"]:
    r"""Reward minus the group's mean weighted by length (:eq:`eq-opo`).

    .. math:: A_i = R_i - \frac{\sum_{j \in g(i)} \lvert o_j \rvert R_j}{\sum_{j \in g(i)} \lvert o_j \rvert}

    The baseline of least variance weighs each reward by its squared gradient. If tokens' gradients are about equally
    large and uncorrelated, and tokens are summed, that is the length.

    Chapter: rloo. Source: OPO, arXiv 2505.23585.

    Args:
        mask: [B, T], 1 on trained tokens; the length counts these.

    Returns:
        [B, T], one number a sequence; exactly 0 in a group of equal rewards.

    Example:
        >>> mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
        >>> opo(torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]), mask, group_size=2)
        tensor([[ 0.2500,  0.2500,  0.2500],
                [-0.7500,  0.0000,  0.0000]])
    """
    rewards = _grouped(token_rewards, mask, group_size)
    tokens = lengths(mask).view_as(rewards).to(rewards.dtype)  # [P, G]
    baseline = (tokens * rewards).sum(-1, keepdim=True) / tokens.sum(-1, keepdim=True).clamp(min=1.0)
    return _spread(_centered(rewards, baseline), mask)


def best_minus_second(
    token_rewards: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, group_size: int, eps: float = 1e-6
) -> Float[Tensor, "B T"]:
    r"""The best completion's lead over the second, 0 for the others (:eq:`eq-best-minus-second`).

    .. math::
        A_i = \frac{\max_{j \in g(i)} R_j - \max_{j \ne i} R_j}{\mathrm{std}_{j \in g(i)} R_j + \epsilon}

    The group's best reward, minus what it would be without this completion: only the best makes a difference. Before
    the division that is an unbiased gradient of the expected best of G, which for rewards of 0 and 1 is pass@G. A group
    with two right completions teaches nothing.

    Chapter: test-time-scaling. Source: Tang et al., arXiv 2503.19595; the division is verl's (`grpo_passk`).

    Args:
        eps: added to the standard deviation.

    Returns:
        [B, T], one number a sequence, none negative.

    Raises:
        ValueError: a negative eps.

    Example:
        >>> rewards = torch.tensor([[3.0], [1.0], [0.0]])
        >>> best_minus_second(rewards, torch.ones(3, 1), group_size=3).flatten()
        tensor([1.3093, 0.0000, 0.0000])
    """
    check_not_negative(eps=eps)
    rewards = _grouped(token_rewards, mask, group_size)
    best, second = rewards.topk(2).values.split(1, dim=-1)  # [P, 1] each
    lead = torch.where(rewards == best, best - second, torch.zeros_like(rewards))
    return _spread(_divide(lead, _std(rewards) + eps), mask)


def gdpo(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    group_size: int,
    reward_parts: Float[Tensor, "B K"],
    weights: tuple[float, ...] | None = None,
    eps: float = 1e-6,
    ddof: int = 1,
) -> Float[Tensor, "B T"]:
    r"""Several rewards, each compared within the group before they are added (:eq:`eq-gdpo`).

    .. math::
        A_i = \sum_k w_k
        \frac{R_{i,k} - \mathrm{mean}_{j \in g(i)} R_{j,k}}{\mathrm{std}_{j \in g(i)} R_{j,k} + \epsilon}

    If the parts are added first, a part that varies little has almost no influence beside one that varies much. Here
    each part has the same influence, up to its weight. Whitening follows: by tokens in verl (`whiten`), by rows in TRL
    (`zscore_rows`).

    Chapter: choosing. Source: GDPO, arXiv 2601.05242; verl's and TRL's differ in the whitening, which is the row's
    normalize cell here.

    Args:
        token_rewards: [B, T], not used: the parts are the reward.
        reward_parts: [B, K], one column for each part.
        weights: K numbers; default: 1 each.
        eps: added to the standard deviation, usually 1e-6 (verl) to 1e-4 (TRL).
        ddof: 1 = sample standard deviation, 0 = population.

    Returns:
        [B, T], one number a sequence; exactly 0 in a group whose rows are equal in every part.

    Raises:
        ValueError: weights that are not K numbers, a negative eps, a ddof other than 0 and 1.

    Example:
        >>> parts = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        >>> gdpo(torch.zeros(2, 1), torch.ones(2, 1), group_size=2, reward_parts=parts).flatten()
        tensor([ 0.7071, -0.7071])
    """
    check(mask, token_rewards=token_rewards)
    check_parts(reward_parts, len(mask))
    check_group(len(mask), group_size, at_least=2)
    check_not_negative(eps=eps)
    K = reward_parts.shape[1]
    w = (1.0,) * K if weights is None else weights
    if not isinstance(w, tuple | list) or len(w) != K:
        raise ValueError(f"weights is {weights!r}, expected {K} numbers, one for each part of the reward")
    check_numbers(**{f"weights[{k}]": weight for k, weight in enumerate(w)})
    parts = reward_parts.view(-1, group_size, K).transpose(1, 2)  # [P, K, G]
    scores = _zscore(parts, eps, ddof) * parts.new_tensor(w)[:, None]
    return _spread(scores.sum(1), mask)  # [P, G]


def leave_one_out_normalized(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    group_size: int,
    std: str = "group",
    eps: float = 1e-4,
) -> Float[Tensor, "B T"]:
    r"""Leave-one-out over a standard deviation (:eq:`eq-leave-one-out-normalized`): a hybrid of RLOO and GRPO.

    .. math:: A_i = \frac{R_i - \mathrm{mean}_{j \ne i} R_j}{\mathrm{std} + \epsilon}

    With the group's std it is G/(G-1) times GRPO's z-score (up to epsilon). With the std of the *others* it can become
    very large: if all others are equal, a completion that differs from them is divided by epsilon alone.

    Chapter: rloo.

    Args:
        group_size: G, at least 2; at least 3 with ``std="others"``, since one sample has no spread.
        std: "group" or "others" (sample standard deviation both).
        eps: added to the standard deviation.

    Returns:
        [B, T], one number a sequence.

    Raises:
        ValueError: an unknown std, groups too small or that do not divide, a negative eps.

    Example:
        >>> rewards = torch.tensor([[1.0], [0.0], [0.0], [0.0]])
        >>> leave_one_out_normalized(rewards, torch.ones(4, 1), group_size=4).flatten()
        tensor([ 1.9996, -0.6665, -0.6665, -0.6665])
    """
    check_not_negative(eps=eps)
    rewards = _grouped(token_rewards, mask, group_size)
    centered = _centered(rewards) * (group_size / (group_size - 1))
    if std == "group":
        return _spread(_divide(centered, _std(rewards) + eps), mask)
    if std != "others":
        raise ValueError(f'std is {std!r}, expected "group" or "others"')
    check_group(len(mask), group_size, at_least=3)
    others = torch.stack([rewards.roll(-shift, -1) for shift in range(1, group_size)], dim=-1)  # [P, G, G-1]
    return _spread(_divide(centered, _std(others).squeeze(-1) + eps), mask)


def process(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    group_size: int,
    step_ends: Shaped[Tensor, "B T"] | None = None,
    eps: float = 1e-4,
    ddof: int = 1,
) -> Float[Tensor, "B T"]:
    r"""GRPO with process supervision (:eq:`eq-process`): normalised step rewards, summed from each token on.

    .. math::
        A_{i,t} = \sum_{k:\, \text{end}(k) \ge t}
        \frac{r_{i,k} - \mathrm{mean}(\mathbf r)}{\mathrm{std}(\mathbf r) + \epsilon}

    The mean and the std run over all steps of all completions of the group. A token gets the sum over the step that it
    is in and all later ones.

    Chapter: process-rewards. Source: arXiv 2402.03300, section 4.1.3.

    Args:
        token_rewards: [B, T], read only at the ends of steps.
        step_ends: [B, T], 1 on the last token of each step; default: the last trained token.
        eps: added to the standard deviation.
        ddof: 1 = sample standard deviation, 0 = population.

    Returns:
        [B, T]; exactly 0 in a group whose step rewards are all equal.

    Raises:
        ValueError: groups that do not divide, a group with a single step.

    Example:
        >>> rewards, ends = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.ones(2, 2)
        >>> process(rewards, torch.ones(2, 2), group_size=2, step_ends=ends)
        tensor([[ 0.9998, -0.4999],
                [-0.9998, -0.4999]])
    """
    check(mask, token_rewards=token_rewards)
    check_group(len(mask), group_size, at_least=2)
    check_not_negative(eps=eps)
    if step_ends is None:
        counts = last_token(mask) != 0  # [B, T]
    else:
        check_step_ends(step_ends, mask)
        counts = (step_ends != 0) & (mask != 0)
    for rows in counts.view(-1, group_size, counts.shape[1]):
        if int(rows.sum()) < 2:
            raise ValueError(
                "a group holds fewer than two scored steps, so its rewards cannot be compared: sample more "
                "completions or mark step_ends"
            )
    normalized = _zscore_of_steps(token_rewards, counts, group_size, eps, ddof)
    to_go = normalized.flip(-1).cumsum(-1).flip(-1)
    return zero_outside(to_go, mask)


def own_step(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    group_size: int,
    step_ends: Shaped[Tensor, "B T"],
    coef: float = 1.0,
    eps: float = 1e-4,
    ddof: int = 1,
) -> Float[Tensor, "B T"]:
    r"""The outcome's z-score, and for the tokens of a step that step's own (:eq:`eq-own-step`).

    .. math::
        A_{i,t} = \frac{R_i - \mathrm{mean}_{j \in g(i)} R_j}{\mathrm{std}_{j \in g(i)} R_j + \epsilon}
        + w\, \frac{r_{i,k(t)} - \mathrm{mean}(\mathbf r)}{\mathrm{std}(\mathbf r) + \epsilon}

    k(t) is the step that token t is in; tokens behind the last step have the first term alone. The mean and the std of
    the marks r run over all steps of the group. Unlike in `process`, a step is not paid for the steps that follow, so
    writing more of them brings nothing to the earlier ones.

    Chapter: process-rewards.

    Args:
        token_rewards: [B, T], marks at the ends of steps; all other rewards, the last token's too, are the outcome.
        step_ends: [B, T], 1 on the last token of each step; the last trained token is the outcome's, marked or not.
        coef: w, the weight of the marks beside the outcome.
        eps: added to both standard deviations.
        ddof: 1 = sample standard deviation, 0 = population.

    Returns:
        [B, T]; in a group with fewer than two steps, or with equal marks, the outcome's z-score alone.

    Raises:
        ValueError: a negative eps or coef.

    Example:
        >>> rewards, ends = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), torch.tensor([[1, 0, 1], [1, 0, 1]])
        >>> own_step(rewards, torch.ones(2, 3), group_size=2, step_ends=ends)  # equal outcomes, one right step
        tensor([[ 0.7070,  0.0000,  0.0000],
                [-0.7070,  0.0000,  0.0000]])
    """
    outcome, counts = _outcome_and_steps(token_rewards, mask, group_size, step_ends)
    check_not_negative(eps=eps, coef=coef)
    marks = _zscore_of_steps(token_rewards, counts, group_size, eps, ddof)
    return _spread(_zscore(outcome, eps, ddof), mask) + coef * zero_outside(_over_steps(marks, counts), mask)


def first_wrong(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    group_size: int,
    step_ends: Shaped[Tensor, "B T"],
    coef: float = 1.0,
    threshold: float = 0.5,
    eps: float = 1e-4,
    ddof: int = 1,
) -> Float[Tensor, "B T"]:
    r"""The outcome's z-score, and a fine for the tokens of the first wrong step (:eq:`eq-first-wrong`).

    .. math::
        A_{i,t} = \frac{R_i - \mathrm{mean}_{j \in g(i)} R_j}{\mathrm{std}_{j \in g(i)} R_j + \epsilon}
        - w\, [k(t) = \min\{k : r_{i,k} < \tau\}]

    k(t) is the step that token t is in. What follows a wrong step starts from a wrong place, so it says little; and
    right steps are paid by nothing but the outcome, so there is nothing to gain by writing more of them.

    Chapter: process-rewards.

    Args:
        token_rewards: [B, T], marks at the ends of steps; all other rewards, the last token's too, are the outcome.
        step_ends: [B, T], 1 on the last token of each step; the last trained token is the outcome's, marked or not.
        coef: w, the fine in standard deviations of the outcome.
        threshold: tau; a step with a lower mark is wrong.
        eps: added to the standard deviation.
        ddof: 1 = sample standard deviation, 0 = population.

    Returns:
        [B, T]; where no step is wrong, the outcome's z-score alone.

    Raises:
        ValueError: a negative eps or coef, a threshold that is no number.

    Example:
        >>> rewards, ends = torch.tensor([[1.0, 0.0, 0.0, 1.0]] * 2), torch.tensor([[1, 1, 1, 1]] * 2)
        >>> first_wrong(rewards, torch.ones(2, 4), group_size=2, step_ends=ends)[0]  # right, wrong, wrong, outcome
        tensor([ 0., -1.,  0.,  0.])
    """
    outcome, counts = _outcome_and_steps(token_rewards, mask, group_size, step_ends)
    check_not_negative(eps=eps, coef=coef)
    check_numbers(threshold=threshold)
    wrong = counts & (token_rewards < threshold)
    first = (wrong & (wrong.cumsum(-1) == 1)).to(token_rewards.dtype)
    return _spread(_zscore(outcome, eps, ddof), mask) - coef * zero_outside(_over_steps(first, counts), mask)


def given_baseline(
    token_rewards: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, baseline: Float[Tensor, " B"] | None
) -> Float[Tensor, "B T"]:
    r"""Reward minus a baseline given with the batch (:eq:`eq-given-baseline`).

    .. math:: A_i = R_i - b_i

    Unbiased for any b that does not depend on the completion: a running mean over prompts (EMA), or the reward of the
    greedy completion (ReMax). Unlike with the group's own mean, a group of equal rewards may have a gradient.

    Chapter: rloo. Source: greedy baseline: ReMax, arXiv 2310.10505.

    Args:
        baseline: [B], one number a sequence.

    Returns:
        [B, T], one number a sequence.

    Raises:
        ValueError: no baseline.

    Example:
        >>> given_baseline(torch.tensor([[1.0]]), torch.ones(1, 1), baseline=torch.tensor([0.3]))
        tensor([[0.7000]])
    """
    if baseline is None:
        raise ValueError("given_baseline needs one: pass Batch(..., baseline=b), one number for each sequence")
    check(mask, token_rewards=token_rewards)
    check_rows("baseline", baseline, len(mask))
    return _spread(_sequence_rewards(token_rewards, mask) - baseline, mask)


def greedy_baseline(
    token_rewards: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, greedy_rewards: Float[Tensor, " B"]
) -> Float[Tensor, "B T"]:
    r"""Reward minus that of the greedy completion of the same prompt (:eq:`eq-greedy-baseline`), as in ReMax.

    .. math:: A_i = R_i - R(o^{greedy}), \qquad o^{greedy}_t = \arg\max_v \pi_{old}(v \mid q, o^{greedy}_{<t})

    Unbiased, since the greedy completion does not depend on the sampled one. It costs one more completion a prompt, and
    none of the others in the group: one sample a prompt is enough.

    Chapter: rloo. Source: ReMax, arXiv 2310.10505, algorithm 1; verl's `remax`.

    Args:
        greedy_rewards: [B], the reward of the greedy completion of each row's prompt.

    Returns:
        [B, T], one number a sequence.

    Example:
        >>> greedy_baseline(torch.tensor([[1.0], [0.0]]), torch.ones(2, 1), greedy_rewards=torch.tensor([1.0, 1.0]))
        tensor([[ 0.],
                [-1.]])
    """
    check(mask, token_rewards=token_rewards)
    check_rows("greedy_rewards", greedy_rewards, len(mask))
    return _spread(_sequence_rewards(token_rewards, mask) - greedy_rewards, mask)


def teacher_gap(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    old_logp: Float[Tensor, "B T"],
    ref_logp: Float[Tensor, "B T"],
    limit: float | None = None,
) -> Float[Tensor, "B T"]:
    r"""By how much a teacher would rather have written this very token (:eq:`eq-teacher-gap`).

    .. math:: A_t = \log \pi_T(y_t) - \log \pi_{\mathrm{old}}(y_t)

    Its mean over the policy's own tokens is -KL(pi || pi_T) of the next token, and with it `policy_loss` has that KL's
    gradient while the policy is still the one that sampled. Each token answers for itself, which is a discount of 0;
    the outcome is not read.

    Chapter: distillation. Source: Agarwal et al., arXiv 2306.13649; as a policy gradient, Lu, Thinking Machines, 2025.

    Args:
        token_rewards: [B, T]; not read.
        old_logp: [B, T], of the policy that sampled.
        ref_logp: [B, T], of the teacher.
        limit: the largest size of an advantage; default: none.

    Raises:
        ValueError: or a limit that is not above 0.

    Example:
        >>> logp, teacher = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.5, 0.25]]).log()
        >>> teacher_gap(torch.zeros(1, 2), torch.ones(1, 2), old_logp=logp, ref_logp=teacher)
        tensor([[ 0.0000, -0.6931]])
    """
    check(mask, token_rewards=token_rewards, old_logp=old_logp, ref_logp=ref_logp)
    gap = zero_outside(ref_logp - old_logp, mask)
    if limit is None:
        return gap
    check_positive(limit=limit)
    return gap.clamp(-limit, limit)


def prefix_weighted(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    old_logp: Float[Tensor, "B T"],
    ref_logp: Float[Tensor, "B T"],
    gamma: float = 0.5,
) -> Float[Tensor, "B T"]:
    r"""`teacher_gap` with more weight on early disagreements (:eq:`eq-prefix-weighted`), as in IW-OPD.

    .. math::
        A_t = \Big(1 + \gamma \Big(1 - \frac{\sum_{j < t} |a_j|}{\sum_j |a_j|}\Big)\Big)\, a_t, \qquad
        a_t = \log \pi_T(y_t) - \log \pi_{\mathrm{old}}(y_t)

    Once the student has left what the teacher would write, the teacher judges a text that it would not have begun. The
    weight falls from 1 + gamma to about 1 with the share of the disagreement that lies before a token.

    Chapter: distillation. Source: IW-OPD, arXiv 2606.22600; TRL's `iw_opd_gamma`, which may also be above 1.

    Args:
        token_rewards: [B, T]; not read.
        old_logp: [B, T], of the policy that sampled.
        ref_logp: [B, T], of the teacher.
        gamma: extra weight of the first token, between 0 and 1, usually 0.5; 0 = `teacher_gap`.

    Returns:
        [B, T]; 0 in a row where the two agree.

    Raises:
        ValueError: gamma outside [0, 1].

    Example:
        >>> logp, teacher = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-2.0, -2.0]])
        >>> prefix_weighted(torch.zeros(1, 2), torch.ones(1, 2), old_logp=logp, ref_logp=teacher)
        tensor([[-1.5000, -1.2500]])
    """
    check_share(gamma=gamma)
    gap = teacher_gap(token_rewards, mask, old_logp=old_logp, ref_logp=ref_logp)
    size = gap.abs()
    before = size.cumsum(-1) - size
    total = size.sum(-1, keepdim=True)
    return (1 + gamma * (1 - before / torch.where(total == 0, torch.ones_like(total), total))) * gap


def zscore_rows(
    advantages: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, eps: float = 1e-4, ddof: int = 1
) -> Float[Tensor, "B T"]:
    r"""Mean 0 and spread 1 over the sequences of the batch (:eq:`eq-zscore-rows`), as in TRL's RLOO and GDPO.

    .. math:: A_i \leftarrow \frac{A_i - \mathrm{mean}_j A_j}{\mathrm{std}_j A_j + \epsilon}

    Every sequence counts the same, where `whiten` counts every token.

    Chapter: rloo. Source: TRL's `normalize_advantages` and `multi_objective_aggregation="normalize_then_sum"`.

    Args:
        advantages: [B, T], one number a sequence.
        mask: [B, T], 1 on trained tokens; rows without any are left out of mean and spread.
        eps: added to the standard deviation, usually 1e-4 (TRL); 0 in NeMo RL.
        ddof: 1 = sample standard deviation, 0 = population.

    Returns:
        [B, T]; exactly 0 if all sequences are equal.

    Raises:
        ValueError: advantages that differ within a sequence, fewer than two sequences, a negative eps.

    Example:
        >>> zscore_rows(torch.tensor([[1.0, 1.0], [3.0, 0.0]]), torch.tensor([[1, 1], [1, 0]]), eps=0.0)
        tensor([[-0.7071, -0.7071],
                [ 0.7071,  0.0000]])
    """
    check(mask, advantages=advantages)
    check_not_negative(eps=eps)
    trained = mask != 0
    rows = trained.any(-1)
    first = zero_outside(advantages, mask).gather(1, trained.to(torch.uint8).argmax(-1, keepdim=True))  # [B, 1]
    if ((advantages != first) & trained).any():
        raise ValueError("zscore_rows needs one advantage per sequence, and these differ by token: use whiten instead")
    if int(rows.sum()) < 2:
        raise ValueError("one sequence has no spread: normalise over a larger batch, or set normalize=None")
    scores = torch.zeros_like(first[:, 0])
    scores[rows] = _zscore(first[rows, 0][None], eps, ddof)[0]
    return _spread(scores, mask)


def _outcome_and_steps(
    token_rewards: Tensor, mask: Tensor, group_size: int, step_ends: Tensor
) -> tuple[Tensor, Tensor]:
    """[P, G] what a completion earns beside its steps' marks, and [B, T] where its steps end, before the last token."""
    check(mask, token_rewards=token_rewards)
    check_group(len(mask), group_size, at_least=2)
    check_step_ends(step_ends, mask)
    counts = (step_ends != 0) & (mask != 0) & (last_token(mask) == 0)
    return _sequence_rewards(torch.where(counts, 0.0, token_rewards), mask).view(-1, group_size), counts


def _zscore_of_steps(token_rewards: Tensor, counts: Tensor, group_size: int, eps: float, ddof: int) -> Tensor:
    """[B, T] the z-score of each step's mark over all steps of its group, 0 elsewhere and where there is one step."""
    normalized = torch.zeros_like(token_rewards)
    for rows in torch.arange(len(counts), device=counts.device).view(-1, group_size):
        steps = token_rewards[rows][counts[rows]]  # every step of the group, in one row
        if len(steps) > 1:
            normalized[rows] = normalized[rows].masked_scatter(counts[rows], _zscore(steps[None], eps, ddof)[0])
    return normalized


def _over_steps(at_ends: Tensor, counts: Tensor) -> Tensor:
    """[B, T] the number at the end of a step on all of its tokens; 0 behind the last step."""
    T = counts.shape[1]
    position = torch.arange(T, device=counts.device).expand_as(counts)
    end = torch.where(counts, position, T).flip(-1).cummin(-1).values.flip(-1)  # [B, T] of the step of each token
    return torch.cat([at_ends, torch.zeros_like(at_ends[:, :1])], dim=-1).gather(-1, end)
