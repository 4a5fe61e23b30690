"""What the GAE explorer computes is what the library computes; the widget says and saves what it should.

The module runs under Node here. Where Node is missing the test is skipped and says so; tests/browser runs the same
comparison inside Chromium.
"""

import itertools
import json
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import GaeExplorer, in_a_notebook
from rlhf_minimal.functional import advantages
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "gae_explorer.mjs"
CRITICS = ("right", "offset", "noisy", "blind", "late")
BATCH = 64


def decided(text):
    return text.count("1") >= 4 or text.count("0") >= 3


def all_responses():
    """Every match, by playing them: no formula of the module is used."""
    open_ones, ended = [""], []
    while open_ones:
        longer = [text + token for text in open_ones for token in "01"]
        ended += [text for text in longer if decided(text)]
        open_ones = [text for text in longer if not decided(text)]
    return ended


RESPONSES = all_responses()
PREFIXES = sorted({text[:t] for text in RESPONSES for t in range(len(text))})


def value(prefix):
    """Average over the responses that begin like this."""
    after = [text for text in RESPONSES if text.startswith(prefix)]
    return sum(0.5 ** (len(text) - len(prefix)) * (text.count("1") >= 4) for text in after)


def opinion(prefix, kind, size, scatter):
    right = value(prefix)
    wrong = {
        "right": right,
        "offset": right + 0.4,
        "noisy": right + 0.4 * scatter[prefix],
        "blind": value(""),
        "late": value(prefix[:-1]),
    }[kind]
    return right + size * (wrong - right)


def cases():
    """[response, lambda, critic, size]."""
    sixes = ("111111", "000000", "011011")
    yield from (
        [six, lam, kind, size]
        for six, lam, kind, size in itertools.product(sixes, (0.0, 0.5, 0.95, 1.0), CRITICS, (0.0, 0.5, 1.0))
    )


def expected(six, lam, kind, size, scatter):
    """The same by the library's gae and by autograd."""
    N, T = len(RESPONSES), 6
    mask, rewards, values = torch.zeros(3, N, T, dtype=torch.float64)
    for n, text in enumerate(RESPONSES):
        mask[n, : len(text)] = 1
        rewards[n, len(text) - 1] = float(text.count("1") >= 4)
        said = [opinion(text[:t], kind, size, scatter) for t in range(len(text))]
        values[n, : len(text)] = torch.tensor(said, dtype=torch.float64)
    A = advantages.gae(rewards, mask, values=values, lam=lam)
    delta = advantages.gae(rewards, mask, values=values, lam=0.0)
    p = 0.5 ** mask.sum(1)

    logits = torch.zeros(len(PREFIXES), dtype=torch.float64, requires_grad=True)
    row = {prefix: i for i, prefix in enumerate(PREFIXES)}
    log_good, log_bad = torch.nn.functional.logsigmoid(logits), torch.nn.functional.logsigmoid(-logits)
    estimates, logps = [], []
    for n, text in enumerate(RESPONSES):
        logp = torch.stack([(log_good if token == "1" else log_bad)[row[text[:t]]] for t, token in enumerate(text)])
        logps.append(logp.sum())
        estimates.append(torch.autograd.grad((logp * A[n, : len(text)]).sum(), logits, retain_graph=True)[0])
    exact = torch.autograd.grad((torch.stack(logps).exp() * rewards.sum(1)).sum(), logits)[0]
    g = torch.stack(estimates)
    mean = p @ g
    bias = (mean - exact).norm() / exact.norm()
    noise = ((p[:, None] * (g - mean) ** 2).sum() / BATCH).sqrt() / exact.norm()

    text = next(six[:t] for t in range(1, 7) if decided(six[:t]))
    mine = RESPONSES.index(text)
    tokens = []
    for t in range(len(text)):
        alike = [n for n, other in enumerate(RESPONSES) if other.startswith(text[: t + 1])]
        weight = p[alike] / p[alike].sum()
        average = (weight * A[alike, t]).sum()
        tokens.append(
            {
                "right": value(text[:t]),
                "value": values[mine, t].item(),
                "delta": delta[mine, t].item(),
                "advantage": A[mine, t].item(),
                "exact": value(text[: t + 1]) - value(text[:t]),
                "mean": average.item(),
                "spread": (weight * (A[alike, t] - average) ** 2).sum().sqrt().item(),
            }
        )
    return text, tokens, {"bias": bias.item(), "noise": noise.item(), "error": (bias**2 + noise**2).sqrt().item()}


