"""What the playground's page is given: the engine, its kernel, the start's weights, and the rows of the table.

The engine lies in readable files under `engine/`. A page opened from disk may fetch none of them, so they travel in the
page: `playground.mjs` starts them as a worker.
"""

import base64
import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from .wat import assemble

ENGINE = Path(__file__).parent / "engine"
# In the order in which they read each other.
FILES = (
    "task.js",
    "kernel.js",
    "model.js",
    "tree.js",
    "rows.js",
    "optimiser.js",
    "trainer.js",
    "loop.js",
)
WORKER = "worker.js"


def playground() -> dict[str, Any]:
    """The values of the figure: sources as text, bytes as base64, rows and challenges as they lie in their files.

    Returns:
        engine, kernel, weights, rows, code and challenges.
    """
    return {
        "engine": engine() + (ENGINE / WORKER).read_text(encoding="utf-8"),
        "kernel": base64.b64encode(kernel()).decode("ascii"),
        "weights": base64.b64encode(weights()).decode("ascii"),
        "rows": rows(),
        "code": json.loads((ENGINE / "code.json").read_text(encoding="utf-8")),
        "challenges": json.loads(
            (ENGINE / "challenges.json").read_text(encoding="utf-8")
        ),
    }


def front() -> dict[str, Any]:
    """The values of the front page's small form, which has neither code nor challenges."""
    return {
        name: value
        for name, value in playground().items()
        if name not in ("code", "challenges")
    } | {"small": True}


def engine() -> str:
    """The engine's files as one script, without the worker that runs it."""
    return "\n".join((ENGINE / name).read_text(encoding="utf-8") for name in FILES)


def rows() -> dict[str, dict[str, Any]]:
    """The rows that the page offers, by name, with their cells."""
    found: dict[str, dict[str, Any]] = json.loads(
        (ENGINE / "rows.json").read_text(encoding="utf-8")
    )
    return found


def kernel() -> bytes:
    """The product of two matrices as a module of WebAssembly."""
    return assemble((ENGINE / "kernel.wat").read_text(encoding="utf-8"))


def weights() -> bytes:
    """The shipped start for addition as float16, in the order of `engine/model.js`.

    Returns:
        83,072 weights and three rows of zeros, up to which the page's vocabulary is padded.
    """
    with resources.as_file(
        resources.files("rlhf_minimal") / "assets" / "addition" / "model.safetensors"
    ) as path:
        stored = load_file(path)
    embed = stored["lm_head.weight"]  # tied: it is the embedding, too
    parts = [embed, np.zeros((16 - len(embed), embed.shape[1]), embed.dtype)]
    layers = 1 + max(
        int(name.split(".")[2]) for name in stored if name.startswith("model.layers.")
    )
    for layer in range(layers):
        at = f"model.layers.{layer}."
        parts += [
            stored[f"{at}input_layernorm.weight"],
            *(stored[f"{at}self_attn.{name}_proj.weight"] for name in "qkvo"),
            stored[f"{at}post_attention_layernorm.weight"],
            *(stored[f"{at}mlp.{name}_proj.weight"] for name in ("gate", "up", "down")),
        ]
    parts.append(stored["model.norm.weight"])
    return np.concatenate([part.ravel() for part in parts]).astype("<f2").tobytes()
