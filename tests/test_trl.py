"""TRL's own loss functions, called live on random tensors: the row or cells that say the same must give the same.

TRL's trainers need a model, a tokenizer and a dataset to exist, and their losses need none of them. So a trainer is
made without its constructor and given only the attributes that `_compute_loss` reads, log-probs included. Both sides
then see identical tensors: 1e-9 in float64, 1e-6 in float32, value and gradient.
"""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, Algorithm, Batch, contrib, policy_loss, prepare
from rlhf_minimal.functional import advantages, aggregation, corrections, gates, ratios, shaping

trl = pytest.importorskip("trl", reason="TRL is not installed: pip install trl==1.16.0")
from trl import GRPOTrainer, RLOOTrainer  # noqa: E402
from trl.experimental.gmpo import GMPOTrainer  # noqa: E402

SEEDS = range(20)
BUDGET = 11
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-6}
SEQUENCE = {"importance_sampling_level": "sequence"}


def row(ratio, gate, aggregate, *kl: KL) -> Algorithm:
    return Algorithm(advantages.group_normalized, ratio, gate, aggregate, kl=kl)


grpo, dapo = ALGORITHMS["grpo"], ALGORITHMS["dapo"]
clip = partial(gates.clip, low=0.2, high=0.2)
leash = replace(grpo, kl=(KL(0.04, "k3"),))
weighted = KL(0.04, "k3", weighted=True)
gspo = ALGORITHMS["gspo"]
NARROW = {"epsilon_low": 3e-4, "epsilon_high": 4e-4}
UNCORRECTED = {"beta": 0.04, "use_bias_correction_kl": False}
CORRECTED = {"beta": 0.04, "use_bias_correction_kl": True}

# Our cells -> TRL's loss_type and what else differs from TRL's defaults, on a GRPOTrainer.
GRPO_SETTINGS = {
    "grpo": (replace(grpo, kl=()), {"loss_type": "grpo"}),
    "grpo, KL uncorrected": (grpo, {"loss_type": "grpo", **UNCORRECTED}),
    "grpo, KL corrected": (replace(grpo, kl=(weighted,)), {"loss_type": "grpo", **CORRECTED}),
    "grpo, entropy bonus": (
        # TRL averages the entropy over tokens whatever the loss does; our bonus is averaged as the loss is.
        replace(grpo, kl=(), aggregate=aggregation.token_mean, entropy=0.01),
        {"loss_type": "bnpo", "_entropy_bonus_enabled": True, "use_adaptive_entropy": False, "entropy_coef": 0.01},
    ),
    "bnpo": (row(ratios.token, clip, aggregation.token_mean), {"loss_type": "bnpo"}),
    "bnpo, KL corrected": (
        row(ratios.token, clip, aggregation.token_mean, weighted),
        {"loss_type": "bnpo", **CORRECTED},
    ),
    "dapo": (dapo, {"loss_type": "dapo", "epsilon_high": 0.28}),
    "dapo, KL uncorrected": (replace(dapo, kl=leash.kl), {"loss_type": "dapo", "epsilon_high": 0.28, **UNCORRECTED}),
    "dapo, dual clip": (
        replace(dapo, gate=partial(contrib.gates.dual_clip, low=0.2, high=0.2, c=1.7)),
        {"loss_type": "dapo", "delta": 1.7},
    ),
    "dapo, sampler correction": (
        replace(dapo, correct=partial(corrections.truncated_importance, cap=1.3)),
        {"loss_type": "dapo", "epsilon_high": 0.28, "use_vllm": True, "vllm_importance_sampling_correction": True},
    ),
    "olmo3": (
        ALGORITHMS["olmo3"],
        {"loss_type": "dapo", "epsilon_high": 0.272, "use_vllm": True, "vllm_importance_sampling_correction": True},
    ),
    "dr_grpo": (ALGORITHMS["dr_grpo"], {"loss_type": "dr_grpo"}),
    "dr_grpo, KL corrected": (replace(ALGORITHMS["dr_grpo"], kl=(weighted,)), {"loss_type": "dr_grpo", **CORRECTED}),
    "gspo": (gspo, {"loss_type": "grpo", **SEQUENCE, **NARROW}),
    "gspo, wide": (replace(gspo, gate=clip), {"loss_type": "grpo", **SEQUENCE}),
    "gspo, KL uncorrected": (replace(gspo, kl=leash.kl), {"loss_type": "grpo", **SEQUENCE, **NARROW, **UNCORRECTED}),
    # One token's gradient in the sequence's ratio: TRL has only the sequence form, equal for one A a sequence.
    "gspo_token": (ALGORITHMS["gspo_token"], {"loss_type": "grpo", **SEQUENCE, **NARROW}),
    "luspo": (
        ALGORITHMS["luspo"],
        {"loss_type": "luspo", **SEQUENCE, "epsilon_low": 2e-3, "epsilon_high": 2.5e-3},
    ),
    "luspo, wide": (row(ratios.sequence, clip, aggregation.sequence_sum), {"loss_type": "luspo", **SEQUENCE}),
    "lite_ppo": (ALGORITHMS["lite_ppo"], {"loss_type": "dapo"}),
    "cispo": (ALGORITHMS["cispo"], {"loss_type": "cispo", "epsilon_high": 5.0}),
    "cispo, low cap": (
        replace(ALGORITHMS["cispo"], gate=partial(gates.clip_weight, cap=1.1)),
        {"loss_type": "cispo", "epsilon_high": 1.1},
    ),
    "sapo": (ALGORITHMS["sapo"], {"loss_type": "sapo"}),
    "sapo, steep": (
        replace(ALGORITHMS["sapo"], gate=partial(gates.sigmoid, tau_pos=2.0, tau_neg=4.0)),
        {"loss_type": "sapo", "sapo_temperature_pos": 2.0, "sapo_temperature_neg": 4.0},
    ),
}
ARGS = {
    "use_bias_correction_kl": True,
    "delta": None,
    "sapo_temperature_pos": 1.0,
    "sapo_temperature_neg": 1.05,
    "steps_per_generation": 1,
}


