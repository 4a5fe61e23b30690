"""What the step explorer shows is what the library's advantages, aggregates and votes give; it says what happened; the
widget is strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import StepExplorer, in_a_notebook
from rlhf_minimal import contrib
from rlhf_minimal.functional import advantages
from rlhf_minimal.lab.process_reward import AGGREGATES
from rlhf_minimal.lab.votes import vote
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "step_explorer.mjs"
NUMBERS = ("min", "mean", "last", "product")
PAYMENTS = ("outcome", "sum", "own", "potential", "change")
G = 4


def cases():
    """Scores at random, of completions of every length, right and wrong answers: the arguments of `compute`."""
    generator = torch.Generator().manual_seed(0)
    for number in range(24):
        scores = [
            (0.05 + 0.9 * torch.rand(int(torch.randint(1, 7, (), generator=generator)), generator=generator)).tolist()
            for _ in range(G)
        ]
        answers = ["qfk"[int(i)] for i in torch.randint(0, 3, (G,), generator=generator)]
        for payment in PAYMENTS:
            yield [scores, answers, NUMBERS[number % 4], payment]
    yield [[[0.5], [0.5], [0.5], [0.5]], ["q", "q", "q", "q"], "min", "own"]
    yield [[[0.9, 0.5], [0.5], [0.9], [0.5]], ["f", "f", "f", "f"], "mean", "sum"]


def paid(scores, rewards, payment):
    """The same by the library: a step is a token, and the answer is one more."""
    T = max(map(len, scores)) + 1
    lengths = torch.tensor([len(own) + 1 for own in scores])
    mask = (torch.arange(T) < lengths[:, None]).double()
    place = (torch.arange(T) == lengths[:, None] - 1).double()
    marks = torch.zeros(G, T).double()
    for i, own in enumerate(scores):
        marks[i, : len(own)] = torch.tensor(own, dtype=torch.float64)
    R = torch.tensor(rewards, dtype=torch.float64)
    both, options = marks + place * R[:, None], {"group_size": G}
    if payment == "outcome":
        A = advantages.group_normalized(place * R[:, None], mask, **options)
    elif payment == "sum":
        A = contrib.advantages.process(both, mask, step_ends=mask, **options)
    elif payment == "own":
        A = contrib.advantages.own_step(both, mask, step_ends=mask - place, **options)
    else:  # shaped rewards: the outcome, and differences of a potential that begins at the group's mean
        before = torch.cat([R.mean().expand(G, 1), marks[:, :-1]], 1)
        after = marks * (1 - place)
        shaped = place * R[:, None] + after - before
        if payment == "potential":
            A = advantages.returns_to_go(shaped * mask, mask)
        else:
            A = shaped
    return [A[i, : len(own) + 1].tolist() for i, own in enumerate(scores)]


def compare(computed):
    """Used by tests/browser, too."""
    wanted = list(cases())
    assert len(computed) == len(wanted) > 100
    for got, (scores, answers, aggregate, payment) in zip(computed, wanted, strict=True):
        rewards = [float(answer == "q") for answer in answers]
        weights = [AGGREGATES[aggregate](torch.tensor(own, dtype=torch.float64).logit()).item() for own in scores]
        assert got["rewards"] == rewards
        assert got["numbers"] == pytest.approx(weights, abs=1e-9)
        share, tie = vote(answers, [bool(r) for r in rewards], weights)
        assert (len(got["winners"]) > 1) == tie
        assert ("q" in got["winners"]) / len(got["winners"]) == pytest.approx(share)
        assert got["best"] == [i for i, w in enumerate(weights) if w > max(weights) - 1e-9]
        for own, right in zip(got["advantages"], paid(scores, rewards, payment), strict=True):
            assert own == pytest.approx(right, abs=1e-9)


in_node = partial(run_in_node, MODULE)


def said(*arguments):
    return in_node(f"console.log(JSON.stringify(maths.words(...{json.dumps(arguments)})))")


def test_its_numbers_are_the_librarys():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(list(cases()))}.map((c) => maths.compute(...c))))"))


def test_examples_are_what_their_names_say():
    examples = in_node("console.log(JSON.stringify(maths.examples))")
    lucky = examples["a lucky answer"]
    assert lucky["answers"][1] == "q"
    assert min(lucky["scores"][1]) == 0.1
    easy = examples["easy steps at the end"]
    assert said(easy["scores"], easy["answers"], "mean", "outcome").count("f wins, which is wrong") == 1
    assert said(easy["scores"], easy["answers"], "min", "outcome").count("q wins, which is right") == 1
    doubt = examples["a doubt on the way"]
    assert said(doubt["scores"], doubt["answers"], "last", "outcome").count("q wins, which is right") == 1
    assert said(doubt["scores"], doubt["answers"], "min", "outcome").count("f wins, which is wrong") == 1
    assert "q" not in examples["all wrong"]["answers"]
    for one in examples.values():
        StepExplorer(one["scores"], one["answers"])


def test_it_says_who_wins_and_who_is_paid():
    text = said([[0.9, 0.9], [0.9, 0.1], [0.5], [0.5]], ["q", "q", "f", "f"], "min", "own")
    assert "Votes weighted by the min: f 1.00, q 1.00; a tie of f and q." in text
    assert "Best single completion by the min: 1." in text
    assert "of completions 1 and 2." in text
    text = said([[0.5], [0.5], [0.5], [0.5]], ["f", "f", "f", "k"], "mean", "outcome")
    assert "f wins, which is wrong" in text
    assert "all first steps get the same" in text


def test_one_more_easy_step_is_paid_by_the_sum_and_not_by_the_potential():
    short, long = ([0.9, 0.5], [0.5], [0.1], [0.5]), ([0.9, 0.5, 0.9], [0.5], [0.1], [0.5])
    answers = ["q", "f", "f", "k"]

    def of_the_first_step(scores, payment):
        arguments = json.dumps([scores, answers, "min", payment])
        return in_node(f"console.log(JSON.stringify(maths.compute(...{arguments}).advantages[0][0]))")

    first = {
        payment: [of_the_first_step(scores, payment) for scores in (short, long)]
        for payment in ("sum", "potential", "outcome")
    }
    assert first["sum"][1] > first["sum"][0]
    assert first["potential"][0] == first["potential"][1]
    assert first["outcome"][0] == first["outcome"][1]


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = StepExplorer(aggregate="last", payment="change")
    state = widget.get_state()
    assert (state["aggregate"], state["payment"], state["answers"]) == ("last", "change", ["q", "q", "f", "f"])
    assert state["_esm"] == in_a_notebook(MODULE)
    assert StepExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_menus_and_widget_offer_the_same():
    assert list(in_node("console.log(JSON.stringify(maths.payments))")) == StepExplorer.payment.values == list(PAYMENTS)
    assert (
        list(in_node("console.log(JSON.stringify(maths.aggregates))")) == StepExplorer.aggregate.values == list(NUMBERS)
    )
    first = in_node("console.log(JSON.stringify(maths.examples['a lucky answer']))")
    assert [list(own) for own in StepExplorer().scores] == first["scores"]
    StepExplorer([[0.5] * in_node("console.log(JSON.stringify(maths.most))")] * 4)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"scores": [[0.5]] * 3}, traitlets.TraitError),
        ({"scores": [[0.5]] * 3 + [[1.5]]}, traitlets.TraitError),
        ({"scores": [[0.5]] * 3 + [[]]}, ValueError),
        ({"scores": [[0.5]] * 3 + [[0.5] * 7]}, ValueError),
        ({"answers": ["q"]}, traitlets.TraitError),
        ({"aggregate": "median"}, traitlets.TraitError),
        ({"payment": "fine"}, traitlets.TraitError),
    ],
)
def test_the_widget_refuses_what_it_cannot_show(arguments, error):
    with pytest.raises(error):
        StepExplorer(**arguments)
