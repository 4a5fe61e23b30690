"""What the library and torch compute on one batch, for the playground's engine: writes playground_numbers.json.

    python tests/data/playground_numbers.py

Rows, gradients and steps in float64, on the shipped start rounded to float16 as the page has it. `tests/viz/
test_playground_engine.py` compares the engine with these numbers, and a part of them with the library as it is now.
"""

import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from rlhf_book.figures.playground import rows
from rlhf_minimal import ALGORITHMS, KL, Algorithm, Batch, policy_loss
from rlhf_minimal.functional import advantages, aggregation, gates
from rlhf_minimal.objective import prepare

ROOT = Path(__file__).resolve().parents[2]
OUT = Path(__file__).with_name("playground_numbers.json")
ALPHABET = "$0123456789+="
BUDGET, GROUP, BETA, LR = 5, 4, 0.3, 8e-4


def algorithm(name: str, kl: float = 0.0) -> Algorithm:
    """The library's row for a row of the page: without its KL to the reference, or with the page's in its place."""
    row = rows()[name]
    own = ALGORITHMS[row["from"]]
    changes: dict = {"kl": tuple(term for term in own.kl if term.against == "old")}
    if kl:
        mean = aggregation.sequence_mean if row["aggregate"] == "geometric_mean" else None
        reward = row["kl"] == "reward"
        changes["kl"] += (KL(kl, "k1", place="reward") if reward else KL(kl, "k3", aggregate=mean),)
    for column in row.get("changed", ()):
        changes[column] = advantages.group_centered if column == "advantage" else None
    return replace(own, **changes)


def bounded(name: str, low: float, high: float, kl: float = 0.0) -> Algorithm:
    """The same with other bounds of its clip."""
    return replace(algorithm(name, kl), gate=partial(gates.clip, low=low, high=high))


def start() -> LlamaForCausalLM:
    model = LlamaForCausalLM.from_pretrained(ROOT / "rlhf_minimal" / "assets" / "addition")
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.half().float())
    return model.double()


def log_probs(model, prompts, completions):
    ids = torch.cat([prompts, completions], dim=1)
    logp = model(ids).logits[:, prompts.shape[1] - 1 : -1].log_softmax(-1)
    return logp.gather(-1, completions[..., None]).squeeze(-1)


def tensors(of) -> dict[str, np.ndarray]:
    """By the engine's names, each as one vector; `of` gives the tensor of a parameter's name."""
    flat = {"embed": of("model.embed_tokens.weight")}
    for layer in range(2):
        at = f"model.layers.{layer}."
        flat |= {
            f"norm1.{layer}": of(f"{at}input_layernorm.weight"),
            f"qkv.{layer}": torch.cat([of(f"{at}self_attn.{part}_proj.weight") for part in "qkv"]),
            f"out.{layer}": of(f"{at}self_attn.o_proj.weight"),
            f"norm2.{layer}": of(f"{at}post_attention_layernorm.weight"),
            f"gateUp.{layer}": torch.cat([of(f"{at}mlp.{part}_proj.weight") for part in ("gate", "up")]),
            f"down.{layer}": of(f"{at}mlp.down_proj.weight"),
        }
    flat["norm"] = of("model.norm.weight")
    return {name: tensor.detach().flatten().numpy() for name, tensor in flat.items()}


def fingerprint(vector: np.ndarray) -> list[float]:
    """Its norm, and its products with two waves: an error anywhere shows."""
    places = np.arange(len(vector))
    return [
        float(np.linalg.norm(vector)),
        *(float(vector @ np.cos(rate * places)) for rate in (0.37, 0.0113)),
    ]


