"""Under each token stands what the library's loss weighs; what is said is true on all transcripts of two turns.

The module runs under Node here; tests/browser moves it, and runs the first comparison inside Chromium.
"""

import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets
from matplotlib.figure import Figure

from rlhf_book.figures.widgets import TurnWeights, in_a_notebook
from rlhf_book.turn_tree import Tree, compare, who_gets_credit, who_is_trained
from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal.functional import advantages, aggregation
from rlhf_minimal.tasks import get_task
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "turn_weights.mjs"
REPLIES, DIVISORS, CREDITS, PRICES = (
    getattr(TurnWeights, name).values for name in ("replies", "divisor", "credit", "price")
)
STATES = list(itertools.product(REPLIES, DIVISORS, CREDITS, PRICES))
TEXT, POLICIES = "?k4?q7!4711=11", 5

in_node = partial(run_in_node, MODULE)


def ask(cases, call):
    """`call`, a function of one case in JavaScript, of all cases."""
    return in_node(f"console.log(JSON.stringify({json.dumps(cases)}.map({call})))")


# Return and weight of each token of the figure's transcript, for one state.
NUMBERS = (
    "([replies, divisor, credit, price]) => { const G = maths.returns(maths.own, maths.rewards(price), credit);"
    " return [G, maths.weights(maths.own, G, replies, divisor)]; }"
)


def expected(replies, divisor, credit, price):
    """Return and weight by the library: discounts by its GAE without a critic, weights by autograd from its loss."""
    own = torch.tensor([[t not in (2, 5, 9, 10) for t in range(15)]]).double()
    paid = torch.zeros(1, 15).double()
    paid[0, 8], paid[0, 14] = -price, 1.0
    gae = partial(advantages.gae, paid, values=torch.zeros_like(paid), lam=1.0)
    everybody = torch.ones_like(own)
    if credit == "one number":
        G = paid.sum() * everybody
    elif credit == "reset":  # each turn as a completion of its own
        G = torch.zeros_like(paid)
        for turn in (slice(0, 2), slice(3, 5), slice(6, 9), slice(11, 15)):
            G[:, turn] = advantages.returns_to_go(paid[:, turn], own[:, turn])
    elif credit == "by policy token":  # a reply, where no time passes, has the return of what follows
        G = gae(own, gamma=0.8)
        for t in (10, 9, 5, 2):
            G[0, t] = 0.8 * G[0, t + 1] if own[0, t + 1] else G[0, t + 1]
    else:
        G = gae(everybody, gamma={"to go": 1.0, "by token": 0.8}[credit])
    mask = everybody if replies == "trained" else own
    count = {"nothing": 1, "policy tokens": 11, "all tokens": 15, "turns": 4}[divisor]
    row = replace(ALGORITHMS["dr_grpo"], kl=())
    logp = torch.zeros_like(own).requires_grad_()
    batch = Batch(logp, logp.detach(), mask, torch.ones(1), 1, budget=count, advantages=G)
    (gradient,) = torch.autograd.grad(policy_loss(row, batch), logp)
    if count == mask.sum():  # the mean over the trained tokens of a row
        mean = replace(row, aggregate=aggregation.sequence_mean)
        (same,) = torch.autograd.grad(policy_loss(mean, batch), logp)
        torch.testing.assert_close(same, gradient)
    return G[0].tolist(), (-gradient[0]).tolist()


def compare_numbers(computed):
    """Used by tests/browser, too."""
    for state, (returns, weights) in zip(STATES, computed, strict=True):
        wanted = expected(*state)
        assert returns == pytest.approx(wanted[0], abs=1e-12), state
        assert weights == pytest.approx(wanted[1], abs=1e-12), state
    assert len(STATES) == 120


def test_its_numbers_are_the_librarys():
    compare_numbers(ask(STATES, NUMBERS))


def test_its_transcript_is_the_chapters():
    tokens, own = in_node("console.log(JSON.stringify([maths.tokens, maths.own]))")
    assert tokens == [*TEXT, "end"]
    entry = [0] * 26
    entry[10], entry[16] = 4, 7
    task = get_task("ledger")
    problem = replace(task.problems("train", 1, seed=0)[0], prompt="k+q:", answer="11", entry=entry)
    heard = {t for a, b in task.replies(TEXT, problem) for t in range(a, b)}
    assert [t for t, who in enumerate(own) if not who] == sorted(heard)
    assert task.verify(TEXT, problem) == 1.0


