"""PPO's whole loop: a step written out by hand, the two critics, the adaptive KL penalty, the early stop."""

import copy
import dataclasses
import math
import zlib

import pytest
import torch

from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, KL, Batch, contrib, prepare
from rlhf_minimal import train as loop
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages, kl
from rlhf_minimal.kl_control import kl_coefficient, next_factor, with_kl_factor
from rlhf_minimal.metrics import NONDETERMINISTIC, UpdateStats, sequence_kl
from rlhf_minimal.models import (
    Critic,
    Vocabulary,
    critic_values,
    policy_logits,
    policy_logits_and_values,
    tiny_llama,
)
from rlhf_minimal.reward_scaling import RunningScores, scale_rewards
from rlhf_minimal.runs import resume_learner, save_learner
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, collect, prepare_batch, train, train_step, update
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

EVEN = get_task("even")
PPO = ALGORITHMS["ppo"]
SMALL = Config(steps=3, prompts=4, group_size=4, lr=1e-3, value_lr=1e-3)
TREE = Tree(vocab=3, length=3)


def vowels_of_numbers(completions, **columns):
    """A reward with many values, so that no two rows are alike."""
    return [0.3 * len(text) + 0.1 * sum(map(int, filter(str.isdigit, text))) - 0.5 for text in completions]


def begin(config=SMALL, algorithm=PPO, reward=vowels_of_numbers):
    vocabulary = Vocabulary(EVEN.alphabet)
    policy = tiny_llama(len(vocabulary), width=16, layers=1, heads=2)
    return Learner.begin(policy, vocabulary, algorithm, config), Recipe(algorithm, EVEN, config, reward)


