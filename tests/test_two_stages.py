"""The chapter `language-models` and the module beside it: the same lines, and numbers by other routes."""

import ast
import math
import random
from collections import Counter
from functools import partial
from pathlib import Path

import nbformat
import pytest
import torch

from rlhf_book import two_stages
from rlhf_book.two_stages import FORMATS, LETTERS, PAIRS, SEEN, SHIFTED, UNSEEN, document, kind, reply

CHAPTER = Path(__file__).resolve().parents[1] / "notebooks" / "language-models.ipynb"


def body(node):
    return ast.dump(ast.Module(node.body, []))


def test_functions_of_the_chapter_are_those_of_the_module():
    module = ast.parse(Path(two_stages.__file__).read_text(encoding="utf-8"))
    known = {node.name: body(node) for node in module.body if isinstance(node, ast.FunctionDef)}
    shown = set()
    for cell in nbformat.read(CHAPTER, as_version=4).cells:
        if cell.cell_type == "code" and not str(cell.metadata.get("from", "")):
            for node in ast.parse(cell.source).body:
                if isinstance(node, ast.FunctionDef) and node.name in known:
                    assert body(node) == known[node.name], node.name
                    shown.add(node.name)
    assert shown == {"document", "next_token_loss", "raw_rows", "pair_rows", "fit"}


def test_documents_have_their_shares_and_the_entropy_that_is_claimed():
    rng = random.Random(0)
    texts = [document(rng) for _ in range(20_000)]
    kinds = Counter(kind(text[:2], text[2:]) for text in texts)
    assert set(kinds) == set(FORMATS)
    for name, share in FORMATS.items():
        assert kinds[name] / len(texts) == pytest.approx(share, abs=0.015)
    chances = {}  # every document with its probability
    for name, share in FORMATS.items():
        if name != "list":
            chances |= {f"{a}?{reply(a, name)}": share / len(LETTERS) for a in LETTERS}
    lists = len(LETTERS) ** 3
    entropy = -sum(p * math.log(p) for p in chances.values()) - FORMATS["list"] * math.log(FORMATS["list"] / lists)
    tokens = sum(p * len(text) for text, p in chances.items()) + FORMATS["list"] * 7
    assert sum(chances.values()) + FORMATS["list"] == pytest.approx(1)
    assert two_stages.entropy_of_documents() == pytest.approx(entropy / tokens)


def test_the_entropy_of_rows_is_that_of_their_likelihood():
    """By another route: minus the log-probability of drawn rows, each token's chance by the form of a document."""
    nats, rng, lists = [], random.Random(0), FORMATS["list"]
    for _ in range(4000):
        text, chances = "", []
        while len(text) < 24:
            text += (new := document(rng))
            listed = kind(new[:2], new[2:]) == "list"
            third = lists / len(LETTERS) if listed else FORMATS[new[2]]
            fifth = 1 / len(LETTERS) if listed else 1.0
            chances += [1 / len(LETTERS), 1.0, third, 1.0, fifth, 1.0, 1.0][: len(new)]
        nats.append(-sum(map(math.log, chances[:24])) / 24)
    assert two_stages.entropy_of_rows() == pytest.approx(sum(nats) / len(nats), abs=0.006)
    assert two_stages.entropy_of_rows(2000) == pytest.approx(two_stages.entropy_of_documents(), abs=0.001)
    assert two_stages.entropy_of_rows(1) == pytest.approx(math.log(len(LETTERS)))


def test_replies_and_pairs():
    assert (reply("c", "="), reply("a", "<"), reply("p", ">"), reply("p", ">", 3)) == ("=c$", "<p$", ">a$", ">c$")
    assert sorted(SEEN + UNSEEN) == sorted(LETTERS)
    assert [prompt[0] for prompt, _ in PAIRS] == [prompt[0] for prompt, _ in SHIFTED] == list(SEEN)
    assert kind("c?", "a?b?$") == "list"
    assert kind("c?", ">e$") == kind("c?", "a?b?") == "other"


def test_the_mask_says_which_tokens_are_learnt():
    model = two_stages.new_model(0)
    rows = {prompts: two_stages.pair_rows(random.Random(0), PAIRS, prompts=prompts) for prompts in (False, True)}
    ids = rows[False][0]
    assert torch.equal(ids, rows[True][0])
    logp = model(ids).logits.log_softmax(-1)
    nats = -logp[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)  # [B, 5]
    torch.testing.assert_close(two_stages.next_token_loss(model, *rows[False]), nats[:, 2:].mean())
    torch.testing.assert_close(two_stages.next_token_loss(model, *rows[True]), nats.mean())
    ids, mask = two_stages.raw_rows(random.Random(0), rows=3)
    assert ids.shape == mask.shape == (3, 25)
    assert mask.all()


def test_the_same_seed_trains_the_same_model():
    rows = partial(two_stages.pair_rows, pairs=PAIRS)
    losses = [two_stages.fit(two_stages.new_model(1), rows, steps=3, lr=1e-3, seed=2) for _ in range(2)]
    assert losses[0] == losses[1]
    assert losses[0][2] < losses[0][0]
