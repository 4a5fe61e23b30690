"""TRL's losses of pairs, called live on random tensors: the rows that say the same must give the same.

As in test_trl.py, a trainer is made without its constructor and given what its loss reads. The model is a function that
hands out the log-probs or scores under test. Value and gradient: 1e-9 in float64, 1e-6 in float32.
"""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from rlhf_minimal import PAIRWISE, Pairs, PairwiseAlgorithm, contrib, pairwise_loss

trl = pytest.importorskip("trl", reason="TRL is not installed: pip install trl==1.16.0")
from trl import DPOTrainer, KTOTrainer, RewardTrainer  # noqa: E402
from trl.experimental.cpo import CPOTrainer  # noqa: E402
from trl.experimental.orpo import ORPOTrainer  # noqa: E402

SEEDS = range(10)
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-6}


class OneProcess:
    """The part of an accelerator that a loss asks for."""

    device = torch.device("cpu")

    def gather(self, x):
        return x

    def gather_for_metrics(self, x):
        return x


def close(ours, theirs, tolerance):
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


# ---- DPOTrainer -------------------------------------------------------------------------------------------------


def sample(seed, dtype, B=6, T=7, spread=0.6):
    """Log-probs of chosen and rejected responses of 1 to 7 tokens, 0 outside, as TRL's head leaves them."""
    g = torch.Generator().manual_seed(seed)
    pairs = {}
    for side in ("chosen", "rejected"):
        lengths = torch.randint(1, T + 1, (B,), generator=g)
        mask = (torch.arange(T) < lengths[:, None]).to(dtype)
        ref = -torch.randn(B, T, generator=g, dtype=torch.float64).abs() - 0.1
        logp = ref + spread * torch.randn(B, T, generator=g, dtype=torch.float64)
        pairs |= {f"{side}_mask": mask, f"{side}_logp": logp.to(dtype) * mask, f"ref_{side}_logp": ref.to(dtype) * mask}
    return pairs


def swapped(pairs):
    other = {"chosen": "rejected", "rejected": "chosen"}
    return {"_".join(other.get(word, word) for word in name.split("_")): x for name, x in pairs.items()}


def fused_head(logp, mask):
    """A model with TRL's fused head, 0 outside the response; what only its metrics read is zero."""
    log_probs = logp * mask
    zeros = torch.zeros_like(log_probs)

    def model(**inputs):
        return SimpleNamespace(log_probs=log_probs, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())

    model.training, model.is_gradient_checkpointing = True, False
    model._modules = {}  # asked for where peft is installed
    return model


def trl_dpo(pairs, **settings):
    logp = torch.cat([pairs["chosen_logp"], pairs["rejected_logp"]]).requires_grad_()
    ref = torch.cat([pairs["ref_chosen_logp"], pairs["ref_rejected_logp"]])
    mask = torch.cat([pairs["chosen_mask"], pairs["rejected_mask"]])
    with_prompt = torch.cat([torch.zeros_like(mask[:, :1]), mask], dim=1)  # one prompt token before each response
    trainer = DPOTrainer.__new__(DPOTrainer)
    trainer.__dict__.update(
        model=fused_head(logp, mask),
        ref_model=fused_head(ref, mask),
        accelerator=OneProcess(),
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=False,
        f_divergence_type="reverse_kl",
        use_weighting=False,
        loss_weights=[1.0],
        label_smoothing=0.0,
        _tp_size=1,
        _total_train_tokens=0,
        _metrics={"train": defaultdict(list)},
    )
    trainer.__dict__.update(settings)
    inputs = {
        "input_ids": torch.zeros(with_prompt.shape, dtype=torch.long),
        "attention_mask": torch.ones_like(with_prompt),
        "completion_mask": with_prompt,
    }
    loss = trainer._compute_loss(trainer.model, inputs, return_outputs=False)
    (gradient,) = torch.autograd.grad(loss, logp)
    return loss.detach(), *gradient.chunk(2)


def our_dpo(algorithm, pairs):
    leaves = {name: pairs[name].clone().requires_grad_() for name in ("chosen_logp", "rejected_logp")}
    loss = pairwise_loss(algorithm, Pairs(**{**pairs, **leaves}))
    return loss.detach(), *torch.autograd.grad(loss, list(leaves.values()))


def row(name, *, score=None, **options) -> PairwiseAlgorithm:
    algorithm = PAIRWISE[name]
    loss = partial(algorithm.loss, **options)
    return replace(algorithm, loss=loss, score=score or algorithm.score)


