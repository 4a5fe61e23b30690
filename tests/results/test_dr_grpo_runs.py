"""The recorded runs behind the chapter on Dr. GRPO: whole, and still what the code of today begins to do."""

import itertools

import pytest
import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.functional import advantages, aggregation
from tests.results.scripts import load

script, RECORD = load("dr_grpo_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for (arm, _), run in RUNS.items():
        situation = script.SITUATIONS[script.ARMS[arm].situation]
        kept = script.KEPT + script.MORE if situation.mixed else script.KEPT
        assert [name for name in run if isinstance(run[name], list)] == list(kept)
        assert all(len(run[name]) == situation.steps for name in kept)
        for right, right_tokens, wrong_tokens in zip(*(run[name] for name in script.KEPT), strict=True):
            assert right <= right_tokens <= right * script.BUDGET
            wrong = RECORD["responses_a_step"] - right
            assert wrong <= wrong_tokens <= wrong * script.BUDGET
    assert (RECORD["responses_a_step"], RECORD["budget"]) == (script.PROMPTS * script.GROUP, script.BUDGET)


def test_an_arm_is_its_advantage_its_divisor_and_its_rate():
    divisors = {
        "own": aggregation.sequence_mean,
        "batch": aggregation.token_mean,
        "constant": aggregation.fixed_length,
    }
    scales = {"zscore": advantages.group_normalized, "centred": advantages.group_centered}
    for arm, what in script.ARMS.items():
        row = script.algorithm(arm)
        wanted = (scales[what.advantage], divisors[what.divisor], ())
        assert (row.advantage, row.aggregate, row.kl) == wanted
        situation, *rest = arm.split("-")
        assert situation == what.situation
        if script.SITUATIONS[situation].mixed:
            assert rest == [what.advantage, what.divisor, f"{what.lr:g}"]
        else:
            assert rest[-1] == what.divisor
            assert (what.advantage == "centred") == (arm == "learnt-constant")
            assert what.lr == script.SITUATIONS[situation].lr
    assert repr(script.algorithm("learnt-constant")) == repr(ALGORITHMS["dr_grpo"])  # a partial equals itself alone


def test_the_four_arms_have_the_same_rates():
    """Two advantages times two divisors, each at every learning rate; GRPO alone also at a higher one."""
    arms = {(a.advantage, a.divisor, a.lr) for a in script.ARMS.values() if a.situation == "mixed"}
    grid = set(itertools.product(("zscore", "centred"), ("own", "constant"), script.RATES.values()))
    assert arms == grid | {("zscore", "own", 0.01)}


def test_who_is_informed_of_what():
    """In "informed" the prompt is the reward; in "blind" it is independent of it; "rare" is right one time in eight."""
    generator = torch.Generator().manual_seed(0)
    seen: dict[str, list[torch.Tensor]] = {}
    for name in ("informed", "blind", "rare"):
        pairs = [script.ask(script.SITUATIONS[name], generator) for _ in range(40)]
        prompts = torch.cat([prompt[:, 0] - script.FIRST_CUE for prompt, _ in pairs]).float()
        seen[name] = [prompts, torch.cat([coin for _, coin in pairs])]
    for name in ("informed", "rare"):
        assert torch.equal(*seen[name])
    assert abs(torch.corrcoef(torch.stack(seen["blind"]))[0, 1]) < 0.05
    assert seen["informed"][1].mean().item() == pytest.approx(0.5, abs=0.03)
    assert seen["rare"][1].mean().item() == pytest.approx(1 / 8, abs=0.02)


def test_the_first_word_decides_where_something_can_be_learnt():
    prompts, _ = script.ask(script.SITUATIONS["learnt"], torch.Generator())
    completions = torch.full((len(prompts), 3), 7)
    completions[::2, 0] = 1 + (torch.arange(8).repeat_interleave(16)[::2]) % 4
    rewards = script.rewards_of(script.SITUATIONS["learnt"], prompts, torch.zeros(128), completions)
    assert rewards.tolist() == [1.0, 0.0] * 64


def test_prompts_of_two_kinds():
    """Hard prompts have one right first token of 17, easy ones thirteen; what follows does not matter."""
    situation = script.SITUATIONS["mixed"]
    prompts, _ = script.ask(situation, torch.Generator())
    prompts = prompts[:: script.GROUP]
    right = torch.zeros(len(prompts))
    for token in range(script.FIRST_CUE + script.PROMPTS):
        completions = torch.tensor([[token, 3]]).repeat(len(prompts), 1)
        right += script.rewards_of(situation, prompts, torch.zeros(len(prompts)), completions)
    assert right.tolist() == [1.0, 13.0] * 4


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: 12 completions, a tenth of the tokens."""
    history = script.train(arm, 0, steps=2)
    recorded = RUNS[arm, 0]
    for step, found in enumerate(history):
        assert found["right"] == pytest.approx(recorded["right"][step], abs=12)
        tokens = found["right_tokens"] + found["wrong_tokens"]
        assert tokens == pytest.approx(recorded["right_tokens"][step] + recorded["wrong_tokens"][step], rel=0.1)
