"""Bugs that were found in public code and that no chapter sets, written down as the chapters' bugs are.

Each room is of our own making: the smallest function that has the fault, the number that looks odd, the property that
gives it away, and the mend. Where each was found stands in `book/data/bug-sources.yml`, together with the places in
which bugs of the chapters were met. Those that stand around a loss are in `museum_loop.py`. The page that shows all of them is
made by `book/_pages/bug_museum.py`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .exercises.bug import Bug
from .museum_loop import ALONE, CONSTANT, REREAD, UNASKED, UNHEARD

# ── the completion's probability in the place of a token's ───────────────────────────────────────────────────────────


def suspect_ratios(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """GRPO's ratio of each token, [B, T], from log-probs of the policy and of the sampler."""
    logp = (logp * mask).sum(dim=1, keepdim=True)
    old_logp = (old_logp * mask).sum(dim=1, keepdim=True)
    return torch.exp(logp - old_logp).expand_as(mask)


def share_outside_the_clip_range(ratio: Callable[..., Tensor]) -> None:
    """A thousand completions whose every token has moved by a few per cent, up or down."""
    generator = torch.Generator().manual_seed(0)
    for length in (1, 16, 256, 1024):
        old_logp, mask = torch.full((1000, length), -2.0), torch.ones(1000, length)
        moved = old_logp + 0.05 * torch.randn(1000, length, generator=generator)
        found = ratio(moved, old_logp, mask)
        outside = ((found - 1).abs() > 0.2).float().mean().item()
        print(f"{length:4d} tokens: {outside:4.0%} of them outside 0.8 to 1.2")


def a_token_knows_nothing_of_the_others(ratio: Callable[..., Tensor]) -> None:
    """What happens to one token leaves the ratios of the other tokens as they were."""
    old_logp, mask = torch.full((1, 4), -2.0), torch.ones(1, 4)
    moved = old_logp.clone()
    moved[0, 0] += 0.5
    found = ratio(moved, old_logp, mask)
    assert (found[0, 1:] - 1).abs().max() < 1e-6, (
        f"only the first token has moved, and the ratios are {found.tolist()}"
    )


