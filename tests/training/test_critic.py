"""A critic of its own: how it is judged, warmed up, trained more often than the policy, and of another size."""

import dataclasses
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, Batch, prepare
from rlhf_minimal.cli import main
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages
from rlhf_minimal.lab.fast import fast, plain
from rlhf_minimal.lab.trust_region import trust_region_update
from rlhf_minimal.metrics import _monte_carlo_returns, describe_batch, explained_variance
from rlhf_minimal.models import Critic, RewardModel, Vocabulary, critic_values, tiny_llama
from rlhf_minimal.runs import resume_learner, save_learner
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, collect, fit_critic, prepare_batch, train, train_step, update
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import save_policy

EVEN = get_task("even")
VOCABULARY = Vocabulary(EVEN.alphabet)
PPO = ALGORITHMS["ppo"]
SMALL = Config(steps=3, prompts=4, group_size=4, lr=1e-3, value_lr=1e-3)


def begin(algorithm=PPO, critic_start=None, **options):
    config = dataclasses.replace(SMALL, **options)
    policy = tiny_llama(len(VOCABULARY), width=16, layers=1, heads=2)
    recipe = Recipe(algorithm, EVEN, config)
    return Learner.begin(policy, VOCABULARY, algorithm, config, critic_start), recipe


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()


def steps_taken(optimizer):
    return max((int(moments["step"]) for moments in optimizer.state.values()), default=0)


# --- explained variance ------------------------------------------------------------------------------------------


def batch_of(values, rewards, mask, **more):
    logp = torch.full_like(mask, -1.0)
    return Batch(logp, logp, mask, rewards, 1, values=values, **more)


def test_a_critic_that_knows_nothing_does_not_look_good_by_agreeing_with_itself():
    """One made-up number a row, the same at every token: the bootstrapped targets are that number, too."""
    generator = torch.Generator().manual_seed(0)
    rows, length = 64, 400
    guess = (0.5 + 0.05 * torch.randn(rows, 1, generator=generator)).expand(rows, length)
    rewards = (torch.arange(rows) % 2).float()  # has nothing to do with the guess
    one_step = dataclasses.replace(PPO, advantage=partial(advantages.gae, gamma=1.0, lam=0.0), kl=())
    prepared = prepare(one_step, batch_of(guess, rewards, torch.ones(rows, length)))
    old = explained_variance(prepared.values, prepared.returns, prepared.mask)
    assert old > 0.75
    new = describe_batch(one_step, SMALL, prepared)["explained_variance"]
    assert abs(new) < 0.03


def test_the_returns_are_those_that_came_summed_by_hand():
    generator = torch.Generator().manual_seed(1)
    mask = torch.tensor([[1.0, 1, 0, 1], [1, 1, 0, 0]])
    values, ref = torch.randn(2, 2, 4, generator=generator)
    rewards = torch.tensor([2.0, -1.0])
    algorithm = dataclasses.replace(
        PPO, advantage=partial(advantages.gae, gamma=0.9, lam=0.3), kl=(KL(0.5, "k1", place="reward"),)
    )
    batch = batch_of(values, rewards, mask, ref_logp=ref)
    expected = torch.zeros(2, 4)
    for i in range(2):
        to_go, last = 0.0, max(t for t in range(4) if mask[i, t])
        for t in reversed(range(4)):
            if mask[i, t]:
                earned = -0.5 * (-1.0 - ref[i, t].item()) + (rewards[i].item() if t == last else 0.0)
                to_go = earned + 0.9 * to_go
                expected[i, t] = to_go
    for known in (batch, prepare(algorithm, batch)):
        torch.testing.assert_close(_monte_carlo_returns(algorithm, known), expected)
    at_lambda_1 = dataclasses.replace(algorithm, advantage=partial(advantages.gae, gamma=0.9, lam=1.0))
    torch.testing.assert_close(prepare(at_lambda_1, batch).returns, expected)  # the critic's targets at lambda 1
    assert not torch.allclose(prepare(algorithm, batch).returns, expected)


def test_lambda_changes_the_targets_and_not_what_the_critic_is_judged_by():
    found = []
    for lam in (0.0, 1.0):
        algorithm = dataclasses.replace(PPO, advantage=partial(advantages.gae, gamma=1.0, lam=lam))
        learner, recipe = begin(algorithm, value_head_init="normal")
        found.append(train_step(learner, recipe))
    assert found[0]["explained_variance"] == found[1]["explained_variance"] != 0
    assert found[0]["value_loss"] != found[1]["value_loss"]


# --- warm-up, epochs and minibatches --------------------------------------------------------------------------------


