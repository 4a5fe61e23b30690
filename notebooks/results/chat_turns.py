"""Recorded turns of a real model with a calculator: `python notebooks/results/chat_turns.py` (SmolLM2, two minutes).

SmolLM2-135M-Instruct (four-bit weights, read back as float32) is asked 60 sums, differences and products of two numbers
from 10 to 99, and 20 more told as stories, greedily, in its chat template. In the arm `tool` a system message and two worked examples show the
call `<calculator>58 + 67</calculator>` and the reply; in the arm `head` the same two are answered at once. Nothing is
trained. Kept are the pieces of each transcript, by who wrote them.
"""

import random
from typing import Any

import recording
import torch

from rlhf_minimal.lab.sampled_rows import sample_ids
from rlhf_minimal.lab.turns import ChatReplies, calculator
from rlhf_minimal.models import TokenizerVocabulary, load_pretrained
from rlhf_minimal.sample import Samples

SYSTEM = (
    "You have a calculator. To use it, write <calculator>a + b</calculator> and end "
    "your turn. The result is the next message."
)
WORKED = (("58 + 67", "125"), ("31 * 12", "372"))
STORIES = {
    "+": "Tom has {a} apples and buys {b} more. How many apples has he now?",
    "-": "Ann had {a} stamps and lost {b}. How many stamps are left?",
    "*": "A box holds {b} eggs. How many eggs are in {a} boxes?",
}


def questions() -> list[tuple[str, str]]:
    """60 bare ones and 20 stories, each with its answer."""
    rng, found = random.Random("chat turns"), list[tuple[str, str]]()
    for number in range(80):
        sign = "+-*"[number % 3]
        a, b = rng.randrange(10, 100), rng.randrange(10, 100)
        a, b = max(a, b), min(a, b)
        asked = f"How much is {a} {sign} {b}?"
        if number >= 60:
            asked = STORIES[sign].format(a=a, b=b)
        found.append((asked, str({"+": a + b, "-": a - b, "*": a * b}[sign])))
    return found


def conversation(arm: str, asked: str) -> list[dict[str, str]]:
    """Two worked examples and the question, as messages."""
    messages = [{"role": "system", "content": SYSTEM}] if arm == "tool" else []
    for expression, result in WORKED:
        messages.append({"role": "user", "content": f"How much is {expression}?"})
        if arm == "tool":
            call = f"<calculator>{expression}</calculator>"
            messages.append({"role": "assistant", "content": call})
            messages.append({"role": "user", "content": result})
        messages.append({"role": "assistant", "content": f"It is {result}."})
    return [*messages, {"role": "user", "content": asked}]


def pieces(
    samples: Samples, row: int, vocabulary: TokenizerVocabulary
) -> list[tuple[str, str]]:
    """Who wrote what, in order: `model` or `tool`; the template's marks of a turn belong to the tool."""
    own = samples.mask[row].bool().tolist()
    end = len(own) - own[::-1].index(True)
    found: list[tuple[str, list[int]]] = []
    for token, mine in zip(samples.completions[row].tolist()[:end], own, strict=False):
        who = "model" if mine else "tool"
        if not found or found[-1][0] != who:
            found.append((who, []))
        found[-1][1].append(token)
    return [(who, vocabulary.tokenizer.decode(ids)) for who, ids in found]


def run(arm: str, seed: int) -> dict[str, Any]:
    """All questions, greedily; with a tool the calculator answers."""
    torch.manual_seed(seed)
    policy, vocabulary = load_pretrained("smollm2-135m", chat=True)
    asked = questions()
    prompts = [
        vocabulary.encode(vocabulary.render(conversation(arm, one), ask=True))
        for one, _ in asked
    ]
    reply = ChatReplies(vocabulary, calculator) if arm == "tool" else None
    samples = sample_ids(
        policy, vocabulary, prompts, max_new_tokens=60, temperature=0.0, reply=reply
    )
    return {
        "questions": [one for one, _ in asked],
        "answers": [answer for _, answer in asked],
        "transcripts": [pieces(samples, row, vocabulary) for row in range(len(asked))],
    }


if __name__ == "__main__":
    recording.record(__file__, ["tool", "head"], run, seeds=[0])
