"""Statements that the book once made too broadly, and where they stop: exact, by enumeration, or from its own runs."""

import itertools
import math

import pytest
import torch

from rlhf_book.chain import Way, at_chosen_rate
from rlhf_book.chain import train as train_chain
from rlhf_book.tabular import Tree

TREE = Tree(vocab=3, length=3)


def cosine(one, other):
    return (torch.dot(one.flatten(), other.flatten()) / (one.norm() * other.norm())).item()


def gradient(weight, theta):
    """Of the sum of weight [15] times the log-probability of each completion."""
    return TREE.grad((weight.detach() * TREE.sequence_logp(theta)).sum(), theta)


def test_the_total_weight_of_a_hard_prompt_is_smaller_in_a_real_group():
    def total(s, n=16):
        """E of the sum of |A| over n, with A the z-score (divisor n) of rewards 0 and 1."""
        found = 0.0
        for k in range(n + 1):
            chance = math.comb(n, k) * s**k * (1 - s) ** (n - k)
            rewards = torch.tensor([1.0] * k + [0.0] * (n - k), dtype=torch.float64)
            std = rewards.std(correction=0)
            if std > 0:
                found += chance * ((rewards - rewards.mean()) / std).abs().mean().item() / 2
        return found

    closed = sum(math.comb(16, k) * 0.01**k * 0.99 ** (16 - k) * math.sqrt(k * (16 - k)) / 16 for k in range(17))
    assert total(0.01) == pytest.approx(closed)
    assert closed == pytest.approx(0.037, abs=5e-4)
    assert math.sqrt(0.01 * 0.99) > 2.6 * closed  # what the limit of large groups would say
    assert total(0.9) == pytest.approx(total(0.1))
    assert total(0.5) == pytest.approx(0.4835, abs=5e-5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kept_tokens_as_a_divisor_turn_the_expected_step(seed):
    theta = TREE.random_logits(seed).requires_grad_()
    chance = TREE.probs(theta).detach()
    right = torch.tensor([TREE.text(k).count("a") == 1 for k in range(len(TREE))]).double()
    truth = TREE.policy_gradient(theta, right)
    by_completions, by_tokens = torch.zeros(15).double(), torch.zeros(15).double()
    for pair in itertools.product(range(15), repeat=2):
        kept = [k for k in pair if right[k]]
        both = chance[list(pair)].prod()
        for k in kept:
            by_completions[k] += both / len(kept)
            by_tokens[k] += both / sum(TREE.lengths[j].item() for j in kept)
    assert cosine(gradient(by_completions, theta), truth) == pytest.approx(1.0, abs=1e-9)
    assert cosine(gradient(by_tokens, theta), truth) < 0.998


def test_a_class_that_holds_the_data_may_still_stand_still():
    def log_likelihood_slope(at, data):
        t = torch.tensor(float(at), dtype=torch.float64, requires_grad=True)
        p = torch.sigmoid(t**3 - 3 * t)
        value = data * p.log() + (1 - data) * (1 - p).log()
        return torch.autograd.grad(value, t)[0].item(), p.item()

    data = log_likelihood_slope(2.0, 0.5)[1]  # representable: the policy at t = 2
    slope, p = log_likelihood_slope(1.0, data)
    assert slope == 0.0
    assert abs(p - data) > 0.7
    assert log_likelihood_slope(2.0, data)[0] == pytest.approx(0.0, abs=1e-12)


def test_raw_rewards_by_a_coin_push_on_length_under_a_token_mean():
    for seed in (0, 1):
        theta = TREE.random_logits(seed).requires_grad_()
        chance = TREE.probs(theta).detach()
        summed = gradient(0.5 * chance, theta)
        averaged = gradient(0.5 * chance / TREE.lengths, theta)
        by_length = TREE.grad((0.5 * TREE.probs(theta) / TREE.lengths).sum(), theta)
        assert summed.norm() < 1e-12
        torch.testing.assert_close(averaged, by_length)
        assert averaged.norm() > 0.01


@pytest.mark.parametrize("divisor", ["tokens of the prompt's group", "tokens of the batch", "constant"])
def test_the_filter_turns_nothing_with_a_divisor_of_one_prompt(divisor):
    """Two prompts of different lengths, groups of two, batches of two groups: with the filter and without."""
    thetas = [TREE.random_logits(0).requires_grad_(), (3 * TREE.random_logits(1)).requires_grad_()]
    right = torch.tensor([TREE.text(k).count("a") == 1 for k in range(len(TREE))]).double()
    long = torch.tensor([TREE.text(k).startswith("b") for k in range(len(TREE))]).double()
    rewards, chances = [right, long], [TREE.probs(theta).detach() for theta in thetas]
    groups = list(itertools.product(range(15), repeat=2))
    alike = []  # of each prompt: (chance of the group, its completions, tokens, advantages)
    for reward, chance in zip(rewards, chances, strict=True):
        alike.append(
            [(chance[a] * chance[b], (a, b), TREE.lengths[[a, b]].sum().item(), _z(reward, a, b)) for a, b in groups]
        )

    def step(filtered):
        """Expected step of each prompt's policy when batches hold one group of either prompt, drawn by lot."""
        kept = [[g for g in one if not filtered or g[3][0] != 0] for one in alike]
        pool = [(q, g, g[0].item() / 2) for q in (0, 1) for g in kept[q]]
        whole = sum(chance for *_, chance in pool)
        by_tokens = {}  # the other group's law of tokens
        for _, (_, _, tokens, _), chance in pool:
            by_tokens[tokens] = by_tokens.get(tokens, 0.0) + chance / whole
        found = []
        for q, theta in enumerate(thetas):
            weight = torch.zeros(15, dtype=torch.float64)
            for own, (_, pair, tokens, (first, second)), chance in pool:
                if own != q:
                    continue
                if divisor == "constant":
                    scale = 1.0
                elif divisor == "tokens of the batch":
                    scale = sum(p / (tokens + other) for other, p in by_tokens.items())
                else:
                    scale = 1 / tokens
                weight[pair[0]] += chance / whole * first * scale
                weight[pair[1]] += chance / whole * second * scale
            found.append(gradient(weight, theta).flatten())
        return torch.cat(found)

    turned = 1 - cosine(step(filtered=False), step(filtered=True))
    if divisor == "tokens of the batch":
        assert 1e-12 < turned < 1e-2
    else:
        assert turned < 1e-12


def _z(reward, a, b):
    gap = (reward[a] - reward[b]).item() / 2
    return (0.0, 0.0) if gap == 0 else (math.copysign(1.0, gap), -math.copysign(1.0, gap))


def test_noise_shortens_the_mean_of_a_clipped_step():
    generator = torch.Generator().manual_seed(0)
    mean = torch.zeros(50, dtype=torch.float64)
    mean[0] = 2.0
    lengths = []
    for noise in (0.1, 0.5, 1.0):
        drawn = mean + noise * torch.randn(4000, 50, generator=generator, dtype=torch.float64)
        clipped = drawn / drawn.norm(dim=1, keepdim=True).clamp(min=1.0)
        assert drawn.mean(0)[0] == pytest.approx(2.0, abs=0.06)  # the same mean before the clip
        lengths.append(clipped.mean(0)[0].item())
    assert lengths[0] > 1.2 * lengths[1] * 0.9 > lengths[2] * 1.2


def test_a_critic_with_lambda_1_is_level_at_another_step():
    rates = [0.125 * 2 ** (k / 2) for k in range(11)]

    def above_the_group(way):
        scores = at_chosen_rate(train_chain(way, range(200, 220), rates))[0].double()
        d = scores - group
        return (d.mean() / d.std() * 20**0.5).item()

    group = at_chosen_rate(train_chain(Way(subtract="mean"), range(200, 220), rates))[0].double()
    assert above_the_group(Way(1.0, "critic")) < -2.09  # at the step of the chapter
    assert abs(above_the_group(Way(1.0, "critic", critic_step=1.0))) < 2.09
    assert above_the_group(Way(0.8, "critic", critic_step=1.0)) > 2.09


def test_the_value_usually_has_less_than_twice_the_least_noise_of_a_potential():
    pay = torch.rand(len(TREE), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    at = torch.nn.functional.one_hot(TREE.node, len(TREE.prefixes)).double()

    def noise_over_the_least(seed):
        """The noise of one sample, reward minus a number of each prefix: with the value, and with 0."""
        theta = TREE.random_logits(seed)
        chance, p = TREE.probs(theta), TREE.logp(theta).exp()  # [15], [15, 3]: p of the token
        same = theta.softmax(-1).square().sum(-1)[TREE.node]  # sum of the squared probabilities
        square = (1 - 2 * p + same) * TREE.mask  # length of the score, squared
        weigh = chance[:, None] * square

        def mean_reward(weight):  # of the completions through each prefix
            mass = torch.einsum("kt,ktn->n", weight, at)
            return torch.einsum("kt,k,ktn->n", weight, pay, at) / mass.clamp(min=1e-300)

        value = mean_reward(chance[:, None] * TREE.mask)
        gradient = TREE.policy_gradient(theta.requires_grad_(), pay).square().sum()
        least, of_value, none = (
            (weigh * (pay[:, None] - b[TREE.node]) ** 2).sum() - gradient
            for b in (mean_reward(weigh), value, torch.zeros_like(value))
        )
        return (of_value / least).item(), (none / least).item()

    found = [noise_over_the_least(seed) for seed in range(60)]
    assert found[0] == pytest.approx((1.09, 5.45), abs=5e-3)  # as the chapter prints it
    of_value, none = zip(*found, strict=True)
    assert min(of_value) >= 1
    assert sum(x < 2 for x in of_value) == 58
    assert f"{max(of_value):.1f}" == "4.6"
    assert min(none) > 3
    assert max(none) < 13
    assert all(nothing > with_value for with_value, nothing in found)