def disturb(module, scale=0.05, seed=3):
    """Moves a model away from where it began, so that nothing is zero or one by accident."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()


def numbers(history):
    return [{name: value for name, value in metrics.items() if name not in NONDETERMINISTIC} for metrics in history]


# --- a step by hand ------------------------------------------------------------------------------------------------


class ByHand:
    """PPO for one rollout with loops, one sequence at a time and no padding; imports nothing of the library's losses.

    Rewards: beta (log ref - log old) on every token, the score on the last one. GAE(1, .95), advantages whitened over
    all tokens. Clip .2 on the ratio, mean over a response's tokens, then over responses; value loss 1/2 (V - R)^2 with
    the clip of the code that everybody copied, mean over tokens. The gradient's norm is clipped, then Adam.
    """

    def __init__(self, learner, config):
        self.policy, self.start = copy.deepcopy(learner.policy), copy.deepcopy(learner.start)
        head = learner.critic.head
        self.weight, self.bias = (x.detach().clone().requires_grad_() for x in (head.weight[0], head.bias[0]))
        self.shared = learner.critic.shared
        self.body = self.policy.model if self.shared else copy.deepcopy(learner.critic.body)
        self.config = config
        self.moments = {}

    def read(self, prompt, answer, model=None):
        """Log-probs [T] of the answer and values [T] before each of its tokens."""
        logits = (model or self.policy)(torch.tensor([prompt + answer])).logits[0]
        hidden = self.body(torch.tensor([prompt + answer])).last_hidden_state[0]
        logp, values = [], []
        for t, token in enumerate(answer):
            before = len(prompt) + t - 1
            logp.append(logits[before, token] - torch.log(torch.exp(logits[before]).sum()))
            values.append((hidden[before] * self.weight).sum() + self.bias)
        return logp, values

    def targets(self, rows, scores, old, beta):
        """Whitened advantages and returns, a dictionary {(row, t): number} each."""
        A, R = {}, {}
        for i, (prompt, answer) in enumerate(rows):
            ref = [x.item() for x in self.read(prompt, answer, self.start)[0]]
            rewards = [-beta * (p - q) for p, q in zip(old[i][0], ref, strict=True)]
            rewards[-1] += scores[i]
            following, V = 0.0, [*old[i][1], 0.0]
            for t in reversed(range(len(answer))):
                following = rewards[t] + V[t + 1] - V[t] + 0.95 * following
                A[i, t], R[i, t] = following, following + V[t]
        mean = sum(A.values()) / len(A)
        std = math.sqrt(sum((a - mean) ** 2 for a in A.values()) / (len(A) - 1) + 1e-8)
        return {key: (a - mean) / std for key, a in A.items()}, R

    def losses(self, rows, chosen, old, A, R):
        policy_loss = value_loss = 0.0
        tokens = sum(len(rows[i][1]) for i in chosen)
        for i in chosen:
            logp, values = self.read(*rows[i])
            for t in range(len(logp)):
                ratio = torch.exp(logp[t] - old[i][0][t])
                worse = torch.minimum(ratio * A[i, t], ratio.clamp(0.8, 1.2) * A[i, t])
                policy_loss = policy_loss - worse / len(logp) / len(chosen)
                error, clip = (values[t] - R[i, t]) ** 2, self.config.value_clip
                if clip is not None:
                    near = old[i][1][t] + (values[t] - old[i][1][t]).clamp(-clip, clip)
                    error = torch.maximum(error, (near - R[i, t]) ** 2)
                value_loss = value_loss + 0.5 * error / tokens
        return policy_loss, value_loss

    def adam(self, name, parameters, loss, lr):
        """Kingma and Ba's algorithm 1, after a clip of the gradient's norm."""
        gradients = torch.autograd.grad(loss, parameters)
        norm = math.sqrt(sum((g**2).sum().item() for g in gradients))
        first, second, t = self.moments.get(name, ([0.0] * len(parameters), [0.0] * len(parameters), 0))
        t += 1
        for k, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            gradient = gradient * min(1.0, self.config.grad_clip / (norm + 1e-6))
            first[k] = 0.9 * first[k] + 0.1 * gradient
            second[k] = 0.999 * second[k] + 0.001 * gradient**2
            m, v = first[k] / (1 - 0.9**t), second[k] / (1 - 0.999**t)
            with torch.no_grad():
                parameter -= lr * m / (v.sqrt() + self.config.adam_eps)
        self.moments[name] = first, second, t

    def step(self, rows, scores, orders, beta=0.02):
        with torch.no_grad():
            old = [[[x.item() for x in half] for half in self.read(*row)] for row in rows]
            A, R = self.targets(rows, scores, old, beta)
        policy, head = list(self.policy.parameters()), [self.weight, self.bias]
        for chosen in orders:
            policy_loss, value_loss = self.losses(rows, chosen, old, A, R)
            if self.shared:
                self.adam("both", policy + head, policy_loss + self.config.value_coef * value_loss, self.config.lr)
            else:
                # Both gradients belong to the weights before the step: two networks, so the order does not matter.
                self.adam("policy", policy, policy_loss, self.config.lr)
                self.adam("critic", list(self.body.parameters()) + head, value_loss, self.config.value_lr)


@pytest.mark.parametrize("critic", ["separate", "shared"])
@pytest.mark.parametrize("value_clip", [None, 0.02])
def test_the_whole_update_is_the_one_written_by_hand(critic, value_clip):
    """Two epochs of three minibatches. Adam's epsilon is large, else its first step is a sign and rounding decides."""
    config = dataclasses.replace(
        SMALL, critic=critic, value_clip=value_clip, epochs=2, minibatches=3, adam_eps=1e-3, value_coef=0.3
    )
    config = dataclasses.replace(config, value_head_init="normal", lr=3e-3, value_lr=5e-3, micro_batches=2)
    learner, recipe = begin(config)
    disturb(learner.policy)  # away from the reference
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    assert groups.truncated.any()
    assert not groups.truncated.all()  # rows that end and rows that do not; the end token's id is the padding's

    by_hand = ByHand(learner, config)
    rows = []
    for i in range(16):
        prompt = groups.prompts[i][groups.prompt_mask[i] == 1].tolist()
        ids = groups.completions[i].tolist()
        rows.append((prompt, ids[: ids.index(0) + 1] if 0 in ids else ids))
    shuffle = torch.Generator().manual_seed(zlib.crc32(b"shuffle/0/1"))
    orders = [part.tolist() for _ in range(2) for part in torch.randperm(16, generator=shuffle).tensor_split(3)]
    by_hand.step(rows, vowels_of_numbers(groups.texts), orders)

    before = weights(learner.policy), weights(learner.critic)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    update(learner, recipe, groups, batch, step=1)
    head = torch.cat([by_hand.weight, by_hand.bias[None]]).detach()
    critic_by_hand = head if by_hand.shared else torch.cat([weights(by_hand.body), head])
    for name, mine, theirs, old in (
        ("policy", weights(by_hand.policy), weights(learner.policy), before[0]),
        ("critic", critic_by_hand, weights(learner.critic), before[1]),
    ):
        assert (theirs - old).abs().max() > 3e-3, name
        torch.testing.assert_close(theirs, mine, rtol=1e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}")


