"""The recorded runs of the chapter on mixtures of experts: what replay and a sequence ratio change in training.

    python notebooks/results/replay_runs.py              runs what is not yet recorded (40 runs, 14 minutes of one core)
    python notebooks/results/replay_runs.py experts-grpo only the arms named

Writes notebooks/results/replay-runs.json, a line a run. The models are those of `routing_runs.py`: "experts" has 16
experts in each of two layers, of which 2 are picked for a token, and "dense", the control, one block as wide as two
experts. A seed is a start: weights, 900 steps of imitation, and the samples of everything after it.

"experts" and "dense" alone are probes of the start. After one update on 512 completions at each learning rate the
log-ratio of a token is split in two: `flip`, what changes if the experts of before the update are replayed, and `rest`,
what is left then. Standard deviations over the tokens with a replaced expert in their own position, and over those
without one. `router_flips` is the share of tokens whose set of experts has changed, for each layer; `any_flip` the
share with a change in at least one. `smaller` repeats this for the same update, at the higher rate, shortened to a half,
a quarter and so on: SHORTER times.

The others train: 15 rollouts of 128 completions (16 prompts of 8), four updates on each, AdamW at 8e-4, both losses
with the clip range 0.2. Arms of one model differ in what their name says:

    grpo     token ratio
    gspo     sequence ratio
    r2       token ratio; in all updates each token has the experts that the trainer's old policy picked
    balance  token ratio; 0.01 times the load-balancing loss is added

By step: `reward`; `spread` and `most`, the standard deviation and the largest absolute value of the tokens' log-ratios
after the last update, computed as the arm's loss does; `flips`, the share of slots whose expert the four updates have
replaced; `experts_used`, exp of the entropy of the experts' shares, mean of the
layers. `greedy` and `sampled` are shares of right answers on 300 held-out problems. `first` has two steps of the same
code from an untrained model with coin rewards, for a test that runs them again.

Seeds 0 to 4 were fixed beforehand and all are recorded.
"""

import contextlib
import copy
import functools
import random
import time
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from routing_runs import (
    RATES,
    encode,
    flips,
    group_advantage,
    grpo_loss,
    imitate,
    is_right,
    log_probs,
    make_prompt,
    new_model,
    read,
    replaying,
    sample,
    token_mask,
)
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.qwen3_moe.modeling_qwen3_moe import (
    load_balancing_loss_func,
)

from rlhf_book.loop import gspo_loss

IMITATION, STEPS, PROMPTS, GROUP, UPDATES = 900, 15, 16, 8, 4
LR, BALANCE = 8e-4, 0.01
SHORTER = 11
KEPT = ("reward", "spread", "most", "flips", "experts_used")
PROBES = ("experts", "dense")
TRAINED = (
    "experts-grpo",
    "experts-gspo",
    "experts-r2",
    "experts-balance",
    "dense-grpo",
    "dense-gspo",
)
ARMS = (*PROBES, *TRAINED)


@functools.cache
def _imitated(model: str, seed: int) -> PreTrainedModel:
    start = new_model(model, seed)
    imitate(start, steps=IMITATION, seed=seed)
    return start


def start_of(arm: str, seed: int) -> PreTrainedModel:
    """A copy of the start of an arm: all arms of one model begin alike."""
    return copy.deepcopy(_imitated("dense" if "dense" in arm else "experts", seed))


def positions(ids: Tensor, mask: Tensor) -> Tensor:
    """[B * (S + T)] which positions predict a token that counts: one before it."""
    counted = torch.zeros(ids.shape[0], ids.shape[1] + mask.shape[1])
    counted[:, ids.shape[1] - 1 : -1] = mask
    return counted.flatten() > 0


def changed(before: list[Tensor], after: list[Tensor]) -> Tensor:
    """[layers, tokens] whether the set of picked experts is another one."""
    pairs = zip(before, after, strict=True)
    return torch.stack([(a.sort(-1)[0] != b.sort(-1)[0]).any(-1) for a, b in pairs])