def test_while_the_critic_warms_up_the_policy_stays_as_it_is():
    options = {"kl_control": "adaptive", "kl_control_target": 0.01, "kl_control_horizon": 16}
    learner, recipe = begin(value_warm_up=2, **options)
    start, critic = weights(learner.policy), weights(learner.critic)
    warm = [train_step(learner, recipe) for _ in range(2)]
    assert torch.equal(weights(learner.policy), start)
    assert not torch.equal(weights(learner.critic), critic)
    assert steps_taken(learner.optimizer) == 0
    assert learner.kl_factor == 1.0  # nothing has moved that it could hold back
    assert all("value_loss" in metrics and "loss" not in metrics for metrics in warm)
    third = train_step(learner, recipe)
    assert not torch.equal(weights(learner.policy), start)
    assert {"loss", "value_loss"} <= set(third)


def test_a_warm_up_is_the_steps_critic_training_and_holds_for_a_trust_region():
    plain, recipe = begin()
    train_step(plain, recipe)
    for updater in (update, trust_region_update):
        warmed, recipe = begin(value_warm_up=1)
        start = weights(warmed.policy)
        train_step(warmed, recipe, update=updater)
        assert torch.equal(weights(warmed.critic), weights(plain.critic))
        assert torch.equal(weights(warmed.policy), start)


def test_a_warm_up_teaches_the_critic_what_the_policy_earns():
    learner, recipe = begin(value_warm_up=40, steps=40, prompts=16, group_size=8, value_lr=3e-3, value_epochs=4)
    history = train(learner, recipe)
    first, last = (sum(row["explained_variance"] for row in part) / 5 for part in (history[:5], history[-5:]))
    assert last > 0.3 > first + 0.2


def test_the_critic_has_epochs_and_minibatches_of_its_own():
    plain, recipe = begin(epochs=2, minibatches=2)
    train_step(plain, recipe)
    assert steps_taken(plain.critic_optimizer) == steps_taken(plain.optimizer) == 4
    for own, steps in (
        ({"value_epochs": 3}, 6),
        ({"value_minibatches": 4}, 8),
        ({"value_epochs": 1, "value_minibatches": 5}, 5),
    ):
        learner, recipe = begin(epochs=2, minibatches=2, **own)
        train_step(learner, recipe)
        assert steps_taken(learner.critic_optimizer) == steps
        assert steps_taken(learner.optimizer) == 4
        assert torch.equal(weights(learner.policy), weights(plain.policy))  # the critic's are no business of its


def test_an_early_stop_ends_the_critics_updates_only_where_they_are_the_policys():
    options = {"epochs": 4, "lr": 2e-2, "target_kl": 1e-6}
    for own, steps in (({}, 1), ({"value_epochs": 4}, 4)):
        learner, recipe = begin(**options, **own)
        assert train_step(learner, recipe)["early_stop"] == 2
        assert steps_taken(learner.critic_optimizer) == steps


def test_pieces_of_the_critics_minibatches_add_up():
    ends = []
    for micro_batches in (1, 3):
        learner, recipe = begin(value_head_init="normal", micro_batches=micro_batches)
        groups, _ = collect(learner.policy, VOCABULARY, recipe, step=1)
        batch, _ = prepare_batch(learner, recipe, groups, step=1)
        losses = fit_critic(learner, recipe, groups, batch, step=1)
        ends.append((losses, weights(learner.critic)))
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-5)
    torch.testing.assert_close(ends[0][1], ends[1][1], rtol=1e-3, atol=1e-5)


def test_without_a_critic_of_its_own_nothing_is_fitted():
    for algorithm, options in ((ALGORITHMS["grpo"], {}), (PPO, {"critic": "shared"})):
        learner, recipe = begin(algorithm, **options)
        groups, _ = collect(learner.policy, VOCABULARY, recipe, step=1)
        batch, _ = prepare_batch(learner, recipe, groups, step=1)
        before = weights(learner.policy)
        assert fit_critic(learner, recipe, groups, batch, step=1) == []
        assert torch.equal(weights(learner.policy), before)


# --- a body of another size, or of another model ----------------------------------------------------------------------