# --- the KL in the reward, and the distances that are logged, against exact ones -----------------------------------


def tree_batch(pi, ref, **cells):
    logp = TREE.logp(pi)
    zeros = torch.zeros(len(TREE), dtype=torch.float64)
    return Batch(logp, logp, TREE.mask, cells.pop("rewards", zeros), 1, ref_logp=TREE.logp(ref), **cells)


@pytest.mark.parametrize(("estimator", "exact"), [("k1", True), ("k3", True), ("k2", False)])
def test_the_expected_return_is_the_reward_minus_beta_times_the_exact_kl(estimator, exact):
    pi, ref = TREE.random_logits(0), TREE.random_logits(1)
    R = torch.randn(len(TREE), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    row = dataclasses.replace(
        PPO, kl=(KL(0.3, estimator, place="reward"),), advantage=advantages.returns_to_go, normalize=None
    )
    returns = prepare(row, tree_batch(pi, ref, rewards=R)).advantages[:, 0]  # from the first token on
    expected = TREE.expect(pi, R) - 0.3 * TREE.kl(pi, ref)
    distance = (TREE.expect(pi, returns) - expected).abs()
    assert (distance < 1e-12) == exact
    assert exact or distance > 0.05


def sample_of(pi, n=20_000, seed=0):
    return torch.multinomial(TREE.probs(pi), n, replacement=True, generator=torch.Generator().manual_seed(seed))


def test_the_kl_of_whole_completions_is_the_exact_one():
    """Every response once, weighted by drawing each in proportion, and by enumeration."""
    pi, ref = TREE.random_logits(0), TREE.random_logits(1)
    logp, other = TREE.logp(pi), TREE.logp(ref)
    exact = TREE.kl(pi, ref)
    assert TREE.expect(pi, kl.k1(logp, other)) == pytest.approx(exact.item(), rel=1e-12)
    drawn = sample_of(pi)
    estimate = sequence_kl(logp[drawn], other[drawn], TREE.mask[drawn])
    assert estimate == pytest.approx(exact.item(), rel=0.03)
    masked = torch.cat([TREE.mask[drawn], torch.zeros(100, 3, dtype=torch.float64)])  # rows that a filter dropped
    nothing = torch.full((100, 3), math.nan, dtype=torch.float64)
    parts = (torch.cat([x[drawn], nothing]) for x in (logp, other))
    assert sequence_kl(*parts, masked) == pytest.approx(estimate, rel=1e-12)


def spread(pi, f):
    f = torch.where(TREE.mask.bool(), f, 0.0).sum(1)
    mean = TREE.expect(pi, f)
    return (TREE.expect(pi, (f - mean) ** 2)).sqrt().item()


def test_k3_is_the_quiet_estimator_near_the_sampler_and_k1_far_from_it():
    """Why the early stop reads k3 and the distance from the reference k1: exact standard deviations of one sample."""
    old = TREE.random_logits(0)
    near = old + 0.05 * TREE.random_logits(1)
    far = 6 * TREE.random_logits(4)
    at = TREE.logp(old)
    assert spread(old, kl.k3(at, TREE.logp(near))) < 0.1 * spread(old, kl.k1(at, TREE.logp(near)))
    assert spread(far, kl.k3(TREE.logp(far), at)) > 3 * spread(far, kl.k1(TREE.logp(far), at))


def test_the_approximate_kl_is_that_of_the_sampler_against_the_policy():
    """What the loop compares with target_kl, on every response weighted by the sampler's probability of it."""
    old, new = TREE.random_logits(0), TREE.random_logits(0) + 0.5 * TREE.random_logits(1)
    probability, total, tokens = TREE.probs(old), 0.0, 0.0
    for n in range(len(TREE)):
        row = torch.tensor([n])
        batch = Batch(
            TREE.logp(new)[row], TREE.logp(old)[row], TREE.mask[row], torch.zeros(1), 1, advantages=torch.ones(1)
        )
        stats = UpdateStats()
        stats.add_tokens(ALGORITHMS["grpo"], batch, torch.zeros(1, 3), batch.mask)
        total += probability[n].item() * stats.end_minibatch() * TREE.lengths[n].item()
        tokens += probability[n].item() * TREE.lengths[n].item()
    exact = TREE.kl(old, new).item()
    assert total == pytest.approx(exact, rel=1e-9)
    assert abs(exact - TREE.kl(new, old).item()) > 1e-3  # and not the other direction
    drawn = sample_of(old)
    logp, old_logp, mask = (x[drawn] for x in (TREE.logp(new), TREE.logp(old), TREE.mask))
    stats = UpdateStats()
    for part in torch.arange(len(drawn)).tensor_split(3):  # micro-batches of one minibatch
        batch = Batch(
            logp[part], old_logp[part], mask[part], torch.zeros(len(part)), 1, advantages=torch.ones(len(part))
        )
        stats.add_tokens(ALGORITHMS["grpo"], batch, torch.zeros_like(logp[part]), batch.mask)
    assert stats.end_minibatch() == pytest.approx(exact / tokens, rel=0.05)


# --- early stop ----------------------------------------------------------------------------------------------------


def test_the_updates_end_at_the_minibatch_that_has_gone_too_far():
    """A bound between two minibatches' distances stops at the later one, and its update is not made."""
    config = dataclasses.replace(SMALL, epochs=3, minibatches=2, lr=5e-3)
    distances, states, critics = [], [], []
    learner, recipe = begin(config)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    look, take = UpdateStats.end_minibatch, loop.step_optimizer

    def noted(watch):
        states.append(weights(learner.policy))
        distances.append(look(watch))
        return distances[-1]

    def noted_critic(optimizer, *args):
        if optimizer is learner.critic_optimizer:
            critics.append(weights(learner.critic))
        return take(optimizer, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UpdateStats, "end_minibatch", noted)
        patch.setattr(loop, "step_optimizer", noted_critic)
        whole = update(learner, recipe, groups, batch, step=1)
    assert "early_stop" not in whole  # nobody asked
    assert whole["approx_kl"] == distances[-1]
    assert distances[0] == pytest.approx(0, abs=1e-9)
    assert len(distances) == len(critics) == 6
    for stop in range(2, 7):
        bound = distances[stop - 1] * 0.999
        if bound < max(distances[: stop - 1]):
            continue
        learner, recipe = begin(dataclasses.replace(config, target_kl=bound))
        found = update(learner, recipe, groups, batch, step=1)
        assert found["early_stop"] == stop
        assert found["approx_kl"] == distances[stop - 1]
        assert torch.equal(weights(learner.policy), states[stop - 1])
        assert torch.equal(weights(learner.critic), critics[stop - 1])
        assert all(p.grad is None for m in (learner.policy, learner.critic) for p in m.parameters())
    learner, recipe = begin(dataclasses.replace(config, target_kl=1e3))
    assert update(learner, recipe, groups, batch, step=1) == whole | {"early_stop": 0}


# --- the critic ----------------------------------------------------------------------------------------------------

IDS = (torch.tensor([[0, 3], [4, 5]]), torch.tensor([[0, 1], [1, 1]]), torch.tensor([[1, 2, 0], [6, 0, 0]]))


def test_a_shared_trunk_is_read_in_one_pass_and_owns_no_weight_of_the_policy():
    policy = tiny_llama(7, width=16, layers=2, heads=2)
    critic = Critic(policy, shared=True, init="normal")
    logits, values = policy_logits_and_values(policy, critic, *IDS)
    torch.testing.assert_close(logits, policy_logits(policy, *IDS))
    torch.testing.assert_close(values, critic_values(critic, *IDS))
    assert set(critic.state_dict()) == {"head.weight", "head.bias"}
    values.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in policy.model.layers.parameters())
    with pytest.raises(ValueError, match="a body of its own"):
        policy_logits_and_values(policy, Critic(policy), *IDS)


