"""Pretraining and supervised fine-tuning of a tiny model, as the chapter `language-models` builds them.

Documents about letters in several formats, one loss and one loop for both stages, and a count of what a model writes
after a prompt. A test holds these lines equal to the chapter's.
"""

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

LETTERS = "abcdefghijklmnop"
ALPHABET = "$?=<>" + LETTERS  # "$" begins and ends a document
REPLIES = {"=": 0, "<": -1, ">": 1}  # the same letter, the one before, the one after
FORMATS = {"list": 0.4, "=": 0.2, "<": 0.2, ">": 0.2}  # shares of the documents


def reply(letter: str, sign: str, by: int | None = None) -> str:
    """To c: =c$ or <b$ or >d$. After p comes a."""
    place = LETTERS.index(letter) + (REPLIES[sign] if by is None else by)
    return sign + LETTERS[place % len(LETTERS)] + "$"


def document(rng: random.Random) -> str:
    """A list of three questions, or one question with a reply."""
    name = rng.choices([*FORMATS], [*FORMATS.values()])[0]
    if name == "list":
        return "".join(rng.choice(LETTERS) + "?" for _ in range(3)) + "$"
    letter = rng.choice(LETTERS)
    return f"{letter}?{reply(letter, name)}"


def encode(texts: list[str]) -> Tensor:
    """[B, L] ids of texts of one length."""
    return torch.tensor([[ALPHABET.index(c) for c in text] for text in texts])


def new_model(seed: int) -> LlamaForCausalLM:
    """A Llama with 84 thousand weights, at random."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(ALPHABET),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.12,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def next_token_loss(model: LlamaForCausalLM, ids: Tensor, mask: Tensor) -> Tensor:
    """[B, L] ids; [B, L] mask, 1 where a token is learnt: nats per learnt token."""
    logits = model(ids[:, :-1]).logits  # [B, L-1, V]: each place predicts the next
    nats = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    learnt = mask[:, 1:].flatten()  # nothing predicts the first token
    return (nats * learnt).sum() / learnt.sum()


Rows = tuple[Tensor, Tensor]  # [B, L] ids and mask


def raw_rows(rng: random.Random, rows: int = 64, length: int = 25) -> Rows:
    """Pretraining: documents in a row, cut to a length; every token counts."""
    texts = []
    for _ in range(rows):
        text = "$"
        while len(text) < length:
            text += document(rng)
        texts.append(text[:length])
    ids = encode(texts)
    return ids, torch.ones(ids.shape)


Pairs = list[tuple[str, str]]  # prompts such as c? with completions such as >d$


def pair_rows(rng: random.Random, pairs: Pairs, prompts: bool = False) -> Rows:
    """Fine-tuning: 64 prompts with completions, and only the completions count."""
    chosen = [rng.choice(pairs) for _ in range(64)]
    ids = encode([f"${prompt}{completion}" for prompt, completion in chosen])
    mask = torch.ones(ids.shape)
    mask[:, :3] = float(prompts)  # the tokens $c?
    return ids, mask


def fit(
    model: LlamaForCausalLM,
    make_rows: Callable[[random.Random], Rows],
    steps: int,
    lr: float,
    seed: int = 0,
) -> list[float]:
    """AdamW, one new batch of rows at each step; the losses."""
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    losses = []
    for step in range(steps):
        loss = next_token_loss(model, *make_rows(rng))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 20, (steps - step) / steps)
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def write(model: LlamaForCausalLM, prompts: list[str], budget: int = 8) -> list[str]:
    """What the model samples after each prompt, up to and including the end."""
    ids = encode(["$" + prompt for prompt in prompts])  # [B, 3]
    for _ in range(budget):
        p = model(ids).logits[:, -1].softmax(-1)  # [B, V]
        ids = torch.cat([ids, torch.multinomial(p, 1)], dim=1)
    texts = ["".join(ALPHABET[i] for i in row) for row in ids[:, 3:].tolist()]
    return [text.partition("$")[0] + "$" * ("$" in text) for text in texts]


def kind(prompt: str, text: str) -> str:
    """The format of what was written after a prompt such as c?"""
    for sign in REPLIES:
        if text == reply(prompt[0], sign):
            return sign
    listed = len(text) == 5 and text[1] == text[3] == "?" and text[4] == "$"
    return "list" if listed else "other"


def entropy_of_documents() -> float:
    """Nats per token of a document, the end included: no model has a lower mean loss."""
    formats = -sum(p * math.log(p) for p in FORMATS.values())
    lists = FORMATS["list"]
    letters = 3 * lists + 1 * (1 - lists)  # those that nothing determines
    tokens = 7 * lists + 5 * (1 - lists)
    return (formats + letters * math.log(len(LETTERS))) / tokens


def entropy_of_rows(places: int = 24) -> float:
    """Nats per predicted token of `raw_rows`: they begin at a document and are cut behind so many tokens."""
    letter = math.log(len(LETTERS))
    formats = -sum(p * math.log(p) for p in FORMATS.values())
    lists = FORMATS["list"]
    begins = [1.0] + [0.0] * places  # the chance that a document begins at a place
    entropy = [0.0] * (places + 7)
    for place in range(places):
        chance = begins[place]
        entropy[place] += chance * letter  # of the first question
        entropy[place + 2] += chance * (formats + lists * letter)  # what follows it
        entropy[place + 4] += chance * lists * letter  # a list's third question
        for length, share in ((7, lists), (5, 1 - lists)):
            if place + length < places:
                begins[place + length] += chance * share
    return sum(entropy[:places]) / places


@torch.no_grad()
def next_token(model: LlamaForCausalLM, text: str) -> Tensor:
    """[V]: the distribution of the token after a text."""
    return model(encode([text])).logits[0, -1].softmax(-1)


def shares(model: LlamaForCausalLM, letters: str, each: int = 100) -> dict[str, float]:
    """Of completions of every letter's question, the share of each format."""
    prompts = [letter + "?" for letter in letters for _ in range(each)]
    found = [kind(*pair) for pair in zip(prompts, write(model, prompts), strict=True)]
    names = [*FORMATS, "other"]
    return {name: found.count(name) / len(found) for name in names}


SEEN, UNSEEN = LETTERS[::2], LETTERS[1::2]  # letters of questions in the pairs, and not
PAIRS: Pairs = [(letter + "?", reply(letter, ">")) for letter in SEEN]
SHIFTED: Pairs = [(letter + "?", reply(letter, ">", 3)) for letter in SEEN]
