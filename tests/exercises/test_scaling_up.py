"""What the exercises and bugs on scaling up say, held to the library and to plain arithmetic."""

import math

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.scaling_up.checkpoint import my_most_kept
from rlhf_book.exercises.scaling_up.decode import my_tokens_per_second
from rlhf_book.exercises.scaling_up.lora import my_lora
from rlhf_book.exercises.scaling_up.verifier import HACKS, HONEST, completion, my_verifier
from rlhf_minimal.functional import aggregation
from rlhf_minimal.models import add_lora, tiny_llama
from rlhf_minimal.objective import Totals
from tests.tasks.false_positives import FALSE_POSITIVES


def test_the_best_interval_is_the_one_that_is_named():
    """n x / k + k a is least at sqrt(n x / a), which is above 1 for 30 layers only where insides are small."""
    for inside, wanted in ((20, 1), (1, round(math.sqrt(30)))):
        best = min(range(1, 31), key=lambda k: my_most_kept(30, k, 1, inside))
        assert abs(best - wanted) <= 1
    assert min(range(1, 31), key=lambda k: my_most_kept(30, k, 1, 20)) == 1


def test_the_bend_does_not_move_with_the_size():
    for parameters in (1.0, 70.0):
        few, more = (my_tokens_per_second(parameters, rows, 2, 2.0, 400.0) for rows in (200, 400))
        assert few == more  # 2 * 400 / (2 * 2) = 200 rows
        assert my_tokens_per_second(parameters, 100, 2, 2.0, 400.0) == pytest.approx(few / 2)


def test_the_corrected_layer_is_the_librarys():
    policy = tiny_llama(13, width=32, layers=1, heads=4)
    add_lora(policy, rank=3, alpha=5.0)
    layer = policy.model.layers[0].mlp.up_proj
    up, down = layer.lora_B["default"].weight, layer.lora_A["default"].weight
    torch.nn.init.normal_(up)
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(my_lora(x, layer.base_layer.weight, down, up, 5.0), layer(x))


def test_the_mended_loss_is_the_librarys():
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(6) < torch.tensor([[2], [6], [1]])).float()
    objective = torch.randn(3, 6, generator=generator)
    found = BUGS["shared-mean"].mended(objective, mask, 2)
    torch.testing.assert_close(found, -aggregation.token_mean(objective, mask, totals=Totals.of(mask)))


def test_the_verifier_accepts_the_honest_completions_and_no_hack():
    """Case by case, from what each is, and not from what the solution says of it."""
    exercise = EXERCISES["scale-verifier"]
    seen = set()
    for case in (*exercise.cases, *exercise.hidden()):
        seen.add(case.kind)
        assert my_verifier(*case.arguments.values()) is (case.kind == "honest completions"), case
    assert seen == {"honest completions", *HACKS}


def test_every_hack_holds_the_right_number_or_another_one():
    """A template whose numbers are not filled in would be refused for that alone."""
    for template in (*HONEST, *(text for texts in HACKS.values() for text in texts)):
        assert "<" not in completion(template, 12, 13)


@pytest.mark.parametrize(("text", "answer", "why"), FALSE_POSITIVES)
def test_the_verifier_refuses_what_the_librarys_refuse(text, answer, why):
    assert not my_verifier(text, answer), why


@pytest.mark.parametrize("kind", HACKS)
def test_a_verifier_with_one_hole_is_told_which(kind):
    """Right, except that one kind of hack gets through."""
    exercise = EXERCISES["scale-verifier"]
    accepted = {tuple(case.arguments.values()) for case in (*exercise.cases, *exercise.hidden()) if case.kind == kind}
    verdict = exercise.check(lambda *given: given in accepted or my_verifier(*given))
    assert not verdict.passed
    listed = [mistake.message for mistake in exercise.mistakes]
    assert f"Judged wrongly: {kind}." in verdict.message or verdict.message in listed