def returns_and_weights(tree, states):
    """What the figure's own code makes of each transcript of the tree: two [states, N, T]."""
    N, T = tree.own.shape
    lengths = tree.read.sum(1).long().tolist()
    rows = [[tree.own[n, :k].tolist(), tree.rewards[n, :k].tolist()] for n, k in enumerate(lengths)]
    found = in_node(
        f"const rows = {json.dumps(rows)}, states = {json.dumps(states)};"
        "console.log(JSON.stringify(states.map(([replies, divisor, credit]) => rows.map(([own, rewards]) => {"
        " const G = maths.returns(own, rewards, credit);"
        " return [G, maths.weights(own, G, replies, divisor), maths.count(own, divisor)]; }))))"
    )
    G, weights = torch.zeros(2, len(states), N, T, dtype=torch.float64)
    count = torch.tensor([[row[2] for row in state] for state in found], dtype=torch.float64)
    for i, state in enumerate(found):
        for n, (own_G, own_weights, _) in enumerate(state):
            G[i, n, : lengths[n]], weights[i, n, : lengths[n]] = torch.tensor([own_G, own_weights], dtype=torch.float64)
    return G, weights, count


def on_the_tree(price):
    """For each choice cosine and length of its expected gradient on 55 transcripts, without and with a baseline.

    Each is [policies, 2, 2]. The price is paid for asking the short tool.
    """
    states, tree = list(itertools.product(REPLIES, DIVISORS, CREDITS)), Tree(step=-float(price))
    _, weights, count = returns_and_weights(tree, states)
    trained = torch.stack([tree.read if replies == "trained" else tree.own for replies, _, _ in states])
    found = torch.zeros(len(states), POLICIES, 2, 2, dtype=torch.float64)
    for seed in range(POLICIES):
        theta = tree.policy(seed)
        true, mean = tree.true_gradient(theta), tree.probabilities(theta) @ tree.total
        for i in range(len(states)):
            for k, baseline in enumerate((0.0, mean)):
                estimate, _ = tree.estimate(theta, weights[i] - baseline * trained[i] / count[i][:, None])
                along = (estimate * true).sum()
                found[i, seed, k] = torch.stack([along / (estimate.norm() * true.norm()), along / (true**2).sum()])
    return {state: found[i] for i, state in enumerate(states)}


def test_its_returns_on_the_tree_are_the_chapters():
    for step in (0.0, 0.3):
        tree = Tree(step=step)
        theta = tree.policy(0)
        G, _, _ = returns_and_weights(tree, [("masked", "nothing", credit) for credit in CREDITS])
        G, arms = dict(zip(CREDITS, G * tree.own, strict=True)), who_gets_credit(tree, theta)
        mean = tree.probabilities(theta) @ tree.total
        torch.testing.assert_close(G["one number"] - mean * tree.own, arms["one number a transcript"])
        torch.testing.assert_close(G["to go"], tree.to_go() * tree.own)
        torch.testing.assert_close(G["reset"], arms["returns reset at the reply"])
        torch.testing.assert_close(G["by token"], arms["discount by tokens, replies too"])
        torch.testing.assert_close(G["by policy token"], arms["discount by turns"])


def said(*state):
    return ask([state], "(state) => maths.words(...state)")[0]


@pytest.mark.parametrize("price", PRICES)
def test_what_is_called_the_policy_gradient_is_it_and_what_is_called_biased_is_not(price):
    """On all 55 transcripts, with every choice. Two kinds need a word more, and have their tests below."""
    found = on_the_tree(price)
    verdicts = ask([[*state, price] for state in found], "(state) => maths.words(...state)")
    exact = 0
    for (state, numbers), words in zip(found.items(), verdicts, strict=True):
        assert ("This is the policy gradient. " in words) != ("Biased, because " in words)
        cosine, length = numbers.unbind(-1)
        if "This is the policy gradient" in words:
            exact += 1
            torch.testing.assert_close(numbers, torch.ones_like(numbers))
        elif state[0] == "masked" and state[1] == "policy tokens" and state[2] in ("one number", "to go"):
            assert "(1.000, as all write two tokens there)" in words
            torch.testing.assert_close(cosine, torch.ones_like(cosine))
            torch.testing.assert_close(length, torch.full_like(length, 0.5))
        else:  # with the baseline: without one, the divisor by turns does no harm there
            assert (cosine[:, 1] < 1 - 1e-6).all(), (state, cosine)
    assert exact == 2