def test_a_separate_critic_does_not_follow_the_policy_and_a_shared_one_does():
    for shared in (False, True):
        policy = tiny_llama(7, width=16, layers=1, heads=2)
        critic = Critic(policy, shared=shared, init="orthogonal")
        before = critic_values(critic, *IDS).detach()
        disturb(policy)
        assert torch.equal(before, critic_values(critic, *IDS)) == (not shared)


def test_how_a_head_begins():
    policy = tiny_llama(7, width=256, layers=1, heads=2)
    state = torch.random.get_rng_state()
    zero, normal, orthogonal = (Critic(policy, init=init, seed=1).head for init in ("zero", "normal", "orthogonal"))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not zero.weight.any()
    assert normal.weight.std().item() == pytest.approx(257**-0.5, rel=0.15)
    assert orthogonal.weight.norm().item() == pytest.approx(1, abs=1e-5)
    assert not any(head.bias.any() for head in (zero, normal, orthogonal))
    assert torch.equal(normal.weight, Critic(policy, init="normal", seed=1).head.weight)
    assert not torch.equal(normal.weight, Critic(policy, init="normal", seed=2).head.weight)
    with pytest.raises(ValueError, match="zero, normal, orthogonal; got 'xavier'"):
        Critic(policy, init="xavier")