class OneProcess:
    """The part of an accelerator that a loss asks for: there is one process, so nothing is gathered."""

    num_processes = 1
    sync_gradients = True

    def gather(self, x):
        return x

    def gather_for_metrics(self, x):
        return x

    def reduce(self, x, reduction):
        return x


def bare(trainer_class, logp, entropies, **settings):
    trainer = trainer_class.__new__(trainer_class)
    attributes = {
        "beta": 0.0,
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "vllm_importance_sampling_correction": False,
        "max_completion_length": BUDGET,
        "current_gradient_accumulation_steps": 1,
        "_entropy_bonus_enabled": False,
        "aux_loss_enabled": False,
        "_metrics": {"train": defaultdict(list), "eval": defaultdict(list)},
        "model": SimpleNamespace(training=True),
        "accelerator": OneProcess(),
        "_get_per_token_logps_and_entropies": lambda *args, **kwargs: (logp, entropies, None),
    }
    args = {name: settings.pop(name, default) for name, default in ARGS.items()}
    trainer.__dict__.update(attributes, args=SimpleNamespace(**args), **settings)
    return trainer


def sample(seed, dtype, spread=0.4, P=3, G=4, T=7):
    """Random tensors, short rows among them (the first of one token), equal rewards in the last group."""
    g = torch.Generator().manual_seed(seed)
    B = P * G

    def normal(*size):
        return torch.randn(*size, generator=g, dtype=torch.float64)

    lengths = torch.randint(1, T + 1, (B,), generator=g)
    lengths[0], lengths[1] = 1, T
    old = -normal(B, T).abs() - 0.1
    rewards = normal(B)
    rewards[-G:] = 0.7
    tensors = {
        "logp": old + spread * normal(B, T),
        "old_logp": old,
        "ref_logp": old + 0.3 * normal(B, T),
        "sampler_logp": old + 0.3 * normal(B, T),
        "entropy": normal(B, T).abs(),
        "mask": (torch.arange(T) < lengths[:, None]).double(),
        "rewards": rewards,
    }
    return {name: x.to(dtype) for name, x in tensors.items()}, G


