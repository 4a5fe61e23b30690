"""The checks that everything else leans on: each refuses what it names, and lets pass what it should."""

import pytest
import torch

from rlhf_minimal.functional import checks


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.check_positive, [1e-9, 3, float("inf")], [0, -1.0, float("nan"), "1", None, True, torch.ones(())]),
        (checks.check_not_negative, [0, 0.0, 2.5], [-1e-9, float("nan"), "1", None, False]),
        (checks.check_share, [0, 0.5, 1], [-1e-9, 1 + 1e-9, float("nan"), "1", None]),
        (checks.check_count, [1, 7], [0, -1, 1.0, True, "1", None]),
    ],
)
def test_options(check, good, bad):
    for value in good:
        check(option=value)
    for value in bad:
        with pytest.raises(ValueError, match=r"option is .*, expected a "):
            check(option=value)


def test_ddof():
    checks.check_ddof(0)
    checks.check_ddof(1)
    with pytest.raises(ValueError, match=r"ddof is 2, expected 1 \(sample standard deviation\) or 0"):
        checks.check_ddof(2)


def test_groups():
    checks.check_group(6, 3, at_least=3)
    checks.check_group(6, 1)
    with pytest.raises(ValueError, match="7 sequences do not divide into groups of 3"):
        checks.check_group(7, 3)
    with pytest.raises(ValueError, match="group_size is 1, but a group baseline .* at least 2: sample more"):
        checks.check_group(6, 1, at_least=2)
    for wrong in (0, -2, 2.0, None):
        with pytest.raises(ValueError, match="group_size is .*, expected a whole number"):
            checks.check_group(6, wrong)


def test_completions():
    checks.check_completions(torch.tensor([[1, 0], [0, 1]]))
    with pytest.raises(ValueError, match="chosen_mask is zero everywhere in row 1: a completion has at least its EOS"):
        checks.check_completions(torch.tensor([[1, 0], [0, 0], [0, 0]]), "chosen_mask")


def test_masks():
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64):
        checks.check_mask(torch.tensor([[1, 0]]).to(dtype))
    for wrong in (torch.ones(3), torch.ones(1, 2, 3), torch.ones(0, 3), torch.ones(3, 0)):
        with pytest.raises(ValueError, match=r"ends has shape .*, expected \[B, T\]"):
            checks.check_mask(wrong, "ends")
    with pytest.raises(ValueError, match="must hold only 0 and 1"):
        checks.check_mask(torch.tensor([[1.0, 0.3]]))
    with pytest.raises(ValueError, match="mask is a list, expected a tensor"):
        checks.check_mask([[1, 0]])


def test_tokens_and_whole_batches():
    empty = torch.zeros(1, 2)
    checks.check_tokens(empty, logp=torch.full((1, 2), float("nan")))
    with pytest.raises(ValueError, match="zero everywhere"):
        checks.check(empty, logp=torch.zeros(1, 2))
    with pytest.raises(ValueError, match="logp is not finite on a trained token"):
        checks.check(torch.ones(1, 2), logp=torch.tensor([[0.0, float("inf")]]))


def test_tensors():
    checks.check_floating("rewards", torch.ones(2, dtype=torch.bfloat16))
    checks.check_integers("ids", torch.ones(2, dtype=torch.uint8))
    for wrong in (torch.ones(2), torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.complex64)):
        with pytest.raises(ValueError, match=r"ids has dtype .*, expected integers: call \.long\(\)"):
            checks.check_integers("ids", wrong)
    with pytest.raises(ValueError, match=r"rewards has dtype torch.int64, expected floating point: call \.float\(\)"):
        checks.check_floating("rewards", torch.ones(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="rewards is a ndarray, expected a tensor"):
        checks.check_tensor("rewards", torch.ones(2).numpy())
    with pytest.raises(ValueError, match=r"x \(2,\) and y \(1,\) must have one shape"):
        checks.check_same_shape(x=torch.ones(2), y=torch.ones(1))


def test_rows():
    checks.check_rows("rewards", torch.ones(3), 3)
    checks.check_rewards(torch.ones(3))
    for wrong in (torch.ones(3, 1), torch.ones(1), torch.ones(())):
        with pytest.raises(ValueError, match=r"rewards has shape .*, expected \(3,\): one number for each sequence"):
            checks.check_rows("rewards", wrong, 3)
    for wrong in (torch.ones(3, 1), torch.ones(0), torch.ones(())):
        with pytest.raises(ValueError, match=r"rewards have shape .*, expected \[B\]"):
            checks.check_rewards(wrong)
    with pytest.raises(ValueError, match="rewards holds a number that is not finite: score the completion"):
        checks.check_rewards(torch.tensor([1.0, float("nan")]))


def test_log_probs_are_told_from_their_negatives_by_rounding():
    """Half precision may lift a log-prob above 0 by `ROUNDING`; both ends of that span are themselves rounding."""
    edge = checks.ROUNDING
    assert edge == 1e-3

    def pair(first, second):
        a, b = (torch.tensor(numbers, dtype=torch.float64) for numbers in (first, second))
        checks.check_logprobs(a=a, b=b)

    def alone(*numbers):
        checks.check_logprobs(a=torch.tensor(numbers, dtype=torch.float64))

    alone(-1.0, 0.5)
    alone(-edge, edge)
    for refused in ((0.0, 0.5), (-edge, 1.0), (0.0, 1.1 * edge)):
        with pytest.raises(ValueError, match=r"a: .* pass log pi instead of -log pi"):
            alone(*refused)
    pair((0.0, 0.5), (-edge, 0.0))  # the second may be anything
    for log_probs in ((-1.0, 0.0), (-1.0, edge)):
        with pytest.raises(ValueError, match=r"^a: 0 and more"):
            pair((0.0, 0.5), log_probs)


def test_temperatures():
    for good in (checks.COLDEST, 1e-5, 1, 7.5):
        checks.check_temperature(good)
    for bad in (0, -1.0, float("inf"), float("nan"), "1", True):
        with pytest.raises(ValueError, match="temperature is .*, expected a finite number above 0"):
            checks.check_temperature(bad)
    with pytest.raises(ValueError, match="below 1e-06 logits overflow: give a higher one, or sample greedily"):
        checks.check_temperature(9e-7)


def test_names():
    checks.check_name("--out", "runs/ä b-1")
    for character in ("\n", "\x1b", "\x7f", "\ud800", "\u2028", "\u2029"):  # Cc, Cs, Zl, Zp
        with pytest.raises(ValueError, match=r"--out holds a control character \(.*\): take it out"):
            checks.check_name("--out", f"a{character}b")


def test_tokens_look_at_their_mask_too():
    with pytest.raises(ValueError, match="mask"):
        checks.check_tokens(torch.full((1, 2), 0.5), logp=torch.zeros(1, 2))