def test_a_shared_trunk_learns_and_its_value_loss_moves_the_policy():
    ends = []
    for value_coef in (1e-9, 1.0):
        learner, recipe = begin(dataclasses.replace(SMALL, critic="shared", value_coef=value_coef))
        assert learner.critic_optimizer is None
        train(learner, recipe)
        ends.append(weights(learner.policy))
    assert not torch.allclose(*ends, atol=1e-4)
    config = Config(steps=20, prompts=16, group_size=8, lr=3e-3, critic="shared")
    learner, recipe = begin(config, reward=None)
    history = train(learner, recipe)
    first, last = (sum(metrics["reward"] for metrics in part) / 5 for part in (history[:5], history[-5:]))
    assert last > first + 0.2  # from .42 to .74; a critic of its own reaches .75
    assert history[-1]["value_loss"] < history[0]["value_loss"]


def test_the_random_head_is_that_of_the_runs_seed():
    heads = [
        begin(dataclasses.replace(SMALL, value_head_init="normal", seed=seed))[0].critic.head.weight
        for seed in (0, 0, 1)
    ]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


# --- the KL penalty --------------------------------------------------------------------------------------------------


def test_the_controller_is_that_of_ziegler_et_al():
    config = Config(kl_control="adaptive", kl_control_target=6.0, kl_control_horizon=10_000)
    for distance, error in [(6.0, 0.0), (6.6, 0.1), (5.4, -0.1), (60.0, 0.2), (0.0, -0.2), (-1.0, -0.2)]:
        assert next_factor(0.5, distance, 512, config) == pytest.approx(0.5 * (1 + error * 512 / 10_000))
    assert next_factor(0.5, 60.0, 512, Config()) == 0.5  # fixed
    whole, halves = next_factor(1.0, 60.0, 512, config), 1.0
    for _ in range(2):
        halves = next_factor(halves, 60.0, 256, config)
    assert halves == pytest.approx(whole, rel=1e-3)  # the horizon counts completions, however they are cut


def test_only_terms_against_the_reference_are_with_kl_factor():
    row = dataclasses.replace(PPO, kl=(KL(0.1, "k1", place="reward"), KL(0.2, "k2", against="old"), KL(0.3, "k3")))
    assert [term.coef for term in with_kl_factor(row, 2.0).kl] == [0.2, 0.2, 0.6]
    assert kl_coefficient(row) == pytest.approx(0.4)
    assert kl_coefficient(dataclasses.replace(PPO, kl=())) == 0


def test_an_adaptive_coefficient_is_what_the_step_trains_with():
    """Each step's coefficient follows from the distance that the step before measured, and enters its returns."""
    config = dataclasses.replace(
        SMALL, steps=6, lr=5e-3, kl_control="adaptive", kl_control_target=0.02, kl_control_horizon=32
    )
    learner, recipe = begin(config)
    history = train(learner, recipe)
    coefficient = 0.02
    for metrics in history:
        assert metrics["kl_coef"] == pytest.approx(coefficient, rel=1e-9)
        error = min(max(metrics["kl_sequence"] / 0.02 - 1, -0.2), 0.2)
        coefficient *= 1 + error * 16 / 32
    assert history[0]["kl_sequence"] == pytest.approx(0, abs=1e-5)
    assert history[1]["kl_coef"] < 0.02 < history[-1]["kl_coef"]
    assert learner.kl_factor == pytest.approx(coefficient / 0.02)

    fixed = dataclasses.replace(config, kl_control="fixed")
    stronger = dataclasses.replace(PPO, kl=(KL(0.02 * 30, "k1", place="reward"),))
    ends = []
    for setting, row, factor in ((config, PPO, 30.0), (fixed, stronger, 1.0)):
        learner, recipe = begin(setting, row)
        disturb(learner.policy)
        learner.kl_factor = factor
        train_step(learner, recipe)
        ends.append(weights(learner.policy))
    torch.testing.assert_close(*ends)