# Our row -> TRL's settings.
SETTINGS = {
    "dpo": (PAIRWISE["dpo"], {"loss_types": ["sigmoid"], "beta": 0.1}),
    "dpo, beta .5": (row("dpo", beta=0.5), {"loss_types": ["sigmoid"], "beta": 0.5}),
    "dpo, mean over tokens": (
        row("dpo", score=contrib.pairs.mean_log_ratio),
        {"loss_types": ["sigmoid_norm"], "beta": 0.1},
    ),
    "spin": (PAIRWISE["spin"], {"loss_types": ["sigmoid"], "beta": 0.1}),
    "ipo as TRL has it": (row("ipo", score=contrib.pairs.mean_log_ratio), {"loss_types": ["ipo"], "beta": 0.1}),
}


@DTYPES
@pytest.mark.parametrize("name", SETTINGS)
def test_dpo_trainer(name, dtype):
    algorithm, settings = SETTINGS[name]
    for seed in SEEDS:
        pairs = sample(seed, dtype)
        close(our_dpo(algorithm, pairs), trl_dpo(pairs, **settings), TOLERANCE[dtype])


def test_the_ipo_row_is_the_papers_and_not_trls():
    """TRL divides each log-ratio by its length; for responses of one token the two are one."""
    trl_ipo = {"loss_types": ["ipo"], "beta": 0.1}
    pairs = sample(0, torch.float64)
    assert abs(our_dpo(PAIRWISE["ipo"], pairs)[0] - trl_dpo(pairs, **trl_ipo)[0]) > 0.1
    short = sample(0, torch.float64, T=1)
    close(our_dpo(PAIRWISE["ipo"], short), trl_dpo(short, **trl_ipo), 1e-9)


@pytest.mark.parametrize("smoothing", [0.1, 0.3])
def test_smoothing_from_trls_robust_loss(smoothing):
    """TRL has no conservative DPO any more. Its robust DPO is the same two terms, one with the other sign:

    robust = ((1 - eps) l(g) - eps l(-g)) / (1 - 2 eps), and so conservative = (1 - 2 eps) robust + 2 eps l(-g).
    """
    for seed in SEEDS:
        pairs = sample(seed, torch.float64)
        robust = trl_dpo(pairs, loss_types=["robust"], beta=0.1, label_smoothing=smoothing)
        flipped, in_rejected, in_chosen = trl_dpo(swapped(pairs), loss_types=["sigmoid"], beta=0.1)
        expected = [
            (1 - 2 * smoothing) * one + 2 * smoothing * other
            for one, other in zip(robust, (flipped, in_chosen, in_rejected), strict=True)
        ]
        close(our_dpo(row("dpo", smoothing=smoothing), pairs), expected, 1e-9)


# ---- KTOTrainer, CPOTrainer, ORPOTrainer ------------------------------------------------------------------------


def trl_kto(pairs, crossed, *, good, bad):
    """TRL's loss of 2 B completions, chosen ones first; `crossed` are those that make its KL."""
    logp = torch.cat([pairs["chosen_logp"], pairs["rejected_logp"]]).requires_grad_()
    ref = torch.cat([pairs["ref_chosen_logp"], pairs["ref_rejected_logp"]])
    mask = torch.cat([pairs["chosen_mask"], pairs["rejected_mask"]])
    with_prompt = torch.cat([torch.zeros_like(mask[:, :1]), mask], dim=1)
    KL = 1  # ids that tell the two forwards of a model apart
    trainer = KTOTrainer.__new__(KTOTrainer)

    def model_of(own, others):
        def model(*, input_ids, **inputs):
            x = others if input_ids[0, 0] == KL else own
            zeros = torch.zeros_like(x)
            return SimpleNamespace(log_probs=x, entropy=zeros, mean_logits=zeros)

        model.training, model.is_gradient_checkpointing, model._modules = True, False, {}
        return model

    trainer.__dict__.update(
        model=model_of(logp * mask, crossed[0]),
        ref_model=model_of(ref * mask, crossed[1]),
        accelerator=OneProcess(),
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        aux_loss_enabled=False,
        precompute_ref_logps=False,
        calculate_KL=True,
        loss_type="kto",
        beta=0.1,
        desirable_weight=good,
        undesirable_weight=bad,
        _tp_size=1,
        _total_train_tokens=0,
        _metrics={"train": defaultdict(list)},
    )
    ids = torch.zeros(with_prompt.shape, dtype=torch.long)
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(with_prompt),
        "completion_mask": with_prompt,
        "KL_input_ids": ids + KL,
        "KL_attention_mask": torch.ones_like(with_prompt),
        "KL_completion_mask": with_prompt,
        "label": [True] * (len(ids) // 2) + [False] * (len(ids) // 2),
    }
    inputs["label"] = torch.tensor(inputs["label"])
    loss = trainer._compute_loss(trainer.model, inputs, return_outputs=False)
    (gradient,) = torch.autograd.grad(loss, logp)
    return loss.detach(), *gradient.chunk(2)