def a_batch():
    """Completions of the start with some early ends, old and reference log-probs that differ from its own."""
    model, rng = start(), random.Random(5)
    torch.manual_seed(5)
    numbers = [rng.randrange(1_000_000) for _ in range(4)]
    prompts = [f"{number // 1000:03d}+{number % 1000:03d}=" for number in numbers]
    ids = torch.tensor([[ALPHABET.index(c) for c in prompt] for prompt in prompts]).repeat_interleave(GROUP, 0)
    completions = ids
    with torch.no_grad():
        for _ in range(BUDGET):
            p = model(completions).logits[:, -1].softmax(-1)
            completions = torch.cat([completions, torch.multinomial(p, 1)], dim=1)
    completions = completions[:, ids.shape[1] :]
    completions[3, 2] = completions[6, 1] = completions[9, 0] = 0
    ended = (completions == 0).long().cumsum(1) - (completions == 0).long()
    mask = (ended == 0).double()
    rewards = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1]).double()
    logp = log_probs(model, ids, completions).detach()
    noise = torch.Generator().manual_seed(1)
    old = torch.minimum(logp - 0.25 * torch.randn(logp.shape, generator=noise, dtype=torch.float64), torch.zeros(()))
    ref = torch.minimum(logp - 0.25 * torch.randn(logp.shape, generator=noise, dtype=torch.float64), torch.zeros(()))
    return model, prompts, ids, completions, mask, rewards, logp, old, ref


def of_row(name, batch, kl):
    """Advantages, loss, and the loss's slopes in the log-probs."""
    logp, old, mask, rewards, ref = batch
    leaf = logp.clone().requires_grad_()
    row = algorithm(name, kl)
    made = Batch(leaf, old, mask, rewards, GROUP, ref_logp=ref, budget=BUDGET)
    loss = policy_loss(row, made)
    loss.backward()
    return {
        "advantages": (prepare(row, made).advantages * mask).tolist(),
        "loss": loss.item(),
        "slope": (leaf.grad * mask).tolist(),
    }


def of_the_model(name, model, ids, completions, mask, rewards, old, ref):
    """The gradient of all weights with a KL penalty, and the step of AdamW that follows it, its norm clipped to 1."""
    model.zero_grad()
    made = Batch(log_probs(model, ids, completions), old, mask, rewards, GROUP, ref_logp=ref, budget=BUDGET)
    policy_loss(algorithm(name, BETA), made).backward()
    parameters = dict(model.named_parameters())
    gradient = tensors(lambda weight: parameters[weight].grad.clone())
    before = tensors(lambda weight: parameters[weight].clone())
    optimiser = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    after = tensors(lambda weight: parameters[weight].clone())
    moved = {key: after[key] - before[key] for key in before}
    return {
        "norm": norm.item(),
        "gradient": {key: fingerprint(vector) for key, vector in gradient.items()},
        "step": {key: [float(np.linalg.norm(moved[key])), float(moved[key] @ gradient[key])] for key in moved},
    }


def of_adamw():
    """Four steps on ten weights: the first two gradients are longer than 1, and so clipped."""
    found = []
    for decay in (0.0, 0.1):
        weights = torch.nn.Parameter(torch.cos(torch.arange(10.0)))
        optimiser = torch.optim.AdamW([weights], lr=0.01, weight_decay=decay)
        steps = []
        for size in (3.0, 1.0, 0.01, 0.1):
            gradient = size * torch.sin(1 + torch.arange(10.0) * size)
            weights.grad = gradient.clone()
            norm = torch.nn.utils.clip_grad_norm_([weights], 1.0)
            optimiser.step()
            steps.append({"gradient": gradient.tolist(), "norm": norm.item(), "weights": weights.tolist()})
        found.append({"decay": decay, "lr": 0.01, "steps": steps})
    return found


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def numbers():
    _, prompts, ids, completions, mask, rewards, logp, old, ref = a_batch()
    found = {
        "versions": {"torch": torch.__version__.partition("+")[0]},
        "prompts": prompts,
        "group": GROUP,
        "beta": BETA,
        "lr": LR,
        "completions": completions.tolist(),
        "mask": mask.int().tolist(),
        "rewards": rewards.tolist(),
        "logp": (logp * mask).tolist(),
        "old": old.tolist(),
        "ref": ref.tolist(),
        "adamw": of_adamw(),
        "rows": {},
    }
    for name in rows():
        found["rows"][name] = {
            "first": of_row(name, (logp, logp, mask, rewards, ref), 0.0),
            "later": of_row(name, (logp, old, mask, rewards, ref), 0.0),
            "penalised": of_row(name, (logp, old, mask, rewards, ref), BETA),
            "model": of_the_model(name, start(), ids, completions, mask, rewards, old, ref),
        }
    return rounded(found)


if __name__ == "__main__":
    torch.set_num_threads(1)
    OUT.write_text(json.dumps(numbers()) + "\n", encoding="utf-8")
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")