def test_the_controller_holds_the_distance_at_its_target():
    """On exact gradients of E[R] - beta KL: where a fixed beta ends depends on beta, where a controller ends does not.

    It overshoots on the way, since it goes on lowering the coefficient for as long as the distance is below the target.
    """
    ref, R = TREE.random_logits(0), 3 * torch.randn(len(TREE), generator=torch.Generator().manual_seed(7)).double()
    config = Config(kl_control="adaptive", kl_control_target=0.5, kl_control_horizon=10_000)
    ends = {}
    for beta in (0.3, 3.0):
        for adaptive in (False, True):
            theta, factor, distances = ref.clone().requires_grad_(), 1.0, []
            for _ in range(900):
                distance = TREE.kl(theta, ref)
                (gradient,) = torch.autograd.grad(TREE.expect(theta, R) - beta * factor * distance, theta)
                theta = (theta + 0.3 * gradient).detach().requires_grad_()
                distances.append(distance.item())
                if adaptive:
                    factor = next_factor(factor, distances[-1], 512, config)
            ends[beta, adaptive] = distances[-1], max(distances)
    assert ends[0.3, False][0] > 1
    assert ends[3.0, False][0] < 0.25
    for beta in (0.3, 3.0):
        assert ends[beta, True][0] == pytest.approx(0.5, abs=0.02)
        assert ends[beta, True][1] > 0.52


# --- scores --------------------------------------------------------------------------------------------------------


def test_running_scores_are_those_of_everything_seen():
    generator = torch.Generator().manual_seed(0)
    batches = [3 + 2 * torch.randn(n, generator=generator) for n in (1, 7, 3)]
    seen = RunningScores()
    for n, batch in enumerate(batches, start=1):
        seen.add(batch)
        everything = torch.cat(batches[:n]).double()
        assert seen.mean == pytest.approx(everything.mean().item(), rel=1e-12)
        assert seen.std == (pytest.approx(everything.std().item(), rel=1e-12) if n > 1 else 0)


def test_what_becomes_of_a_score():
    rewards, truncated = torch.tensor([2.0, 4.0, 9.0]), torch.tensor([False, True, False])
    seen = RunningScores()
    seen.add(torch.tensor([1.0, 3.0]))

    def treated(**settings):
        return scale_rewards(rewards, truncated, seen, Config(**settings)).tolist()

    assert scale_rewards(rewards, truncated, seen, Config()) is rewards
    mean, std = 5.0, math.sqrt((9 + 1 + 16) / 2)
    assert treated(score_scaling="batch") == pytest.approx([(r - mean) / std for r in (2, 4, 9)])
    assert treated(score_scaling="running") == pytest.approx([(r - 2) / math.sqrt(2) for r in (2, 4, 9)])
    assert treated(score_clip=4.5) == [2, 4, 4.5]
    assert treated(missing_eos_penalty=1.0) == [2, 3, 9]
    # in this order: scaled, clipped, and the penalty behind the clip
    everything = treated(score_scaling="running", score_clip=1.5, missing_eos_penalty=1.0)
    assert everything == pytest.approx([0, math.sqrt(2) - 1, 1.5])
    flat = torch.full((3,), 7.0)
    assert scale_rewards(flat, truncated, seen, Config(score_scaling="batch")).tolist() == [0, 0, 0]


def test_scores_are_changed_before_they_are_trained_for_and_after_they_are_logged():
    learner, recipe = begin(dataclasses.replace(SMALL, score_scaling="batch", missing_eos_penalty=2.0))
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    standard = (groups.rewards - groups.rewards.mean()) / groups.rewards.std()
    torch.testing.assert_close(batch.rewards, standard - 2.0 * groups.truncated)
    metrics = train_step(learner, recipe)
    assert metrics["reward"] == pytest.approx(groups.rewards.mean().item())
    assert metrics["trained_reward"] == pytest.approx(batch.rewards.mean().item())
    assert metrics["gold"] == pytest.approx(groups.correct.mean().item())
    assert metrics["gold"] != metrics["reward"]
    # what is remembered for "running" is the scores as they were given, once each
    assert learner.scores.count == 16
    assert learner.scores.mean == pytest.approx(groups.rewards.mean().item())
    learner, recipe = begin(dataclasses.replace(SMALL, score_scaling="running"))
    given = [train_step(learner, recipe)["reward"] for _ in range(2)]
    assert (learner.scores.count, learner.scores.mean) == (32, pytest.approx(sum(given) / 2))


