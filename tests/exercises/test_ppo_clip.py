"""What is peculiar to the exercises on clipping: solutions against enumeration and the library, bugs by number."""

import io
from contextlib import redirect_stdout

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.ppo_clip.leak import my_ratios
from rlhf_book.exercises.ppo_clip.length import my_expected_step
from rlhf_book.exercises.ppo_clip.promise import my_excess
from rlhf_book.exercises.ppo_clip.variance import my_variance
from rlhf_book.tabular import Tree
from rlhf_minimal.functional import aggregation, gates

IDS = [f"ppo-clip-{name}" for name in ("promise", "leak", "variance", "weight", "loss", "length")]


def test_the_exercises_of_the_core_come_first():
    assert [name for name in EXERCISES if name.startswith("ppo-clip-")] == IDS


def test_the_variance_is_that_of_samples():
    old, new, A = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [1.0, 0.5, -1.0]], dtype=torch.float64)
    drawn = torch.multinomial(old, 400_000, True, generator=torch.Generator().manual_seed(0))
    assert ((new / old * A)[drawn]).var().item() == pytest.approx(my_variance(old, new, A).item(), rel=0.02)
    tree = Tree(vocab=3, length=1)
    a, b = tree.random_logits(0), tree.random_logits(1)
    ones = torch.ones(3, dtype=torch.float64)
    assert torch.isclose(my_variance(a.softmax(-1)[0], b.softmax(-1)[0], ones), tree.chi2(b, a))


def test_the_promise_against_the_tree():
    """The same two tokens as a policy over every response: the surrogate by enumeration, with exact advantages."""
    tree = Tree(vocab=3, length=2)
    old, new = (torch.zeros(len(tree.prefixes), 3, dtype=torch.float64) for _ in range(2))
    a = tree.prefixes.index((1,))
    for table, p, q in ((old, 0.5, 0.6), (new, 0.58, 0.5)):
        table[0] = torch.tensor([(1 - p) / 2, p, (1 - p) / 2], dtype=torch.float64).log()
        table[a] = torch.tensor([(1 - q) / 2, (1 - q) / 2, q], dtype=torch.float64).log()
    R = torch.tensor([float(s == (1, 2)) for s in tree.sequences], dtype=torch.float64)
    V = tree.values(old, tree.outcome(R))
    after = torch.cat([V[:, 1:], torch.zeros(len(tree), 1)], 1)  # V of the next prefix; 0 behind the end
    A = (tree.outcome(R) + after - V) * tree.mask
    ratio = (tree.logp(new) - tree.logp(old)).exp()
    assert ((ratio - 1).abs() < 0.2 + 1e-9)[0].all()
    promised = tree.expect(old, (ratio - 1) * A)
    gained = tree.expect(new, R) - tree.expect(old, R)
    assert (promised - gained).item() == pytest.approx(my_excess(0.5, 0.6, 0.58, 0.5))
    assert my_excess(0.5, 0.6, 0.58, 0.5) > 0


@pytest.mark.parametrize(("p", "over"), [(0.49, False), (0.51, True)])
def test_above_one_half_the_others_leave_the_band(p, over):
    ratios = my_ratios(torch.tensor([p, (1 - p) / 3, 2 * (1 - p) / 3]), 0, 0.2)
    assert bool((ratios[1:] > 1.2).all()) == over


def test_the_mean_within_a_response_is_the_librarys():
    """Responses of equal tokens: sequence_mean, weighted by the probabilities, against the exercise's formula."""
    generator = torch.Generator().manual_seed(0)
    logits, R = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([1, 4, 2, 7, 3])
    logits.requires_grad_()
    pi = logits.softmax(-1)
    mask = (torch.arange(7) < lengths[:, None]).double()
    # A response's log-prob stands on its first token; the others are certain.
    first = torch.nn.functional.one_hot(torch.zeros(5, dtype=torch.long), 7).double()
    ratio = (first * (pi.log() - pi.log().detach())[:, None]).exp()
    step = 0
    for n in range(5):
        terms = gates.clip(ratio[n : n + 1], R[n].expand(1, 7).clone(), low=0.2, high=0.2)
        totals = aggregation.Totals(sequences=1, tokens=int(lengths[n]), budget=None)
        one = aggregation.sequence_mean(terms, mask[n : n + 1], totals=totals)
        step = step + pi[n].item() * torch.autograd.grad(one, logits, retain_graph=True)[0]
    torch.testing.assert_close(step, my_expected_step(logits.detach(), R, lengths))


def printed(bug, code):
    with redirect_stdout(io.StringIO()) as out:
        BUGS[bug].symptom(code)
    return out.getvalue().splitlines()


def test_the_bad_token_falls_without_end_and_stops_when_mended():
    bug = BUGS["maximum-for-bad"]
    wrong, right = (float(printed(bug.id, code)[-1].split()[-1]) for code in (bug.wrong, bug.mended))
    assert wrong < 0.3
    assert 0.7 < right < 0.8
    ratio, A = torch.tensor([[0.5, 1.0, 1.5]]), torch.tensor([[-1.0, 2.0, -0.5]])
    torch.testing.assert_close(bug.mended(ratio[0], A[0])[None], gates.clip(ratio, A, low=0.2, high=0.2))


def test_the_fraction_is_zero_where_nobody_is_silenced():
    bug = BUGS["clip-fraction"]
    assert [line.split()[-1] for line in printed(bug.id, bug.wrong)] == ["80%"] * 3
    assert [line.split()[-1] for line in printed(bug.id, bug.mended)] == ["80%", "0%", "0%"]


def test_a_clip_that_remembers_stops():
    bug = BUGS["forgetful-clip"]
    wrong, right = ([float(line.split()[5]) for line in printed(bug.id, code)] for code in (bug.wrong, bug.mended))
    assert wrong[0] == right[0]
    assert wrong[-1] > 3.9
    assert right[-1] == right[-2] < 1.7