def trl_loss(trainer_class, tensors, advantage, *, items=None, cap=1.0, **settings):
    """TRL's loss, its gradient in the log-probs and (where it has one) in the entropies.

    items: trained tokens of the optimiser step, where these tensors are a part of it.
    cap: of the sampler's importance weight, in the settings that use it.
    """
    logp, entropy = (tensors[name].clone().requires_grad_() for name in ("logp", "entropy"))
    mask = tensors["mask"]
    ids = torch.zeros(mask.shape, dtype=torch.long)
    prompt = torch.zeros(len(mask), 1, dtype=torch.long)
    inputs = {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones_like(prompt),
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": advantage,
        "num_items_in_batch": mask.sum() if items is None else items,
        "old_per_token_logps": tensors["old_logp"],
        "old_logps": (tensors["old_logp"] * mask).sum(-1),
        "ref_per_token_logps": tensors["ref_logp"],
        # TRL computes this weight while it generates.
        "importance_sampling_ratio": (tensors["old_logp"] - tensors["sampler_logp"]).exp().clamp(max=cap),
    }
    loss = bare(trainer_class, logp, entropy, **settings)._compute_loss(None, inputs)
    gradients = torch.autograd.grad(loss, (logp, entropy), allow_unused=True, materialize_grads=True)
    return loss.detach(), *gradients


def our_loss(algorithm, tensors, G):
    logp, entropy = (tensors[name].clone().requires_grad_() for name in ("logp", "entropy"))
    batch = Batch(
        logp,
        tensors["old_logp"],
        tensors["mask"],
        tensors["rewards"],
        G,
        ref_logp=tensors["ref_logp"],
        sampler_logp=tensors["sampler_logp"],
        entropy=entropy,
        budget=BUDGET,
    )
    prepared = prepare(algorithm, batch)
    loss = policy_loss(algorithm, prepared)
    gradients = torch.autograd.grad(loss, (logp, entropy), allow_unused=True, materialize_grads=True)
    advantage = prepared.advantages[:, 0]  # each row's first token is trained here
    return advantage, loss.detach(), *gradients


def log_prob_carrier(tensors, advantage, cap):
    """CISPO's value as TRL prints it, -sum min(w, cap) A log pi / tokens; ours is -sum min(w, cap) A / tokens."""
    mask, logp = tensors["mask"], tensors["logp"]
    weight = (logp - tensors["old_logp"]).exp().clamp(max=cap)
    return -(weight * advantage[:, None] * logp * mask).sum() / mask.sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", GRPO_SETTINGS)