SCATTER = "Object.fromEntries(maths.prefixes().map((prefix) => [prefix, maths.scatter(prefix)]))"


def compare(computed, scatter):
    """Used by tests/browser, too."""
    assert set(scatter) == set(PREFIXES)
    assert len(set(scatter.values())) == len(PREFIXES)
    assert all(-1 <= x <= 1 for x in scatter.values())
    wanted = list(cases())
    assert len(computed) == len(wanted) > 100
    for got, case in zip(computed, wanted, strict=True):
        text, tokens, gradient = expected(*case, scatter)
        assert got["text"] == text
        assert len(got["tokens"]) == len(tokens)
        for mine, right in zip(got["tokens"], tokens, strict=True):
            assert mine == pytest.approx(right, rel=1e-9, abs=1e-7)  # the root of rounding
        assert {name: got[name] for name in gradient} == pytest.approx(gradient, rel=1e-9, abs=1e-9)


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_the_librarys():
    measured = f"{json.dumps(list(cases()))}.map((c) => maths.measure(...c))"
    compare(*in_node(f"console.log(JSON.stringify([{measured}, {SCATTER}]))"))


def test_its_responses_are_all_there_are():
    assert sorted(in_node("console.log(JSON.stringify(maths.responses()))")) == sorted(RESPONSES)
    assert len(RESPONSES) == 35
    assert sum(0.5 ** len(text) for text in RESPONSES) == 1


@pytest.mark.parametrize("kind", CRITICS)
def test_the_best_lambda_is_the_best(kind):
    best, errors = in_node(
        f"const at = (lam) => maths.measure('101101', lam, '{kind}', 1).error;"
        f"console.log(JSON.stringify([maths.best('{kind}', 1), Array.from({{ length: 21 }}, (_, i) => at(i / 20))]))"
    )
    assert errors[round(20 * best)] == min(errors)
    assert (best == 0) == (kind == "right")  # a critic that is right is best trusted at once


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (["101101", 0.0, "right", 1], "The critic is right. With \u03bb = 0.00 and a batch of 64"),
        (["101101", 1.0, "offset", 1], "0 % bias"),
        (["101101", 1.0, "offset", 1], "no mistake of the critic can bias it"),
        (["101101", 0.5, "offset", 0], "The critic is right"),
        (["101101", 0.5, "noisy", 1], "The reward weighs 3 % in the first token's advantage"),
        (["000111", 0.5, "blind", 1], "The reward weighs 25 %"),
        (["101101", 0.0, "late", 1], "late by one token"),
        (["101101", 0.0, "late", 1], "Only the critic's next opinion counts"),
    ],
)
def test_it_says_what_happened(case, words):
    assert words in in_node(f"console.log(JSON.stringify(maths.words(...{json.dumps(case)})))")


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = GaeExplorer("011011", lam=0.5, critic="blind", size=1)
    state = widget.get_state()
    assert (state["response"], state["lam"], state["critic"], state["size"]) == ("011011", 0.5, "blind", 1.0)
    assert state["_esm"] == in_a_notebook(MODULE)
    assert state["alt"] == GaeExplorer.words
    assert GaeExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_the_menu_and_the_widget_offer_the_same_critics():
    assert f"const CRITICS = {json.dumps(CRITICS)[:-1]}" in MODULE.read_text(encoding="utf-8")
    assert tuple(GaeExplorer.critic.values) == CRITICS


@pytest.mark.parametrize(
    "arguments", [{"response": "10110"}, {"response": "10110a"}, {"lam": 1.5}, {"size": -1}, {"critic": "wise"}]
)
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        GaeExplorer(**arguments)
