"""Answers to the exercises on scaling up: wrong ones that are on nobody's list, and right ones by another route."""

import math
import re

import torch

from rlhf_minimal.functional import aggregation
from rlhf_minimal.functional.corrections import truncated_importance
from rlhf_minimal.lab.processes import Several
from rlhf_minimal.objective import Totals

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def kept_at_the_root(layers, every, entering, inside):
    """The best interval, whichever was asked for."""
    every = max(round(math.sqrt(layers)), 1)
    return -(-layers // every) * entering + every * inside


def tokens_by_the_geometric_mean(parameters, rows, width, bandwidth, flops):
    """Smooths the bend away."""
    return rows / math.sqrt(width * parameters / bandwidth * 2 * parameters * rows / flops)


def lora_on_the_output(x, weight, down, up, alpha):
    """Corrects only the first output."""
    correction = alpha / len(down) * (x @ down.T @ up.T)
    return x @ weight.T + torch.cat([correction[:, :1], torch.zeros_like(correction[:, 1:])], dim=1)


def lost_by_the_mean(weights, step):
    """Judges all weights by their mean size."""
    return torch.tensor(float(step < weights.abs().mean() / 512))


def corrected_by_the_mean_gap(logp, sampler_logp, advantages, mask, cap):
    """One weight for the whole batch."""
    trained = mask != 0
    weight = (logp - sampler_logp).detach()[trained].mean().exp().clamp(max=cap)
    return -(weight * advantages[:, None] * torch.where(trained, logp, 0.0)).sum() / trained.sum()


def part_by_the_rows(objective, mask, rank, count):
    """A share of the denominators by the number of rows."""
    own = torch.arange(len(mask)).tensor_split(count)[rank]
    return -(objective[own] * mask[own]).sum() / mask[own].sum() * len(own) / len(mask)


def verified_by_the_look(completion, answer):
    """One box, and the answer in braces; what follows is not read."""
    return completion.count(r"\boxed{") == 1 and f"{{{answer}}}" in completion


def verified_without_brackets(completion, answer):
    """Reads the box to the end of the text, and forgives a percent sign."""
    inside = completion.partition(r"\boxed{")[2].strip().rstrip("$.").rstrip()
    return inside.endswith("}") and inside[:-1].strip().rstrip("\\%") == answer


def verified_by_an_equation_solver(completion, answer):
    """Every side of an equation may be the answer."""
    box = re.search(r"\\boxed\{([^{}]*)\}\s*\$?\s*\.?\s*$", completion)
    return bool(box) and completion.count("boxed") == 1 and answer in [side.strip() for side in box[1].split("=")]


UNLISTED = [
    ("scale-checkpoint", kept_at_the_root, "you return"),
    ("scale-decode", tokens_by_the_geometric_mean, "you return"),
    ("scale-lora", lora_on_the_output, "you return"),
    ("scale-lost", lost_by_the_mean, "you return"),
    ("scale-truncated", corrected_by_the_mean_gap, "you return"),
    ("scale-processes", part_by_the_rows, "you return"),
    ("scale-verifier", verified_by_the_look, "Judged wrongly: honest completions; a box that is not at the end."),
    ("scale-verifier", verified_without_brackets, "Judged wrongly: a percent sign."),
    ("scale-verifier", verified_by_an_equation_solver, "Judged wrongly: an equation."),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def kept_by_walking(layers, every, entering, inside):
    """Walks through the layers, and then through the stretches."""
    stretches = [range(first, min(first + every, layers)) for first in range(0, layers, every)]
    return max(len(stretches) * entering + len(stretch) * inside for stretch in stretches)


def tokens_by_the_bend(parameters, rows, width, bandwidth, flops):
    bend = width * flops / (2 * bandwidth)
    return min(rows, bend) * bandwidth / (width * parameters)


def lora_merged(x, weight, down, up, alpha):
    return torch.nn.functional.linear(x, weight + alpha / down.shape[0] * (up @ down))


def lora_by_rank_one_parts(x, weight, down, up, alpha):
    parts = [torch.outer(up[:, i], down[i]) for i in range(len(down))]
    return x @ (weight + alpha * torch.stack(parts).mean(0)).T


def lost_bit_by_bit(weights, step):
    """Rounding by hand: half a unit in the last of eight places, ties to even."""

    def rounded(x):
        if x == 0:
            return 0.0
        unit = 2.0 ** (math.floor(math.log2(abs(x))) - 7)
        return round(x / unit) * unit

    before = [rounded(x) for x in weights.tolist()]
    return sum(rounded(x + step) == x for x in before) / len(before)


def corrected_by_the_library(logp, sampler_logp, advantages, mask, cap):
    weight = truncated_importance(logp.detach(), sampler_logp, mask, cap=cap)
    logp = torch.where(mask != 0, logp, 0.0)
    return -aggregation.token_mean(weight * advantages[:, None] * logp, mask, totals=Totals.of(mask))


def corrected_by_loops(logp, sampler_logp, advantages, mask, cap):
    total, tokens = 0.0, 0
    for row in range(len(mask)):
        for t in range(mask.shape[1]):
            if mask[row, t]:
                weight = min(math.exp(float(logp[row, t].detach() - sampler_logp[row, t])), cap)
                total = total - weight * float(advantages[row]) * logp[row, t]
                tokens += 1
    return total / tokens


def part_by_the_library(objective, mask, rank, count):
    own = Several(rank, count).share(len(mask))
    return -aggregation.token_mean(objective[own], mask[own], totals=Totals.of(mask))


def verified_by_a_pattern(completion, answer):
    pattern = rf".*\\boxed\{{\s*{re.escape(answer)}\s*\}}\s*\$?\s*\.?\s*"
    return completion.count(r"\boxed{") == 1 and re.fullmatch(pattern, completion, re.DOTALL) is not None


def verified_from_the_end(completion, answer):
    """Takes away, piece by piece, what may stand at the end."""
    for piece in (".", "$"):
        completion = completion.rstrip().removesuffix(piece)
    completion = completion.rstrip()
    if not completion.endswith("}"):
        return 0
    completion = completion[:-1].rstrip()
    if not completion.endswith(answer):
        return 0
    text = completion[: -len(answer)].rstrip()
    return int(text.endswith(r"\boxed{") and text.find(r"\boxed{") == len(text) - len(r"\boxed{"))


RIGHT = [
    ("scale-checkpoint", kept_by_walking),
    ("scale-decode", tokens_by_the_bend),
    ("scale-lora", lora_merged),
    ("scale-lora", lora_by_rank_one_parts),
    ("scale-lost", lost_bit_by_bit),
    ("scale-truncated", corrected_by_the_library),
    ("scale-truncated", corrected_by_loops),
    ("scale-processes", part_by_the_library),
    ("scale-verifier", verified_by_a_pattern),
    ("scale-verifier", verified_from_the_end),
]
