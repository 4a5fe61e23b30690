"""Pairs, their labels and how good a judge of them is: exactly, by listing all outcomes, and on samples of a policy."""

import itertools
import math
import random
import statistics
from dataclasses import replace

import pytest
import torch

from rlhf_minimal import PAIRWISE
from rlhf_minimal.fit import reward_model_loss
from rlhf_minimal.lab.reward_model_quality import bayes_accuracy, calibration, evaluate_reward_model, expected_accuracy
from rlhf_minimal.lab.sampled_rows import label_pair, sample_pairs, write_completions
from rlhf_minimal.models import RewardModel, Vocabulary, tiny_llama
from rlhf_minimal.tasks import PairRow, Problem, Task


def worth(text):
    return sum({"0": 0.0, "1": 0.5, "2": 1.0, "?": -1.0}[character] for character in text)


NUMBERS = Task(
    name="numbers",
    about="as many large digits as possible",
    alphabet="012?",
    max_new_tokens=2,
    make=lambda rng: Problem("".join(rng.choice("012") for _ in range(4)) + "?", ""),
    verify=lambda completion, problem: float(worth(completion)),
)
VOCABULARY = Vocabulary(NUMBERS.alphabet)


def policy(seed=0, sharpness=1.0):
    model = tiny_llama(len(VOCABULARY), width=16, layers=1, heads=2, seed=seed)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(sharpness)
    return model


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def logit(p):
    return math.log(p / (1 - p))


# --- labels --------------------------------------------------------------------------------------------------------


class Coin(random.Random):
    """Always the same draw."""

    def __init__(self, draw):
        super().__init__(0)
        self.draw = draw

    def random(self):
        return self.draw


@pytest.mark.parametrize("difference", [x / 2 for x in range(-20, 21)])
def test_the_first_answer_wins_with_the_probability_of_bradley_and_terry(difference):
    """The draw at which the label flips is the probability itself."""
    answers, gold, p = ("one", "two"), (1.5 + difference, 1.5), sigmoid(difference)
    just_below, just_above = (label_pair("12?", answers, gold, Coin(p + x)) for x in (-1e-12, 1e-12))
    assert just_below == PairRow("12?", "one", "two", 1.5 + difference, 1.5)
    assert just_above == PairRow("12?", "two", "one", 1.5, 1.5 + difference)


# --- how good a judge can be, and is -------------------------------------------------------------------------------


@pytest.mark.parametrize("gold", [(0.0, 0.5, -2.0), (3.0, -3.0, 1.0, -0.5), (0.0, 0.0)])
def test_the_limit_is_the_best_of_all_judges_over_all_labels(gold):
    """Every judge is a choice for each pair, every outcome a label for each pair: both are listed."""
    choices = list(itertools.product([1, -1], repeat=len(gold)))

    def agreement(judge):
        total = 0.0
        for labels in choices:
            probability = math.prod(sigmoid(label * d) for label, d in zip(labels, gold, strict=True))
            total += probability * statistics.mean(a == b for a, b in zip(judge, labels, strict=True))
        return total

    of_all = {judge: agreement(judge) for judge in choices}
    best = bayes_accuracy(torch.tensor(gold))
    assert best == pytest.approx(max(of_all.values()), abs=1e-12)
    for judge, share in of_all.items():
        scores = torch.tensor([0.3 * choice for choice in judge])
        assert expected_accuracy(scores, torch.tensor(gold)) == pytest.approx(share, abs=1e-12)
    undecided = expected_accuracy(torch.zeros(len(gold)), torch.tensor(gold))
    assert undecided == pytest.approx(statistics.mean(of_all.values())) == pytest.approx(0.5)


def test_calibration_is_the_table_one_would_write_by_hand():
    """Two bins, 0.50 to 0.75 and 0.75 to 1. A judge that is sure and wrong counts with its confidence."""
    differences = [logit(0.6), -logit(0.7), logit(0.65), 0.0, logit(0.8), -logit(0.9), 100.0]
    found = calibration(torch.tensor(differences), bins=2, resamples=50)
    low, high = found.table
    assert (low["from"], low["to"], high["from"], high["to"]) == (0.5, 0.75, 0.75, 1.0)
    assert (low["pairs"], high["pairs"]) == (4, 3)
    assert low["confidence"] == pytest.approx((0.6 + 0.7 + 0.65 + 0.5) / 4, abs=1e-6)
    assert low["right"] == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    assert high["confidence"] == pytest.approx((0.8 + 0.9 + 1.0) / 3, abs=1e-6)
    assert high["right"] == pytest.approx(2 / 3)
    by_hand = (4 * abs(0.625 - 0.6125) + 3 * abs(2 / 3 - 0.9)) / 7
    assert found.error == pytest.approx(by_hand, abs=1e-6)
    assert str(found).startswith(f"{by_hand:.3f} +- ")