def test_grpo_trainer(name, dtype):
    algorithm, settings = GRPO_SETTINGS[name]
    tolerance = TOLERANCE[dtype]
    if name == "sapo" and dtype == torch.float64:
        tolerance = (
            1e-7  # TRL's torch.where of two Python numbers is float32: its tau is 1.0499999523 (2 and 4 are exact)
        )
    for seed in SEEDS:
        tensors, G = sample(seed, dtype)
        advantage, loss, gradient, in_entropy = our_loss(algorithm, tensors, G)
        cap = algorithm.correct.keywords["cap"] if algorithm.correct else 1.0
        expected, *gradients = trl_loss(GRPOTrainer, tensors, advantage, cap=cap, **settings)
        if settings["loss_type"] == "cispo":
            loss = log_prob_carrier(tensors, advantage, settings["epsilon_high"])
        for ours, theirs in zip((loss, gradient, in_entropy), (expected, *gradients), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_gmpo_trainer(beta, dtype):
    """Its bounds are log-space; its KL is averaged per sequence."""
    kl = (KL(beta, "k3", aggregate=aggregation.sequence_mean),)
    algorithm = replace(ALGORITHMS["gmpo"], kl=kl)
    tolerance = TOLERANCE[dtype]
    for seed in SEEDS:
        tensors, G = sample(seed, dtype)
        advantage, loss, gradient, _ = our_loss(algorithm, tensors, G)
        settings = {"epsilon_low": 0.4, "epsilon_high": 0.4, "beta": beta}
        expected, theirs, _ = trl_loss(GMPOTrainer, tensors, advantage, **settings)
        torch.testing.assert_close(loss, expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(gradient, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_rloo_trainer(dtype):
    """TRL's RLOO is PPO on the product of a response's ratios; our row follows the paper and has no clip."""
    algorithm = replace(
        ALGORITHMS["rloo"], ratio=contrib.ratios.sequence_product, gate=clip, aggregate=aggregation.sequence_mean, kl=()
    )
    tolerance = TOLERANCE[dtype]
    for seed in SEEDS:
        tensors, G = sample(seed, dtype, spread=0.1)
        advantage, loss, gradient, _ = our_loss(algorithm, tensors, G)
        expected, theirs, _ = trl_loss(RLOOTrainer, tensors, advantage)
        torch.testing.assert_close(loss, expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(gradient, theirs, rtol=tolerance, atol=tolerance)


def test_rloo_row_is_its_on_policy_gradient():
    """Before the policy has moved, TRL's clipped product and the row's REINFORCE take one step."""
    for seed in SEEDS:
        tensors, G = sample(seed, torch.float64)
        tensors["logp"] = tensors["old_logp"].clone()
        row = replace(ALGORITHMS["rloo"], kl=())
        advantage, _, gradient, _ = our_loss(row, tensors, G)
        _, theirs, _ = trl_loss(RLOOTrainer, tensors, advantage)
        torch.testing.assert_close(gradient, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["dapo", "cispo"])
def test_a_micro_batch_is_trls_accumulation_window(name):
    """Whose token mean is it? Both count the tokens of the optimiser step, which TRL calls num_items_in_batch."""
    algorithm, settings = GRPO_SETTINGS[name]
    for seed in SEEDS:
        tensors, G = sample(seed, torch.float64)
        advantage, *_ = our_loss(algorithm, tensors, G)
        logp = tensors["logp"].clone().requires_grad_()
        batch = Batch(logp, tensors["old_logp"], tensors["mask"], tensors["rewards"], G)
        start = 0
        for part in prepare(replace(algorithm, shape=None), batch).split(3):
            (ours,) = torch.autograd.grad(policy_loss(algorithm, part), part.logp)
            rows = slice(start, start := start + len(part.logp))
            inputs = {key: x[rows] for key, x in tensors.items()}
            _, theirs, _ = trl_loss(GRPOTrainer, inputs, advantage[rows], items=tensors["mask"].sum(), **settings)
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_samples_move_the_gates():
    """The comparison would prove little if no ratio ever left its band, on either side and for either sign."""
    seen = set()
    for seed in SEEDS:
        tensors, G = sample(seed, torch.float64)
        advantage, *_ = our_loss(replace(grpo, kl=()), tensors, G)
        w = (tensors["logp"] - tensors["old_logp"]).exp()
        trained = tensors["mask"] != 0
        A = advantage[:, None].expand_as(w)
        for sign in (-1, 0, 1):
            there = trained & (A.sign() == sign)
            seen |= {(sign, "below") for _ in w[there & (w < 0.8)]} | {(sign, "above") for _ in w[there & (w > 1.7)]}
    assert seen == {(sign, side) for sign in (-1, 0, 1) for side in ("below", "above")}


def test_cosine_scaled_reward(monkeypatch):
    """TRL's reward, told which answers are right; behind the budget too."""
    from trl.rewards import accuracy_rewards

    right = [True, False] * 60
    monkeypatch.setattr(accuracy_rewards, "accuracy_reward", lambda *args: right)
    lengths = torch.arange(120)
    rewards = torch.tensor(right).double()
    for numbers in ({}, {"right_short": 2.0, "right_long": -0.5, "wrong_short": -3.0, "wrong_long": 0.25}):
        of_trl = {
            "max_value_correct": numbers.get("right_short", 1.0),
            "min_value_correct": numbers.get("right_long", 0.5),
            "min_value_wrong": numbers.get("wrong_short", -1.0),
            "max_value_wrong": numbers.get("wrong_long", -0.5),
        }
        theirs = accuracy_rewards.get_cosine_scaled_reward(100, **(of_trl if numbers else {}))
        expected = theirs([[]] * 120, [""] * 120, [[1] * n for n in lengths.tolist()])
        ours = contrib.shaping.cosine(rewards, lengths, budget=100, **numbers)
        torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)


def test_soft_overlong_punishment():
    from trl.rewards import get_soft_overlong_punishment

    lengths = torch.arange(120)
    expected = get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20)([[1] * n for n in range(120)])
    ours = shaping.soft_overlong(torch.zeros(120, dtype=torch.float64), lengths, budget=100)
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
