"""Records for `language-models`: what is left of pretraining after fine-tuning on few pairs, or on other pairs.

    python notebooks/results/two_stage_runs.py        runs what is not yet recorded (21 runs, two minutes)
    python notebooks/results/two_stage_runs.py sft    only the arms named

Writes notebooks/results/two-stage-runs.json, a line a run: the documents, the model and `fit` of rlhf_book.two_stages,
200 steps of pretraining at 4e-3 (the arm `base`), then a fine-tuning for each of the other arms. Measured are the
shares of each format among 100 samples of every letter's question.
"""

import copy
import time
from functools import cache, partial
from typing import Any

import torch
from recording import record
from transformers import LlamaForCausalLM

from rlhf_book.two_stages import (
    ALPHABET,
    FORMATS,
    PAIRS,
    SEEN,
    SHIFTED,
    UNSEEN,
    Pairs,
    fit,
    kind,
    new_model,
    next_token,
    pair_rows,
    raw_rows,
    reply,
    write,
)

SEEDS = range(3)
PRETRAINING: dict[str, Any] = {"steps": 200, "lr": 4e-3}
TUNING: dict[str, Any] = {"steps": 40, "lr": 5e-4}
LONGER: dict[str, Any] = {"steps": 200, "lr": 5e-4}

# What is fine-tuned: from random weights?, the pairs, the loss on prompts, too?, steps and rate
ARMS: dict[str, tuple[bool, Pairs, bool, dict[str, Any]]] = {
    "sft": (False, PAIRS, False, TUNING),
    "prompts": (False, PAIRS, True, TUNING),
    "scratch": (True, PAIRS, False, TUNING),
    "longer": (True, PAIRS, False, PRETRAINING),
    "shifted": (False, SHIFTED, False, TUNING),
    "shifted, longer": (False, SHIFTED, False, LONGER),
}


def measured(model: LlamaForCausalLM, pairs: Pairs, seed: int) -> dict[str, Any]:
    """What it writes after questions, in 100 samples of each, and how a document of its own begins."""
    torch.manual_seed(seed)
    found: dict[str, Any] = {}
    shift = 3 if pairs is SHIFTED else None
    for name, letters in (("seen", SEEN), ("unseen", UNSEEN)):
        prompts = [letter + "?" for letter in letters for _ in range(100)]
        texts = write(model, prompts, budget=6)
        wanted = [reply(prompt[0], ">", shift) for prompt in prompts]
        kinds = [kind(*pair) for pair in zip(prompts, texts, strict=True)]
        found[f"right_{name}"] = sum(map(str.__eq__, texts, wanted)) / len(prompts)
        found[f"shares_{name}"] = [
            kinds.count(x) / len(kinds) for x in (*FORMATS, "other")
        ]
    first = next_token(model, "$")
    asks = sum(first[ALPHABET.index(letter)].item() for letter in SEEN)
    return found | {"asks_seen": round(asks, 6)}


@cache
def pretrained(seed: int) -> tuple[LlamaForCausalLM, list[float]]:
    """The model that has read documents, and the losses on its way."""
    base = new_model(seed)
    return base, fit(base, raw_rows, **PRETRAINING, seed=seed)


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.process_time()
    model, losses = pretrained(seed)
    scratch, pairs, prompts, settings = ARMS.get(arm, (False, PAIRS, False, {}))
    if arm != "base":
        model = new_model(seed) if scratch else copy.deepcopy(model)
        losses = fit(
            model,
            partial(pair_rows, pairs=pairs, prompts=prompts),
            **settings,
            seed=seed,
        )
    kept = {**measured(model, pairs, seed), "losses": [round(x, 4) for x in losses]}
    return kept | {"cpu_seconds": round(time.process_time() - began, 1)}


if __name__ == "__main__":
    record(__file__, ["base", *ARMS], run, seeds=SEEDS)
