"""The recorded runs of the chapter on GSPO: what one update does to a mixture of experts, and to a dense model beside it.

    python notebooks/results/routing_runs.py        runs what is not yet recorded (10 runs, ten minutes of one core)
    python notebooks/results/routing_runs.py dense  only the arms named

Writes notebooks/results/routing-runs.json, a line a run. Both arms are Qwen3 models of two layers that imitate the
teacher of `rlhf_book.loop` for 900 steps. In "experts" each layer has 16 experts, of which a router picks 2 for every
token; in "dense", the control, one feed-forward block of the width of two experts does the work of those two. Nothing
else differs. Then the model samples 512 completions (32 prompts, 16 of each) and takes updates on them with GRPO's
loss, AdamW begun anew. Without dropout, in float32, and with the same code for sampling and training, the log-ratios
that are then measured come from the update alone. Measured after 1 and after 4 updates, at two learning rates, from
the same start and on the same completions:

    flips         share of the (token, layer, slot) triples whose expert the router has replaced by another
    token, mean   standard deviation of a token's log-ratio, and of the mean log-ratio of a completion (GSPO's log s)
    most, most_s  the largest absolute log-ratio of a token, and of log s
    replayed      `token` again, with each token sent to the experts that were picked when it was sampled

Seeds 0 to 4 were fixed beforehand and all are recorded, also the dense model of seed 4, which did not learn to imitate. A seed
is a start: weights, data and samples.
"""

import copy
import inspect
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from recording import record
from torch import Tensor
from transformers import (
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

from rlhf_book import loop
from rlhf_book.loop import (
    ALPHABET,
    encode,
    group_advantage,
    grpo_loss,
    is_right,
    make_prompt,
    token_mask,
)

# The loop is written for a Llama, and says so. These three take any causal language
# model; where types are checked at run time, they have to let it pass.
imitate, sample, log_probs = map(
    inspect.unwrap, (loop.imitate, loop.sample, loop.log_probs)
)

STEPS, PROMPTS, GROUP = 900, 32, 16
RATES, UPDATES = (2e-4, 8e-4), (1, 4)
EXPERTS, PICKED, WIDTH = 16, 2, 64
ARMS = ("experts", "dense")


def new_model(arm: str, seed: int) -> PreTrainedModel:
    """Two layers, at random; the arms share everything but the feed-forward blocks."""
    torch.manual_seed(seed)
    shared: dict[str, Any] = {
        "vocab_size": len(ALPHABET),
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "initializer_range": 0.12,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
        "tie_word_embeddings": True,
    }
    if arm == "dense":
        return Qwen3ForCausalLM(Qwen3Config(intermediate_size=PICKED * WIDTH, **shared))
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            num_experts=EXPERTS,
            num_experts_per_tok=PICKED,
            moe_intermediate_size=WIDTH,
            norm_topk_prob=True,
            **shared,
        )
    )


def routers(model: PreTrainedModel) -> list[Qwen3MoeTopKRouter]:
    """The routers, layer by layer; a dense model has none."""
    return [one for one in model.modules() if isinstance(one, Qwen3MoeTopKRouter)]


@contextmanager
def watching(model: PreTrainedModel) -> Iterator[list[Tensor]]:
    """Writes down which experts are picked: a tensor [tokens, 2] for each router."""
    picked: list[Tensor] = []
    hooks = [
        router.register_forward_hook(lambda _, __, out: picked.append(out[2]))
        for router in routers(model)
    ]
    try:
        yield picked
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def replaying(model: PreTrainedModel, picked: list[Tensor]) -> Iterator[None]:
    """Each token goes to the experts given; how they are weighed is the router's of now."""

    def sent_to(experts: Tensor) -> Any:
        def hook(_: Any, __: Any, out: tuple[Tensor, Tensor, Tensor]) -> Any:
            weights = out[0].softmax(-1).gather(-1, experts)
            return out[0], weights / weights.sum(-1, keepdim=True), experts

        return hook

    hooks = [
        router.register_forward_hook(sent_to(experts))
        for router, experts in zip(routers(model), picked, strict=True)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def flips(before: list[Tensor], after: list[Tensor], tokens: Tensor) -> float:
    """The share of slots whose expert is picked no more, among the tokens that count."""
    if not before:
        return 0.0
    kept = torch.stack(
        [
            (old[:, :, None] == new[:, None, :]).any(-1)
            for old, new in zip(before, after, strict=True)
        ]
    )  # [layers, all tokens, 2]
    return 1 - kept[:, tokens].float().mean().item()


def spreads(log_ratio: Tensor, mask: Tensor) -> dict[str, float]:
    """What is measured of the log-ratios [B, T] of a batch."""
    d = log_ratio[mask > 0]
    log_s = (log_ratio * mask).sum(-1) / mask.sum(-1)
    found = {
        "token": d.std(),
        "mean": log_s.std(),
        "most": d.abs().max(),
        "most_s": log_s.abs().max(),
    }
    return {name: round(x.item(), 6) for name, x in found.items()}


@torch.no_grad()
def read(
    model: PreTrainedModel, ids: Tensor, completions: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Log-probs [B, T] of the completions, and the experts that were picked."""
    with watching(model) as picked:
        logp = log_probs(model, ids, completions)
    return logp, picked


def measure(start: PreTrainedModel, seed: int) -> list[dict[str, float]]:
    """One line for each learning rate and number of updates."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    asked = [
        q for q in [make_prompt(rng) for _ in range(PROMPTS)] for _ in range(GROUP)
    ]
    ids = encode(asked)
    completions = sample(start, ids)
    mask = token_mask(completions)
    A = group_advantage(is_right(asked, completions).view(PROMPTS, GROUP)).flatten()
    old, picked = read(start, ids, completions)
    # A row has the tokens of the prompt and those of the completion. What predicts a
    # token of the completion is the position before it.
    counted = torch.zeros(ids.shape[0], ids.shape[1] + completions.shape[1])
    counted[:, ids.shape[1] - 1 : -1] = mask
    tokens = counted.flatten() > 0
    lines = []
    for lr in RATES:
        model = copy.deepcopy(start)
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
        for update in range(1, max(UPDATES) + 1):
            logp = log_probs(model, ids, completions)
            loss = grpo_loss(logp, old, A, mask)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if update not in UPDATES:
                continue
            now, experts = read(model, ids, completions)
            with replaying(model, picked):
                replayed, _ = read(model, ids, completions)
            line = {"lr": lr, "updates": update, **spreads(now - old, mask)}
            line["replayed"] = spreads(replayed - old, mask)["token"]
            line["flips"] = round(flips(picked, experts, tokens), 6)
            lines.append(line)
    return lines


def run(arm: str, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.process_time()
    # The mean of the first three losses; `imitate` divides by 50.
    first = imitate(new_model(arm, seed), steps=3, seed=seed) * 50 / 3
    start = new_model(arm, seed)
    loss = imitate(start, steps=steps, seed=seed)
    lines = measure(start, seed)
    return {
        "weights": sum(weight.numel() for weight in start.parameters()),
        "first_loss": round(first, 4),
        "imitation_loss": round(loss, 4),
        "cpu_seconds": round(time.process_time() - began, 1),
        "found": lines,
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        imitation_steps=STEPS,
        prompts=PROMPTS,
        group=GROUP,
        experts=EXPERTS,
        picked=PICKED,
    )