def test_the_cosines_in_brackets_are_those_of_section_4():
    masks, credit = compare(Tree(), who_is_trained), compare(Tree(), who_gets_credit)
    rows = {
        "trained": masks["replies in the loss"],
        "policy tokens": masks["mean over own tokens"],
        "all tokens": masks["divided by own and replies"],
        "turns": masks["divided by turns"],
        "reset": credit["returns reset at the reply"],
        "by token": credit["discount by tokens, replies too"],
        "by policy token": credit["discount by turns"],
    }
    reasons = in_node("console.log(JSON.stringify(maths.reasons))")
    assert {name: cosine for name, (_, cosine) in reasons.items()} == {
        name: round(row["cosine"], 3) for name, row in rows.items()
    }


def test_a_divisor_that_differs_makes_a_transcript_count_less():
    """`s` and `l` ask tools that say one token and four; a transcript that asks nobody has one turn."""
    _, weights, count = returns_and_weights(Tree(), [("masked", divisor, "one number") for divisor in DIVISORS])
    short, long, alone = map(Tree().texts.index, ("shh", "lhzzzh", "hh"))  # the first two are right
    found = dict(zip(DIVISORS, zip(*weights[:, [short, long], 0].T.tolist(), strict=True), strict=True))
    assert found == {
        "nothing": (1, 1),
        "policy tokens": (1 / 2, 1 / 2),
        "all tokens": (1 / 3, 1 / 6),
        "turns": (1 / 2, 1 / 2),
    }
    assert count[DIVISORS.index("turns"), [short, long, alone]].tolist() == [2, 2, 1]


def test_a_mean_over_the_policys_tokens_is_biased_where_their_number_differs():
    """The policy writes `a`, or `b` and then one of two tokens of which the first is right; here `a` is right, too."""
    theta = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    first, second = theta[:2].log_softmax(0), torch.stack([theta[2], -theta[2]]).log_softmax(0)
    rows = [([first[0]], 1.0), ([first[1], second[0]], 1.0), ([first[1], second[1]], 0.0)]
    chance = torch.stack([sum(logp).exp() for logp, _ in rows])
    reward = torch.tensor([row[1] for row in rows], dtype=torch.float64)
    (true,) = torch.autograd.grad(chance @ reward, theta, retain_graph=True)
    (divided,) = torch.autograd.grad(
        sum(p.detach() * R * sum(logp) / len(logp) for p, (logp, R) in zip(chance, rows, strict=True)), theta
    )
    assert torch.cosine_similarity(true, divided, dim=0) < 0.9


@pytest.mark.parametrize("seed", range(POLICIES))
def test_the_reasons_are_what_happens_on_the_tree(seed):
    tree = Tree()
    theta = tree.policy(seed)
    prefixes = sorted({text[:t] for text in tree.texts for t in range(len(text))})
    arms = [("trained", "nothing", "one number"), *(("masked", "nothing", credit) for credit in CREDITS)]
    _, weights, _ = returns_and_weights(tree, arms)
    means = {arm: tree.estimate(theta, w)[0] for arm, w in zip(arms, weights, strict=True)}
    # replies trained: heads and tails, heard before a success, go up behind a call, where the policy never writes
    extra = means[arms[0]] - means[arms[1]]
    for prefix in "sl":
        change = extra[prefixes.index(prefix)]
        assert change[[2, 3]].sum() > 1e-4
        assert change[[0, 1, 4]].max() < 0
    # the first token, which calls: reset pays it nothing; a discount by tokens pays the long tool's call less
    first = dict(zip(CREDITS, weights[1:, :, 0], strict=True))
    assert means["masked", "nothing", "reset"][prefixes.index("")].abs().max() == 0
    at = tree.texts.index
    assert first["by token"][at("lhzzzh")] < first["by token"][at("shh")] < 1
    assert first["by policy token"][at("lhzzzh")] == first["by policy token"][at("shh")] == 0.8