def test_spread_and_floor_of_one_bin_are_those_of_a_binomial():
    """Twelve pairs of confidence 0.7, nine of them right: both numbers are sums over the thirteen outcomes."""
    n, confidence, right = 12, 0.7, 9
    signs = torch.tensor([1.0] * right + [-1.0] * (n - right))
    found = calibration(signs * logit(confidence), bins=1, resamples=5000)

    def outcomes(p):
        return [(math.comb(n, k) * p**k * (1 - p) ** (n - k), abs(k / n - confidence)) for k in range(n + 1)]

    floor = sum(p * gap for p, gap in outcomes(confidence))
    mean = sum(p * gap for p, gap in outcomes(right / n))
    spread = math.sqrt(sum(p * (gap - mean) ** 2 for p, gap in outcomes(right / n)))
    assert found.floor == pytest.approx(floor, rel=0.05)
    assert found.spread == pytest.approx(spread, rel=0.05)
    assert found.error == pytest.approx(0.05, abs=1e-6)


def test_a_calibrated_judge_is_at_the_floor_and_one_that_is_too_sure_is_not():
    generator = torch.Generator().manual_seed(0)
    gaps = 2 * torch.randn(4000, generator=generator, dtype=torch.float64)
    right = torch.rand(4000, generator=generator, dtype=torch.float64) < gaps.sigmoid()
    differences = torch.where(right, gaps, -gaps)  # of the chosen answer and the other, as labels fell
    honest, bold, shy = (calibration(scale * differences) for scale in (1.0, 2.0, 0.5))
    assert abs(honest.error - honest.floor) < 3 * honest.spread
    assert bold.error > bold.floor + 5 * bold.spread
    assert shy.error > shy.floor + 5 * shy.spread
    assert bold.table[-1]["right"] < bold.table[-1]["confidence"] - 0.02
    assert calibration(differences) == honest
    assert calibration(differences, seed=1) != honest


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [math.inf]])
def test_calibration_needs_finite_scores(bad):
    with pytest.raises(ValueError, match="at least one pair, and finite scores"):
        calibration(torch.tensor(bad))


class Known(RewardModel):
    """A reward model whose scores are given."""

    def __init__(self, scores):
        self.scores = scores

    def raw_scores(self, prompts, completions):
        assert len(completions) <= 1000
        return torch.tensor([self.scores[pair] for pair in zip(prompts, completions, strict=True)])


def judged(n, seed=0):
    """Pairs with gold scores, and a judge that sees them blurred."""
    rng, rows, scores = random.Random(seed), [], {}
    for i in range(n):
        gold = [rng.choice([-2.0, 0.5, 1.0, 3.0]) for _ in range(2)]
        rows.append(PairRow(f"p{i}", "w", "l", *gold))
        scores |= {(f"p{i}", text): g + rng.choice([-1.0, 0.0, 1.0]) for text, g in zip("wl", gold, strict=True)}
    return rows, scores


def test_a_judgement_with_gold_scores_is_what_the_formulas_say():
    rows, scores = judged(700)  # more than one forward holds
    found = evaluate_reward_model(Known(scores), rows)
    gaps = [scores[row.prompt, "w"] - scores[row.prompt, "l"] for row in rows]
    golds = [row.score_chosen - row.score_rejected for row in rows]
    assert found.pairs == 700
    assert found.accuracy == pytest.approx(statistics.mean((x > 0) + 0.5 * (x == 0) for x in gaps))
    assert found.loss == pytest.approx(statistics.mean(-math.log(sigmoid(x)) for x in gaps), abs=1e-5)
    assert found.bayes == pytest.approx(statistics.mean(sigmoid(abs(g)) for g in golds))
    by_hand = statistics.mean(
        0.5 if x == 0 else sigmoid(math.copysign(g, g * x)) for x, g in zip(gaps, golds, strict=True)
    )
    assert found.expected_accuracy == pytest.approx(by_hand)
    assert 0.5 < found.expected_accuracy < found.bayes
    answers = [(scores[row.prompt, "w"], row.score_chosen) for row in rows]
    answers += [(scores[row.prompt, "l"], row.score_rejected) for row in rows]
    assert found.gold_correlation == pytest.approx(statistics.correlation(*zip(*answers, strict=True)))
    assert found.calibration == calibration(torch.tensor(gaps))
    assert "best possible model has" in str(found)
    assert found.as_json()["calibration"]["table"] == found.calibration.table


def test_a_judgement_without_gold_scores_says_nothing_of_them():
    rows, scores = judged(20)
    rows[7] = replace(rows[7], score_rejected=None)
    found = evaluate_reward_model(Known(scores), rows)
    assert (found.expected_accuracy, found.bayes, found.gold_correlation) == (None, None, None)
    assert found.accuracy == evaluate_reward_model(Known(scores), judged(20)[0]).accuracy
    assert "judge has" not in str(found)


def test_where_all_scores_are_equal_there_is_no_correlation():
    rows, scores = judged(5)
    found = evaluate_reward_model(Known(dict.fromkeys(scores, 1.0)), rows)
    assert found.gold_correlation is None
    assert (found.accuracy, found.expected_accuracy) == (0.5, 0.5)
    assert "correlation" not in str(found)