@DTYPES
@pytest.mark.parametrize("shift", [0.5, -0.5], ids=["anchor above 0", "anchor at 0"])
def test_kto_trainer(shift, dtype):
    for seed in SEEDS:
        pairs, other = sample(seed, dtype), sample(100 + seed, dtype)
        mask = torch.cat([other["chosen_mask"], other["rejected_mask"]])
        ref = torch.cat([other["ref_chosen_logp"], other["ref_rejected_logp"]]) * mask
        crossed = (ref + shift * mask, ref)
        anchor = (crossed[0] - crossed[1]).sum(-1).mean().clamp(min=0)
        algorithm = replace(contrib.PAIRWISE["kto"], loss=partial(contrib.pairs.kto_loss, beta=0.1, good=1.3, bad=0.7))
        assert (anchor > 0) == (shift > 0)
        ours = our_dpo(algorithm, pairs | {"anchor": anchor.expand(6)})
        close(ours, trl_kto(pairs, crossed, good=1.3, bad=0.7), TOLERANCE[dtype])


def means(pairs):
    """[B], [B]: mean log-probs as TRL's forward hands them to the two losses, and what carries the gradient."""
    leaves = [pairs[f"{side}_logp"].clone().requires_grad_() for side in ("chosen", "rejected")]
    masks = [pairs[f"{side}_mask"] for side in ("chosen", "rejected")]
    return leaves, [(x * m).sum(-1) / m.sum(-1) for x, m in zip(leaves, masks, strict=True)]


@DTYPES
def test_simpo_is_a_loss_type_of_the_cpo_trainer(dtype):
    trainer = CPOTrainer.__new__(CPOTrainer)
    trainer.__dict__.update(
        accelerator=OneProcess(), loss_type="simpo", beta=2.0, simpo_gamma=1.0, label_smoothing=0.0, alpha=0.0
    )
    for seed in SEEDS:
        pairs = sample(seed, dtype)
        leaves, scores = means(pairs)
        loss = trainer.cpo_loss(*scores)[0].mean()
        theirs = loss.detach(), *torch.autograd.grad(loss, leaves)
        close(our_dpo(contrib.PAIRWISE["simpo"], pairs), theirs, TOLERANCE[dtype])


@DTYPES
def test_orpo_is_trls_odds_ratio_after_imitation(dtype):
    """TRL's whole loss is an imitation minus this mean. The imitation is ours: theirs reads the prompts, too."""
    trainer = ORPOTrainer.__new__(ORPOTrainer)
    trainer.__dict__.update(accelerator=OneProcess(), beta=0.1)
    for seed in SEEDS:
        pairs = sample(seed, dtype)
        pairs |= {f"{side}_logp": -pairs[f"{side}_logp"].abs() for side in ("chosen", "rejected")}  # odds need p < 1
        leaves, scores = means(pairs)
        loss = -scores[0].mean() - trainer.odds_ratio_loss(*scores)[0].mean()
        theirs = loss.detach(), *torch.autograd.grad(loss, leaves)
        close(our_dpo(contrib.PAIRWISE["orpo"], pairs), theirs, 10 * TOLERANCE[dtype])


# ---- RewardTrainer ----------------------------------------------------------------------------------------------


def trl_reward(chosen, rejected, *, center=None, margin=None):
    logits = torch.cat([chosen, rejected])[:, None].requires_grad_()
    trainer = RewardTrainer.__new__(RewardTrainer)
    trainer.__dict__.update(
        model=SimpleNamespace(training=True),
        accelerator=OneProcess(),
        args=SimpleNamespace(center_rewards_coefficient=center),
        _tp_size=1,
        _total_train_tokens=0,
        _metrics={"train": defaultdict(list)},
    )
    inputs = {"attention_mask": torch.ones(len(logits), 1)} | ({} if margin is None else {"margin": margin})
    loss = trainer.compute_loss(lambda **inputs: SimpleNamespace(logits=logits), inputs)
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), *gradient.squeeze(-1).chunk(2)


@DTYPES
@pytest.mark.parametrize("with_margin", [False, True], ids=["plain", "margin"])
@pytest.mark.parametrize("center", [0.0, 0.01])
def test_reward_trainer(center, with_margin, dtype):
    algorithm = replace(PAIRWISE["bradley_terry"], center=center)
    for seed in SEEDS:
        g = torch.Generator().manual_seed(seed)
        chosen, rejected, margin = (3 * torch.randn(9, generator=g, dtype=torch.float64).to(dtype) for _ in range(3))
        margin = margin.abs() if with_margin else None
        leaves = [x.clone().requires_grad_() for x in (chosen, rejected)]
        loss = pairwise_loss(algorithm, Pairs(chosen_scores=leaves[0], rejected_scores=leaves[1], margin=margin))
        ours = loss.detach(), *torch.autograd.grad(loss, leaves)
        theirs = trl_reward(chosen, rejected, center=center or None, margin=margin)
        close(ours, theirs, 4 * TOLERANCE[dtype] if dtype == torch.float32 else TOLERANCE[dtype])