@pytest.mark.parametrize("price", [0.1, 0.3])
def test_what_it_says_of_a_price(price):
    cases = list(itertools.product(REPLIES, DIVISORS, CREDITS, (0, price)))
    for (_, _, credit, cost), words in zip(cases, ask(cases, "(state) => maths.words(...state)"), strict=True):
        assert ("the answer pays for the call as well, and that is no bias" in words) == (
            cost > 0 and credit == "one number"
        )
        assert ("the answer does not pay for the call before it" in words) == (cost > 0 and credit == "to go")
        assert ("is pushed down although it was right" in words) == (cost > 0 and credit == "reset")
    # The same on the tree, where the short tool has the price: with returns reset its call goes down
    tree = Tree(step=-price)
    _, weights, _ = returns_and_weights(tree, [("masked", "nothing", credit) for credit in CREDITS])
    arms = dict(zip(CREDITS, weights, strict=True))
    prefixes = sorted({text[:t] for text in tree.texts for t in range(len(text))})
    for seed in range(POLICIES):
        mean, _ = tree.estimate(tree.policy(seed), arms["reset"])
        assert mean[prefixes.index("")][tree.vocabulary.index("s")] < 0
    right = tree.texts.index("shh")
    assert arms["one number"][right, [0, 2]].tolist() == pytest.approx([1 - price, 1 - price])
    assert arms["to go"][right, [0, 2]].tolist() == pytest.approx([1 - price, 1])


def test_without_a_price_the_returns_to_go_are_one_number():
    assert "Nothing is paid on the way, so all have the same return." in said("masked", "nothing", "to go", 0)
    G, weights, _ = returns_and_weights(Tree(), [("masked", "nothing", credit) for credit in ("one number", "to go")])
    torch.testing.assert_close(*G)
    torch.testing.assert_close(*weights)


def test_replies_whose_return_is_reset_are_in_the_loss_and_do_nothing():
    for (replies, _, credit, _), words in zip(STATES, ask(STATES, "(state) => maths.words(...state)"), strict=True):
        silent = replies == "trained" and credit == "reset"
        assert ("The replies are in the loss, but their return is 0." in words) == silent
        assert ("because the replies are trained" in words) == (replies == "trained" and not silent)
    _, weights, _ = returns_and_weights(Tree(step=-0.1), [(who, "nothing", "reset") for who in REPLIES])
    torch.testing.assert_close(*weights)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            ("masked", "nothing", "one number", 0),
            "The policy's tokens weigh 1.00, the replies 0. This is the policy gradient. ",
        ),
        (("trained", "all tokens", "one number", 0), "weigh 0.067, the replies 0.067. Biased, because the replies"),
        (
            ("trained", "all tokens", "one number", 0),
            "(0.798), and because a transcript counts less the more its tools",
        ),
        (("trained", "all tokens", "one number", 0), "in section 4, each alone."),
        (("masked", "nothing", "by token", 0), "weigh 0.044 to 1.00, the replies 0."),
        (("masked", "nothing", "by policy token", 0), "weigh 0.11 to 1.00, the replies 0."),
        (("masked", "nothing", "reset", 0.3), "weigh \u22120.30 to 1.00, the replies 0."),
        (("masked", "nothing", "reset", 0.3), "in section 4, without a price. The call earns"),
    ],
)
def test_it_says_what_it_shows(state, words):
    assert words in said(*state)


def test_the_widget_carries_its_source_its_words_and_a_picture_and_offers_what_the_module_does():
    drawn = Figure()
    drawn.add_subplot().plot([0, 1])
    widget = TurnWeights("trained", credit="reset", static=drawn)
    state = widget.get_state()
    assert (state["replies"], state["divisor"], state["credit"], state["price"]) == ("trained", "nothing", "reset", 0)
    assert state["_esm"] == in_a_notebook(MODULE)
    assert TurnWeights.words in repr(widget)
    assert widget._repr_mimebundle_()[0]["image/svg+xml"].startswith("<svg ")
    assert "http" not in MODULE.read_text(encoding="utf-8")
    for name, values in (("replies", REPLIES), ("divisors", DIVISORS), ("credits", CREDITS)):
        assert list(in_node(f"console.log(JSON.stringify(maths.{name}))")) == values
    assert in_node("console.log(JSON.stringify(Object.keys(maths.prices).map(Number).sort()))") == PRICES


def test_the_buttons_count_what_the_transcript_has():
    labels, counts = in_node(
        "const { divisors, count, own } = maths;"
        "console.log(JSON.stringify([divisors, Object.keys(divisors).map((d) => count(own, d))]))"
    )
    for label, count in list(zip(labels.values(), counts, strict=True))[1:]:
        assert f"({count})" in label


@pytest.mark.parametrize(
    "arguments", [{"replies": "half"}, {"divisor": "all"}, {"credit": "gae"}, {"price": 0.2}, {"price": "free"}]
)
def test_the_widget_refuses_what_has_no_button(arguments):
    with pytest.raises(traitlets.TraitError):
        TurnWeights(**arguments)