def test_the_loss_is_bradley_terrys_on_raw_scores():
    reward_model = RewardModel.from_policy(policy(), VOCABULARY)
    rows = [PairRow("12?", "1", "22"), PairRow("0?", "", "1"), PairRow("2?", "20", "0")]
    by_hand = 0.0
    for row in rows:
        better, worse = (reward_model.raw_scores([row.prompt], [text]).item() for text in (row.chosen, row.rejected))
        by_hand -= math.log(sigmoid(better - worse)) / 3
    for _ in range(2):
        loss = reward_model_loss(PAIRWISE["bradley_terry"], reward_model, rows)
        assert loss.item() == pytest.approx(by_hand, abs=1e-5)
        reward_model.normalize(["1?", "2?"], ["0", "1"])  # makes no difference
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in reward_model.model.parameters())


# --- pairs of a policy's samples -----------------------------------------------------------------------------------


def test_pairs_are_never_equal_or_empty_and_each_side_asks_its_own_problems():
    prompts = [problem.prompt for problem in NUMBERS.problems("train", 300, seed=0)]
    texts = write_completions(policy(), VOCABULARY, prompts, group_size=2, max_new_tokens=2, seed="x")
    assert any(one == other for one, other in zip(texts[::2], texts[1::2], strict=True))  # so there is what to refuse
    assert "" in texts
    rows = {split: sample_pairs(policy(), VOCABULARY, NUMBERS, 400, split=split) for split in ("train", "held_out")}
    for split, found in rows.items():
        assert len(found) == 400
        for row in found:
            assert row.chosen != row.rejected
            assert row.chosen.strip()
            assert row.rejected.strip()
            assert NUMBERS.is_held_out(row.prompt) == (split == "held_out")
            assert (row.score_chosen, row.score_rejected) == (worth(row.chosen), worth(row.rejected))
    asked = [{row.prompt for row in found} for found in rows.values()]
    assert not asked[0] & asked[1]


@pytest.mark.filterwarnings("ignore::rlhf_minimal.tasks.VerifierWarning")
def test_every_answer_is_verified_once_and_one_that_the_verifier_fails_on_is_in_no_pair():
    calls = 0

    def verify(completion, problem):
        nonlocal calls
        calls += 1
        if "2" in completion:
            raise RuntimeError("no twos")
        return float(worth(completion))

    rows = sample_pairs(policy(), VOCABULARY, replace(NUMBERS, verify=verify), 5, batch_size=200)
    assert calls == 400  # two answers to each prompt of one round
    for row in rows:
        assert "2" not in row.chosen + row.rejected
        assert (row.score_chosen, row.score_rejected) == (worth(row.chosen), worth(row.rejected))


def test_labels_of_samples_carry_the_noise_that_was_promised():
    rows = sample_pairs(policy(), VOCABULARY, NUMBERS, 4000, seed=1)
    gaps = [row.score_chosen - row.score_rejected for row in rows]
    expected = statistics.mean(sigmoid(abs(gap)) for gap in gaps if gap)
    found = statistics.mean(gap > 0 for gap in gaps if gap)
    assert abs(found - expected) < 4 * (0.25 / len(gaps)) ** 0.5
    assert 0.6 < expected < 0.9


def test_pairs_come_from_their_seed_and_from_nothing_else():
    before = torch.random.get_rng_state()
    one, same, other = (sample_pairs(policy(), VOCABULARY, NUMBERS, 60, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert one == same
    assert one != other
    assert sample_pairs(policy(), VOCABULARY, NUMBERS, 20, seed=0) == one[:20]


def test_a_policy_that_always_says_the_same_gives_no_pairs():
    with pytest.raises(
        ValueError, match="rounds of 8 prompts gave only 0 pairs of two different completions: .* take an"
    ):
        sample_pairs(policy(sharpness=1000.0), VOCABULARY, NUMBERS, 5, batch_size=8)


def test_answers_are_the_policys_own_next_to_each_other():
    """As often as the model says, by its own probability of each first token."""
    model, prompts = policy(), ["12?", "0?"]
    texts = write_completions(model, VOCABULARY, prompts, group_size=1500, max_new_tokens=2, seed="y")
    for i, prompt in enumerate(prompts):
        with torch.no_grad():
            probs = model(torch.tensor([VOCABULARY.encode(prompt)])).logits[0, -1].softmax(-1)
        mine = [text[:1] for text in texts[1500 * i : 1500 * (i + 1)]]
        for token, first in enumerate(["", *VOCABULARY.alphabet]):
            assert mine.count(first) / 1500 == pytest.approx(probs[token].item(), abs=4 * (0.25 / 1500) ** 0.5)
    assert write_completions(model, VOCABULARY, prompts, group_size=1500, max_new_tokens=2, seed="y") == texts