def test_a_score_stands_on_the_last_real_token_though_padding_is_the_same_id():
    """The end token is trained on and paid; the padding behind it, of the same id, is neither."""
    learner, recipe = begin(algorithm=dataclasses.replace(PPO, kl=(), normalize=None), reward=None)
    recipe = dataclasses.replace(recipe, reward=lambda completions, **columns: [5.0] * len(completions))
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    assert learner.vocabulary.eos_id == learner.vocabulary.pad_id == 0
    for i in range(16):
        ids = groups.completions[i].tolist()
        end = ids.index(0) if 0 in ids else len(ids) - 1  # the first end token, or where the budget ran out
        assert batch.mask[i].tolist() == [1.0] * (end + 1) + [0.0] * (len(ids) - end - 1)
        # a critic of zeros: GAE is lambda to the power of the distance from the score
        expected = [5.0 * 0.95 ** (end - t) if t <= end else 0.0 for t in range(len(ids))]
        assert (batch.returns[i] * batch.mask[i]).tolist() == pytest.approx(expected)


def test_whitened_advantages_do_not_feel_the_scale_of_rewards_and_values():
    """Why there is no switch for whitening token rewards: it divides all of them by one number."""
    generator = torch.Generator().manual_seed(0)
    logp, ref_logp, values = (torch.randn(4, 5, generator=generator, dtype=torch.float64) for _ in range(3))
    rewards, mask = torch.randn(4, generator=generator, dtype=torch.float64), torch.ones(4, 5)
    found = []
    for scale in (1.0, 0.1):
        row = dataclasses.replace(PPO, kl=(KL(0.5 * scale, "k1", place="reward"),))
        batch = Batch(logp, logp, mask, scale * rewards, 1, ref_logp=ref_logp, values=scale * values)
        found.append(prepare(row, batch))
    torch.testing.assert_close(found[0].advantages, found[1].advantages, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(0.1 * found[0].returns, found[1].returns)


# --- other switches ------------------------------------------------------------------------------------------------


def test_adam_epsilon_reaches_every_optimiser():
    for critic, optimizers in (("separate", 2), ("shared", 1)):
        learner, _ = begin(dataclasses.replace(SMALL, critic=critic, adam_eps=1e-5))
        found = [one for one in (learner.optimizer, learner.critic_optimizer) if one is not None]
        assert [one.defaults["eps"] for one in found] == [1e-5] * optimizers
    assert begin()[0].optimizer.defaults["eps"] == torch.optim.AdamW([torch.zeros(1)]).defaults["eps"]


RESUMED = [
    {"critic": "shared", "value_head_init": "normal", "epochs": 2, "minibatches": 2},
    {"value_head_init": "orthogonal", "kl_control": "adaptive", "kl_control_target": 0.01, "kl_control_horizon": 16},
    {"score_scaling": "running", "score_clip": 1.5, "missing_eos_penalty": 1.0},
    {"critic": "shared", "epochs": 2, "minibatches": 2, "target_kl": 1e-3, "adam_eps": 1e-5, "value_clip": 0.2},
    {"value_warm_up": 4, "value_epochs": 2, "value_minibatches": 3, "value_layers": 2, "value_width": 32},
]


@pytest.mark.parametrize("options", RESUMED)
def test_a_resumed_run_repeats_the_uninterrupted_one_bit_for_bit(tmp_path, options):
    config = dataclasses.replace(SMALL, steps=6, lr=3e-3, **options)
    learner, recipe = begin(config)
    whole = train(learner, recipe)
    ends = weights(learner.policy), weights(learner.critic)
    learner, recipe = begin(config)
    first = train(learner, recipe, lambda metrics: metrics["step"] < 3)
    save_learner(learner, tmp_path / "checkpoint", {})
    resumed = resume_learner(tmp_path / "checkpoint", recipe.algorithm, recipe.config, "cpu")
    assert (resumed.kl_factor, resumed.scores) == (learner.kl_factor, learner.scores)
    second = train(resumed, recipe)
    assert numbers(first + second) == numbers(whole)
    assert torch.equal(weights(resumed.policy), ends[0])
    assert torch.equal(weights(resumed.critic), ends[1])


def test_one_kind_of_critic_does_not_resume_the_other(tmp_path):
    for saved, asked in (("separate", "shared"), ("shared", "separate")):
        learner, recipe = begin(dataclasses.replace(SMALL, critic=saved))
        train_step(learner, recipe)
        save_learner(learner, tmp_path / saved, {})
        with pytest.raises(ValueError, match="does not fit this algorithm and config"):
            resume_learner(tmp_path / saved, PPO, dataclasses.replace(SMALL, critic=asked), "cpu")


def test_a_checkpoint_from_before_these_switches_is_refused(tmp_path):
    import json

    learner, recipe = begin()
    train_step(learner, recipe)
    save_learner(learner, tmp_path / "checkpoint", {})
    notes = tmp_path / "checkpoint" / "trainer.json"
    old = {key: value for key, value in json.loads(notes.read_text()).items() if key not in ("kl_factor", "scores")}
    notes.write_text(json.dumps(old))
    with pytest.raises(ValueError, match="trainer.json names no kl_factor"):
        resume_learner(tmp_path / "checkpoint", PPO, SMALL, "cpu")
    del old["format"]
    notes.write_text(json.dumps(old))
    with pytest.raises(ValueError, match="older version of rlhf_minimal .*--start FOLDER"):
        resume_learner(tmp_path / "checkpoint", PPO, SMALL, "cpu")


def test_what_an_algorithm_does_not_have_cannot_be_asked_of_it():
    shared, adaptive = dataclasses.replace(SMALL, critic="shared"), dataclasses.replace(SMALL, kl_control="adaptive")
    scaled = dataclasses.replace(SMALL, score_scaling="running")
    baseline = dataclasses.replace(ALGORITHMS["reinforce"], advantage=contrib.advantages.given_baseline)
    slack = dataclasses.replace(PPO, kl=(KL(0.0, "k1", place="reward"),))
    against_old = ALGORITHMS["kimi_k2"]
    sizes = {"value_warm_up": 1, "value_epochs": 1, "value_minibatches": 1, "value_layers": 1, "value_width": 16}
    own = {name: dataclasses.replace(SMALL, **{name: number}) for name, number in sizes.items()}
    for algorithm, config, message in (
        (ALGORITHMS["grpo"], shared, "has no critic"),
        (ALGORITHMS["dapo"], adaptive, "none above 0"),
        (slack, adaptive, "none above 0"),
        (against_old, adaptive, "none above 0"),
        (baseline, scaled, "in the unit of the rewards as they are"),
        *((ALGORITHMS["grpo"], config, f"{name} is for a critic, .* such as ppo") for name, config in own.items()),
        *((PPO, dataclasses.replace(config, critic="shared"), f"{name} asks for") for name, config in own.items()),
    ):
        with pytest.raises(ValueError, match=message):
            Recipe(algorithm, EVEN, config)
        with pytest.raises(ValueError, match=message):
            begin(config, algorithm)
    Recipe(PPO, EVEN, shared)
    Recipe(ALGORITHMS["grpo"], EVEN, adaptive)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"value_coef": 0.0}, "value_coef must be above 0"),
        ({"adam_eps": 0.0}, "adam_eps must be above 0"),
        ({"target_kl": 0.0}, "target_kl must be above 0, or None"),
        ({"value_warm_up": -1}, "value_warm_up must be at least 0"),
        ({"value_epochs": 0}, "value_epochs must be at least 1, or None"),
        ({"value_minibatches": 513}, "512 completions a step cannot be cut into 513 minibatches x 1"),
        ({"value_width": 24}, "value_width must be a multiple of 16"),
        ({"score_clip": -1.0}, "score_clip must be above 0, or None"),
        ({"missing_eos_penalty": -1.0}, "missing_eos_penalty must be at least 0"),
        ({"kl_control_target": 0.0}, "kl_control_target must be above 0"),
        ({"kl_control": "adaptive", "kl_control_horizon": 102}, "above a fifth of a step's 512 completions"),
    ],
)
def test_wrong_settings_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        Config(**wrong)


# --- bad scores ----------------------------------------------------------------------------------------------------


def test_a_score_that_is_not_a_number_names_its_row_and_the_checkpoint_before_it_stays_whole(tmp_path):
    def breaks(completions, step, **columns):
        scores = vowels_of_numbers(completions)
        if step[0] == 2:
            scores[6] = math.nan
        return scores

    learner, recipe = begin(reward=breaks)
    train_step(learner, recipe)
    save_learner(learner, tmp_path / "checkpoint", {})
    before = weights(learner.policy), dataclasses.asdict(learner.scores)
    with pytest.raises(ValueError, match=r"got nan in row 7, for the prompt '\d+:' and the completion '") as error:
        train_step(learner, recipe)
    assert "\n" not in str(error.value)
    assert learner.step == 1
    assert torch.equal(weights(learner.policy), before[0])  # nothing was half done
    assert dataclasses.asdict(learner.scores) == before[1]
    assert torch.equal(weights(load_policy(tmp_path / "checkpoint")[0]), before[0])