def load_balance(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """The load-balancing loss of transformers on [B, S + T] ids; 2 if all experts are used alike."""
    logits = model(ids, output_router_logits=True).router_logits
    return load_balancing_loss_func(
        tuple(logits), model.config.num_experts, model.config.num_experts_per_tok
    )


def used(picked: list[Tensor], tokens: Tensor) -> float:
    """Exp of the entropy of the experts' shares, mean of the layers; 0 without experts."""
    found = []
    for layer in picked:
        share = torch.bincount(layer[tokens].flatten(), minlength=16).float()
        share = share / share.sum()
        found.append(torch.special.entr(share).sum().exp().item())
    return sum(found) / len(found) if found else 0.0


def train(
    model: PreTrainedModel, arm: str, seed: int, steps: int, coin: bool = False
) -> dict[str, list[float]]:
    """Trains the model, and says what was seen at each step."""
    _, method = arm.split("-")
    rng = random.Random(seed)
    torch.manual_seed(seed)
    tossing = torch.Generator().manual_seed(1000 + seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    seen: dict[str, list[float]] = {name: [] for name in KEPT}
    for _ in range(steps):
        asked = [
            q for q in [make_prompt(rng) for _ in range(PROMPTS)] for _ in range(GROUP)
        ]
        ids = encode(asked)
        completions = sample(model, ids)
        mask = token_mask(completions)
        tokens = positions(ids, mask)
        rewards = is_right(asked, completions)
        tosses = torch.randint(2, rewards.shape, generator=tossing).float()
        given = (tosses if coin else rewards).view(PROMPTS, GROUP)
        A = group_advantage(given).flatten()
        old, picked = read(model, ids, completions)
        fixed = contextlib.nullcontext
        if method == "r2":
            fixed = functools.partial(replaying, model, picked)
        for _ in range(UPDATES):
            with fixed():
                logp = log_probs(model, ids, completions)
                loss_of = gspo_loss if method == "gspo" else grpo_loss
                loss = loss_of(logp, old, A, mask)
                if method == "balance":
                    whole = torch.cat([ids, completions], 1)
                    loss = loss + BALANCE * load_balance(model, whole)
                optimizer.zero_grad()
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        with fixed():
            log_w = (read(model, ids, completions)[0] - old)[mask > 0]
        _, after = read(model, ids, completions)
        line = {
            "reward": rewards.mean(),
            "spread": log_w.std(),
            "most": log_w.abs().max(),
            "flips": flips(picked, after, tokens),
            "experts_used": used(picked, tokens),
        }
        for name, value in line.items():
            seen[name].append(round(float(value), 5))
    return seen


@torch.no_grad()
def held_out(model: PreTrainedModel, seed: int) -> dict[str, float]:
    """Shares of right answers on 300 problems that nobody trained on."""
    rng = random.Random(500 + seed)
    torch.manual_seed(seed)
    asked = [make_prompt(rng, "test") for _ in range(300)]
    ids = encode(asked)
    sampled = is_right(asked, sample(model, ids)).mean().item()
    best = ids
    for _ in range(5):
        best = torch.cat([best, model(best).logits[:, -1].argmax(-1, keepdim=True)], 1)
    greedy = is_right(asked, best[:, ids.shape[1] :]).mean().item()
    return {"sampled": round(sampled, 4), "greedy": round(greedy, 4)}


def spread_of(x: Tensor) -> float:
    """The standard deviation; 0 of fewer than two tokens."""
    return round(x.std().item(), 6) if len(x) > 1 else 0.0


def split(
    model: PreTrainedModel,
    ids: Tensor,
    completions: Tensor,
    old: Tensor,
    picked: list[Tensor],
) -> dict[str, Any]:
    """What of the log-ratios of a moved model is the router's choice."""
    mask = token_mask(completions)
    tokens = positions(ids, mask)
    now, experts = read(model, ids, completions)
    log_w = (now - old)[mask > 0]
    line: dict[str, Any] = {
        "tokens": len(log_w),
        "all": spread_of(log_w),
        "most": round(log_w.abs().max().item(), 6),
    }
    if not picked:
        return line
    with replaying(model, picked):
        fixed, _ = read(model, ids, completions)
    by_layer = changed(picked, experts)[:, tokens]  # [layers, tokens]
    hit = by_layer.any(0)
    flip, rest = (now - fixed)[mask > 0], (fixed - old)[mask > 0]
    line |= {
        "flip": spread_of(flip),
        "rest": spread_of(rest),
        "router_flips": [round(x, 6) for x in by_layer.float().mean(1).tolist()],
        "any_flip": round(hit.float().mean().item(), 6),
        "slot_flips": round(flips(picked, experts, tokens), 6),
    }
    for name, group in {"hit": hit, "not_hit": ~hit}.items():
        line[name] = {
            "all": spread_of(log_w[group]),
            "flip": spread_of(flip[group]),
            "rest": spread_of(rest[group]),
        }
    return line


def probe(start: PreTrainedModel, seed: int) -> dict[str, list[dict[str, Any]]]:
    """One update at each learning rate, and the last of them shortened again and again."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    asked = [q for q in [make_prompt(rng) for _ in range(32)] for _ in range(16)]
    ids = encode(asked)
    completions = sample(start, ids)
    mask = token_mask(completions)
    A = group_advantage(is_right(asked, completions).view(32, 16)).flatten()
    old, picked = read(start, ids, completions)
    found: dict[str, list[dict[str, Any]]] = {"found": [], "smaller": []}
    for lr in RATES:
        model = copy.deepcopy(start)
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
        grpo_loss(log_probs(model, ids, completions), old, A, mask).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        line = split(model, ids, completions, old, picked)
        found["found"].append({"lr": lr, **line})
    for power in range(SHORTER):
        part = copy.deepcopy(start)
        with torch.no_grad():
            for weight, end in zip(part.parameters(), model.parameters(), strict=True):
                weight += (end - weight) * 0.5**power
        line = split(part, ids, completions, old, picked)
        found["smaller"].append({"length": 0.5**power, **line})
    return found


def first_steps(arm: str, seed: int) -> dict[str, list[float]]:
    """Two steps from an untrained model with coin rewards: quick to run again."""
    model = new_model("dense" if "dense" in arm else "experts", seed)
    return train(model, arm, seed, steps=2, coin=True)


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.process_time()
    model = start_of(arm, seed)
    if arm in PROBES:
        found: dict[str, Any] = {**probe(model, seed), **held_out(model, seed)}
    else:
        found = {"first": first_steps(arm, seed)} if seed == 0 else {}
        found |= train(model, arm, seed, STEPS)
        found |= held_out(model, seed)
    return found | {"cpu_seconds": round(time.process_time() - began, 1)}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        imitation_steps=IMITATION,
        steps=STEPS,
        updates=UPDATES,
        samples_per_step=PROMPTS * GROUP,
        lr=LR,
        balance=BALANCE,
    )