@pytest.mark.parametrize("how", [plain, fast, lambda recipe: recipe])
def test_a_critic_of_its_own_size_learns(how):
    learner, recipe = begin(value_layers=3, value_width=32, value_epochs=20, value_lr=3e-3)
    recipe = how(recipe)
    config = learner.critic.body.config
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (3, 32, len(VOCABULARY))
    assert config.max_position_embeddings == learner.policy.config.max_position_embeddings
    groups, _ = collect(learner.policy, VOCABULARY, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    losses = fit_critic(learner, recipe, groups, batch, step=1)
    assert losses[-1] < 0.5 * losses[0]
    assert learner.critic.head.in_features == 32


def test_one_of_the_two_sizes_takes_the_others_default():
    for options, expected in (({"value_layers": 1}, (1, 64)), ({"value_width": 32}, (2, 32))):
        config = begin(**options)[0].critic.body.config
        assert (config.num_hidden_layers, config.hidden_size) == expected


def test_a_new_body_is_that_of_the_runs_seed_and_not_the_policys():
    one, same, other = (begin(value_layers=1, value_width=16, seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(weights(one.critic), weights(same.critic))
    assert not torch.equal(weights(one.critic), weights(other.critic))


def test_the_critic_begins_with_another_models_body_and_is_resumed(tmp_path):
    made = partial(tiny_llama, len(VOCABULARY), width=32, layers=2, heads=2)
    learner, recipe = begin(critic_start=made(seed=5))
    assert torch.equal(weights(learner.critic.body), weights(made(seed=5).base_model))
    for _ in range(2):  # a head of zeros hands no gradient on in its first step
        train_step(learner, recipe)
    assert not torch.equal(weights(learner.critic.body), weights(made(seed=5).base_model))
    save_learner(learner, tmp_path / "checkpoint", {})
    again = resume_learner(tmp_path / "checkpoint", PPO, recipe.config, "cpu", made(seed=6))
    assert torch.equal(weights(again.critic), weights(learner.critic))
    ends = [train_step(one, recipe)["value_loss"] for one in (learner, again)]
    assert ends[0] == ends[1]
    for wrong in (None, tiny_llama(len(VOCABULARY), width=16, heads=2)):
        with pytest.raises(ValueError, match="does not fit this algorithm and config"):
            resume_learner(tmp_path / "checkpoint", PPO, recipe.config, "cpu", wrong)


def test_values_of_another_body_are_those_of_that_body():
    policy, body = tiny_llama(12, width=16, heads=2), tiny_llama(12, width=32, heads=2, seed=1)
    critic = Critic(policy, init="normal", body=body)
    ids = torch.tensor([[1, 2]]), torch.ones(1, 2, dtype=torch.long), torch.tensor([[3, 4, 5]])
    hidden = body.base_model(input_ids=torch.tensor([[1, 2, 3, 4]])).last_hidden_state
    torch.testing.assert_close(critic_values(critic, *ids), critic.head(hidden)[:, 1:4, 0])


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("grpo", {}), ("ppo", {"critic": "shared"}), ("ppo", {"value_layers": 1}), ("ppo", {"value_width": 16})],
)
def test_a_start_for_the_critic_is_refused_where_nothing_reads_it(algorithm, options):
    with pytest.raises(ValueError, match="critic_start is for an algorithm with a critic, such as ppo"):
        begin(ALGORITHMS[algorithm], tiny_llama(len(VOCABULARY), width=16), **options)


def test_a_body_must_know_the_policys_tokens_and_cannot_be_shared():
    policy = tiny_llama(12, width=16)
    with pytest.raises(ValueError, match="knows 11 tokens, and the policy writes 12"):
        Critic(policy, body=tiny_llama(11, width=16))
    with pytest.raises(ValueError, match="leave body out, or shared"):
        Critic(policy, shared=True, body=policy)


TINY = ["--task", "even", "--start", "untrained", "--steps", "4", "--prompts", "4", "--group-size", "4"]
TINY += ["--held-out", "20", "--save-every", "2", "--out"]


@pytest.mark.parametrize("kind", ["policy", "reward model"])
def test_the_command_takes_a_folder_for_the_critic_and_resumes(tmp_path, monkeypatch, capsys, kind):
    body = tiny_llama(len(VOCABULARY), width=32, layers=1, heads=2)
    folder = tmp_path / "body"
    folder.mkdir()
    if kind == "policy":
        save_policy(folder, body, VOCABULARY)
    else:
        RewardModel.from_policy(body, VOCABULARY).save(folder)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    options = ["--critic-start", str(folder), "--value-warm-up", "1", "--value-epochs", "2"]
    assert main(["train", "ppo", *TINY, str(whole), *options]) == 0
    assert main(["train", "ppo", *TINY, str(halves), *options]) == 0
    assert main(["train", "ppo", "--out", str(halves), "--resume", "--steps", "6"]) == 0
    learner = resume_learner(
        halves / "checkpoint", PPO, Config(), "cpu", tiny_llama(len(VOCABULARY), width=32, layers=1)
    )
    assert learner.step == 6
    capsys.readouterr()
    assert main(["train", "grpo", *TINY, str(tmp_path / "no"), "--critic-start", str(folder)]) == 1
    assert "critic_start is for an algorithm with a critic" in capsys.readouterr().err
    assert main(["train", "ppo", *TINY, str(tmp_path / "no"), "--critic-start", str(tmp_path / "nowhere")]) == 1
    assert "no checkpoint in" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_the_command_says_what_has_no_critic(tmp_path, capsys):
    for flags in (["--value-warm-up", "3"], ["--value-layers", "1"]):
        assert main(["train", "grpo", *TINY, str(tmp_path / "no"), *flags]) == 1
        assert "is for a critic, but this algorithm has none" in capsys.readouterr().err