def mended_ratios(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """GRPO's ratio of each token, [B, T], from log-probs of the policy and of the sampler."""
    return torch.exp((logp - old_logp) * mask)


SUMMED = Bug(
    id="summed-ratio",
    title="a clip that silences the long ones",
    concept="ratio-variance",
    minutes=5,
    statement="""
    The loss is called GRPO, and on completions of a few tokens it trains as it should. With a budget of a thousand tokens the
    clip fraction is near one, and somebody sets the clip range to 10 "because the ratio is noisy". Every token moves by a few
    per cent only. Whose ratio is it?
    """,
    wrong=suspect_ratios,
    symptom=share_outside_the_clip_range,
    reveals=a_token_knows_nothing_of_the_others,
    mended=mended_ratios,
    moral="""
    The log-probs are summed over the completion before the ratio is formed, so it is the ratio of whole completions: a product
    of as many factors as there are tokens. Its noise grows with the root of the length, and a clip range made for one
    token clips nearly every long completion. GRPO has a ratio a token, GSPO takes the root of the product. The
    habit: move one token, and see which ratios move.
    """,
)

# ── an offset and a bound ────────────────────────────────────────────────────────────────────────────────────────────


def suspect_weight(ratio: Tensor, low: float = 0.0, high: float = 5.0) -> Tensor:
    """CISPO's weight on a token's log-prob: the ratio, held in a range, without a gradient."""
    return ratio.clamp(1 - low, 1 + high).detach()


def weights_of_tokens(weight: Callable[..., Tensor]) -> None:
    """Tokens that the policy has moved away from, and towards."""
    for ratio in (0.01, 0.1, 0.5, 1.0, 2.0, 10.0):
        print(f"ratio {ratio:5.2f}: weight {weight(torch.tensor(ratio)).item():.2f}")


def the_unlikely_count_less(weight: Callable[..., Tensor]) -> None:
    """Below 5 the weight is the ratio itself: a token that is a tenth as likely as it was counts a tenth."""
    ratio = torch.tensor([0.1, 0.5, 1.0, 4.9, 20.0])
    found = weight(ratio)
    wanted = [0.1, 0.5, 1.0, 4.9, 5.0]
    assert (found - torch.tensor(wanted)).abs().max() < 1e-6, (
        f"ratios {[round(x, 1) for x in ratio.tolist()]} have weights {found.tolist()}"
    )


def mended_weight(ratio: Tensor, low: float = 1.0, high: float = 4.0) -> Tensor:
    """CISPO's weight on a token's log-prob: the ratio, held in a range, without a gradient."""
    return ratio.clamp(1 - low, 1 + high).detach()


FLOORED = Bug(
    id="floored-weight",
    title="defaults from a paper",
    concept="cispo",
    minutes=4,
    statement="""
    "A lower bound of 0 and an upper bound of 5", says the paper of the importance weight, and these are the defaults. Nothing
    fails. On samples that are many steps old the training drifts away from its sampler. The cell prints the weight at some
    ratios.
    """,
    wrong=suspect_weight,
    symptom=weights_of_tokens,
    reveals=the_unlikely_count_less,
    mended=mended_weight,
    moral="""
    The paper's numbers are bounds, the function's are distances from 1. So the range was 1 to 6, and a floor at 1 takes away what
    the weight is for: a token that the policy has left should count less. The habit: print a gate at a handful of ratios, in the units of
    the paper, for the defaults and not for the numbers of a test.
    """,
)

# ── returns across a tool's output ───────────────────────────────────────────────────────────────────────────────────


def suspect_returns(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """Returns-to-go [B, T]; the mask is 0 on padding and on what a tool has said."""
    returns = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        running = (rewards[:, t] + gamma * running) * mask[:, t]
        returns[:, t] = running
    return returns


def two_turns_and_a_tool(returns: Callable[..., Tensor]) -> None:
    """A call, the tool's output, a right answer, padding: the same completion without and with its tool."""
    for name, text in (("no tool", "CCAA.."), ("a tool", "CCttAA..")):
        mask = torch.tensor([[float(token in "CA") for token in text]])
        rewards = torch.zeros_like(mask)
        rewards[0, text.rindex("A")] = 1.0
        found = returns(rewards, mask, 1.0)[0].tolist()
        told = [f"{token}{value:.0f}" for token, value in zip(text, found, strict=True)]
        print(f"{name:8}", " ".join(told))


def a_tool_changes_no_return(returns: Callable[..., Tensor]) -> None:
    """A tool's output in the middle leaves the returns of the policy's own tokens as they were."""
    rewards, mask = torch.tensor([[0.0, 0.0, 1.0]]), torch.ones(1, 3)
    plain = returns(rewards, mask, 0.9)
    holes = torch.tensor([[1.0, 0.0, 0.0, 1.0, 1.0, 0.0]])
    apart = torch.zeros(1, 6).masked_scatter(holes != 0, rewards)
    found = returns(apart, holes, 0.9)[holes != 0]
    assert torch.allclose(found, plain[0]), (
        f"the returns {plain[0].tolist()} became {found.tolist()}"
    )


def mended_returns(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """Returns-to-go [B, T]; the mask is 0 on padding and on what a tool has said."""
    returns = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        onward = rewards[:, t] + gamma * running
        running = torch.where(mask[:, t] != 0, onward, running)
        returns[:, t] = running * mask[:, t]
    return returns


RESET = Bug(
    id="reset-returns",
    title="an agent that is never paid for asking",
    concept="token-mdp",
    minutes=5,
    statement="""
    On tasks of one turn everything learns. With tools, the model's last turn improves, and its calls of the tool do not get any
    better. No number looks odd in the logs. The cell prints the returns of one completion: C is a token of the call, t one
    of the tool, A one of the answer, which is right, and a dot is padding.
    """,
    wrong=suspect_returns,
    symptom=two_turns_and_a_tool,
    reveals=a_tool_changes_no_return,
    mended=mended_returns,
    moral="""
    A mask of 0 has two meanings, "after the end" and "not the policy's own". Setting the sum back to 0 is harmless in the
    padding and takes all later reward from the turns before a tool's output. Carry the sum across. The habit: put a hole into the
    mask of every test batch, and compare with the same tokens written without it.
    """,
)

# ── the token that ends a completion ─────────────────────────────────────────────────────────────────────────────────


def suspect_mask(ids: Tensor, stop: int) -> Tensor:
    """Which tokens [B, T] are trained; completions are padded with the token that ends them."""
    return (ids != stop).float()


def trained_tokens(mask: Callable[..., Tensor]) -> None:
    """Three completions of a batch; 0 ends a completion, and fills the rest of its row."""
    for row in ([5, 7, 0, 0, 0], [5, 7, 3, 9, 0], [4, 4, 8, 6, 2]):
        ids = torch.tensor([row])
        kept = [x for x, m in zip(row, mask(ids, 0)[0].tolist(), strict=True) if m]
        print(f"{row}: trained on {kept}")


def the_stop_is_trained_once(mask: Callable[..., Tensor]) -> None:
    """A completion that ends is trained on its own tokens and on the first stop; one that was cut off has none."""
    ids = torch.tensor([[5, 7, 0, 0, 0], [0, 0, 0, 0, 0], [4, 4, 8, 6, 2]])
    found = mask(ids, 0).sum(1).tolist()
    assert found == [3, 1, 5], f"of 3, 1 and 5 tokens {found} are trained"


def mended_mask(ids: Tensor, stop: int) -> Tensor:
    """Which tokens [B, T] are trained; completions are padded with the token that ends them."""
    stops_before = (ids == stop).cumsum(dim=1) - (ids == stop).long()
    return (stops_before == 0).float()


STOP = Bug(
    id="untrained-stop",
    title="a model that cannot stop",
    concept="next-token-ce",
    minutes=4,
    statement="""
    The tokenizer has no token for padding, so the one that ends a text serves for both, as in most recipes. The loss falls,
    and the trained model writes until its budget is used up. The cell prints which tokens of three completions are
    trained.
    """,
    wrong=suspect_mask,
    symptom=trained_tokens,
    reveals=the_stop_is_trained_once,
    mended=mended_mask,
    moral="""
    Padding was recognised by its id, and the real end has the same id: the decision to stop gets no gradient, in imitation and in
    reinforcement alike. Make the mask from lengths, the first stop included. The habit: count the trained tokens of a completion
    that ended by itself. There is one more than what one reads.
    """,
)

# ── a temperature in the wrong place ─────────────────────────────────────────────────────────────────────────────────


def suspect_tempered(logits: Tensor, temperature: float) -> Tensor:
    """Log-probs of all tokens under the distribution that is sampled at this temperature."""
    return logits.log_softmax(-1) / temperature


def sums_at_temperatures(logprobs: Callable[..., Tensor]) -> None:
    """The probabilities of all that can be drawn, added up."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    for temperature in (0.5, 0.7, 1.0, 1.5):
        total = logprobs(logits, temperature).exp().sum().item()
        print(f"temperature {temperature}: they sum to {total:.3f}")


def something_is_drawn(logprobs: Callable[..., Tensor]) -> None:
    """At every temperature the probabilities of all tokens sum to one."""
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 3.0, 0.5]])
    for temperature in (0.5, 1.0, 2.0):
        total = logprobs(logits, temperature).exp().sum(-1)
        assert (total - 1).abs().max() < 1e-5, (
            f"at temperature {temperature} they sum to {total.tolist()}"
        )


def mended_tempered(logits: Tensor, temperature: float) -> Tensor:
    """Log-probs of all tokens under the distribution that is sampled at this temperature."""
    return (logits / temperature).log_softmax(-1)


TEMPERED = Bug(
    id="late-temperature",
    title="right at temperature 1",
    concept="sampling-temperature",
    minutes=3,
    statement="""
    With sampling at temperature 1 the ratios of the first step are 1, as they should be. Below 1 they are not, though nobody has
    updated anything, and they move further away the longer the completions are. The cell sums a distribution.
    """,
    wrong=suspect_tempered,
    symptom=sums_at_temperatures,
    reveals=something_is_drawn,
    mended=mended_tempered,
    moral="""
    The temperature divides logits. Log-probs divided by it belong to no distribution: they are not normalised again.
    From the log-prob of the drawn token alone the right number cannot be had at all. The habit: sum the probabilities of
    everything that can come out.
    """,
)

# ── whitening ────────────────────────────────────────────────────────────────────────────────────────────────────────


def suspect_whitened(advantages: Tensor, mask: Tensor) -> Tensor:
    """Advantages [B, T] with mean 0 and standard deviation 1; 0 under the padding."""
    scores = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return scores * mask


def ten_good_tokens_and_two_bad(whiten: Callable[..., Tensor]) -> None:
    """A completion of ten tokens, each +1, beside one of two tokens, each -1, in wider and wider batches."""
    for width in (10, 20, 40):
        mask = (torch.arange(width) < torch.tensor([[10], [2]])).float()
        found = whiten(torch.tensor([[1.0], [-1.0]]) * mask, mask)
        good, bad = found[0, 0].item(), found[1, 0].item()
        print(f"width {width}: good tokens {good:+.2f}, bad tokens {bad:+.2f}")


def the_width_changes_nothing(whiten: Callable[..., Tensor]) -> None:
    """Padding a batch further leaves the numbers of its tokens as they were."""
    advantages = torch.tensor([[1.0, 2.0, 0.5], [-1.0, 0.0, 0.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    wide = [torch.nn.functional.pad(x, (0, 5)) for x in (advantages, mask)]
    narrow, found = whiten(advantages, mask), whiten(*wide)[:, :3]
    assert torch.allclose(narrow, found), f"{narrow.tolist()} became {found.tolist()}"


def mended_whitened(advantages: Tensor, mask: Tensor) -> Tensor:
    """Advantages [B, T] with mean 0 and standard deviation 1; 0 under the padding."""
    kept = advantages[mask != 0]
    scores = (advantages - kept.mean()) / (kept.std() + 1e-8)
    return scores * mask


PADDED = Bug(
    id="padded-whitening",
    title="praise that depends on the neighbours' width",
    concept="reinforce-pp",
    minutes=4,
    statement="""
    The whitened advantages are multiplied by the mask, so nothing is trained that should not be. The same two completions
    are put into wider and wider batches. What should happen to their numbers?
    """,
    wrong=suspect_whitened,
    symptom=ten_good_tokens_and_two_bad,
    reveals=the_width_changes_nothing,
    mended=mended_whitened,
    moral="""
    The zeros under the padding are in the mean and in the standard deviation. They pull the mean towards 0 and shrink
    the spread, the more the wider the batch. A mask that is applied afterwards comes too late. The habit: pad a test batch
    further, and see that nothing changes.
    """,
)


def suspect_shifted(x: Tensor, shift_mean: bool = True) -> Tensor:
    """Whitened numbers."""
    mean, deviation = x.mean(), x.std()
    whitened = (x - mean) / (deviation + 1e-8)
    if shift_mean:
        whitened = whitened + mean
    return whitened


def advantages_of_a_critic_that_is_too_low(whiten: Callable[..., Tensor]) -> None:
    """The same advantages, with a critic that is further and further below the truth."""
    advantages = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0])
    for error in (0.0, 1.0, 4.0):
        found = whiten(advantages + error)
        print(
            f"critic too low by {error:.0f}: mean {found.mean().item():5.2f}, "
            f"standard deviation {found.std().item():.2f}"
        )


def mean_zero_and_deviation_one(whiten: Callable[..., Tensor]) -> None:
    """Whitened numbers have mean 0 and standard deviation 1."""
    found = whiten(torch.tensor([3.0, 4.0, 8.0, 9.0]))
    mean, deviation = found.mean().item(), found.std().item()
    assert abs(mean) < 1e-5, f"the mean is {mean:.2f}"
    assert abs(deviation - 1) < 1e-5, f"the standard deviation is {deviation:.2f}"


def mended_shifted(x: Tensor, shift_mean: bool = True) -> Tensor:
    """Whitened numbers."""
    mean, deviation = x.mean(), x.std()
    whitened = (x - mean) / (deviation + 1e-8)
    if not shift_mean:
        whitened = whitened + mean
    return whitened


SHIFTED = Bug(
    id="shifted-back",
    title="a flag that can be read both ways",
    concept="gae-critic-noise",
    minutes=3,
    statement="""
    The advantages are whitened with the function's default. Still most of them are positive for as long as the critic is too low, and
    most of what was sampled is made likelier. A unit test that repeats the formula passes.
    """,
    wrong=suspect_shifted,
    symptom=advantages_of_a_critic_that_is_too_low,
    reveals=mean_zero_and_deviation_one,
    mended=mended_shifted,
    moral="""
    "Shift the mean" meant "shift it to zero" where the function came from, and was read as "shift it back". Two functions
    with two names cannot be confused; a flag whose sense one has to guess can. The habit: test the *property*
    (mean 0, standard deviation 1), not the formula.
    """,
)

# ── groups without a signal ──────────────────────────────────────────────────────────────────────────────────────────


def suspect_kept(rewards: Tensor, right: Tensor, group_size: int) -> Tensor:
    """Dynamic sampling: which groups are trained on. Rewards hold a fine for length, `right` the bare outcome."""
    return rewards.view(-1, group_size).std(dim=1) > 0


def wrong_answers_of_many_lengths(keep: Callable[..., Tensor]) -> None:
    """Four wrong completions, one of them long and fined, and the advantages that they would get."""
    rewards, right = torch.tensor([0.0, 0.0, 0.0, -0.5]), torch.zeros(4)
    kept = bool(keep(rewards, right, 4)[0])
    scores = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    told = [round(x, 2) for x in scores.tolist()] if kept else "none, it is dropped"
    print(f"rewards {[round(x, 1) for x in rewards.tolist()]}, all wrong")
    print(f"advantages: {told}")


def all_wrong_is_no_signal(keep: Callable[..., Tensor]) -> None:
    """A group in which all are wrong, or all are right, is dropped, whatever their lengths."""
    right = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    fines = torch.tensor([0.0, -0.5, 0.0, -0.5, 0.0, 0.0])
    found = keep(right + fines, right, 2).tolist()
    assert found == [False, False, True], (
        f"of an all-wrong, an all-right and a mixed group {found} are kept"
    )


def mended_kept(rewards: Tensor, right: Tensor, group_size: int) -> Tensor:
    """Dynamic sampling: which groups are trained on. Rewards hold a fine for length, `right` the bare outcome."""
    return right.view(-1, group_size).std(dim=1) > 0


SHAPED = Bug(
    id="shaped-filter",
    title="good marks for wrong answers",
    concept="dynamic-sampling",
    minutes=4,
    statement="""
    Groups without a difference in reward are dropped, as in DAPO. A soft fine for overlong completions was added to the reward later.
    On hard prompts the completions now get short, then empty, and the accuracy falls. The cell shows one group.
    """,
    wrong=suspect_kept,
    symptom=wrong_answers_of_many_lengths,
    reveals=all_wrong_is_no_signal,
    mended=mended_kept,
    moral="""
    The filter looks at the reward that is trained on, and the fine gives every group a spread. So a group without a
    right answer survives, and the z-score pays the short wrong completions in full. Filter by the bare outcome, shape
    afterwards. The habit: ask each filter about a group in which everything is wrong.
    """,
)


def suspect_scores(rewards: Tensor) -> Tensor:
    """One group [G]: each reward minus the mean of the others, over the others' standard deviation."""
    others = len(rewards) - 1
    mean = (rewards.sum() - rewards) / others
    square = ((rewards**2).sum() - rewards**2) / others
    deviation = (square - mean**2).clamp(min=0.0).sqrt()
    return (rewards - mean) / (deviation + 1e-6)


def one_loser_of_eight(score: Callable[..., Tensor]) -> None:
    """Seven completions agree, one got nothing."""
    for reward in (1.0, 0.75, 0.95, 0.35):
        found = score(torch.tensor([0.0] + 7 * [reward]))[0].item()
        print(f"seven times {reward}: the eighth has advantage {found:,.2f}")


def others_that_agree_have_no_spread(score: Callable[..., Tensor]) -> None:
    """Where all others agree the advantage is the plain difference from them, whatever number they agree on."""
    for reward in (1.0, 0.95, 0.35, 0.1):
        found = score(torch.tensor([0.0] + 7 * [reward]))[0].item()
        assert abs(found + reward) < 1e-3, (
            f"with seven rewards of {reward} the eighth has advantage {found:.2f}"
        )


def mended_scores(rewards: Tensor) -> Tensor:
    """One group [G]: each reward minus the mean of the others, over the others' standard deviation."""
    scores = []
    for i in range(len(rewards)):
        others = torch.cat([rewards[:i], rewards[i + 1 :]])
        agree = bool(others.max() == others.min())
        deviation = 1.0 if agree else others.std(correction=0).item()
        scores.append((rewards[i] - others.mean()) / deviation)
    return torch.stack(scores)


RESIDUE = Bug(
    id="residue-of-others",
    title="a spike out of seven equal numbers",
    concept="rloo-with-std",
    minutes=6,
    statement="""
    The advantage is a leave-one-out difference over the standard deviation of the others. In one step of hundreds the norm of the gradient jumps by
    three orders of magnitude. All rewards lie between 0 and 1. The cell prints the advantage of one completion
    beside seven that agree.
    """,
    wrong=suspect_scores,
    symptom=one_loser_of_eight,
    reveals=others_that_agree_have_no_spread,
    mended=mended_scores,
    moral="""
    The others agree, so their standard deviation is 0 and epsilon alone is left to divide by. On rewards that binary fractions do not
    hold, the mean of squares minus the square of the mean leaves a residue of rounding instead, which a check for exactly 0
    does not see. A more accurate variance leaves a smaller residue and a larger spike. Ask the rewards themselves whether they agree. The habit: test a group in which all but one agree, on 1
    and on 0.35.
    """,
)

# ── a mean in the place of a sum ─────────────────────────────────────────────────────────────────────────────────────


def suspect_logp(logp: Tensor, mask: Tensor) -> Tensor:
    """The log-prob of each completion, [B], for DPO; logp is 0 under the padding."""
    return (logp * mask).mean(dim=1)


def margins_of_one_pair(completion_logp: Callable[..., Tensor]) -> None:
    """DPO's margin of one pair, with beta 0.1, in batches of other widths. The reference gives every token -1."""
    for width in (4, 16, 64):
        mask = (torch.arange(width) < torch.tensor([[4], [2]])).float()
        policy = torch.tensor([[-0.5], [-1.5]]) * mask
        log_ratio = completion_logp(policy, mask) - completion_logp(-mask, mask)
        margin = 0.1 * (log_ratio[0] - log_ratio[1]).item()
        print(f"width {width:2d}: margin {margin:.4f}")


def a_product_over_the_tokens(completion_logp: Callable[..., Tensor]) -> None:
    """The probability of a completion is the product of those of its tokens, at any width."""
    logp = torch.tensor([[0.5, 0.25, 0.0], [0.1, 0.0, 0.0]])
    mask = (logp > 0).float()
    found = completion_logp(logp.clamp(min=0.01).log() * mask, mask).exp()
    assert torch.allclose(found, torch.tensor([0.125, 0.1])), (
        f"0.5 times 0.25 and 0.1 alone became {found.tolist()}"
    )


def mended_logp(logp: Tensor, mask: Tensor) -> Tensor:
    """The log-prob of each completion, [B], for DPO; logp is 0 under the padding."""
    return (logp * mask).sum(dim=1)


AVERAGED = Bug(
    id="averaged-completion",
    title="a preference that fades in wide batches",
    concept="dpo",
    minutes=4,
    statement="""
    DPO compares the log-probs of whole completions. This code gets them for batches that are padded to one width. The longer
    the longest completion of a batch, the smaller the margins of all its pairs. The cell
    prints the margin of one pair.
    """,
    wrong=suspect_logp,
    symptom=margins_of_one_pair,
    reveals=a_product_over_the_tokens,
    mended=mended_logp,
    moral="""
    A completion's log-prob is a sum over its tokens. The mean over the width divides beta by a number that depends on the neighbours.
    (A mean over the completion's own tokens is another method, SimPO's, and has its own beta.) The habit: check that `exp` of it is the
    product that one would write by hand.
    """,
)

FOUND = (
    SUMMED,
    FLOORED,
    RESET,
    STOP,
    TEMPERED,
    PADDED,
    SHIFTED,
    SHAPED,
    RESIDUE,
    AVERAGED,
    CONSTANT,
    ALONE,
    UNHEARD,
    UNASKED,
    REREAD,
)
