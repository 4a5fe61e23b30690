"""The page of the token inspector: what it says is read from the record, and nothing where there is none."""

import math
import re
from pathlib import Path

import pytest

import inspector_page as page
from rlhf_book.factors import fitting_rows
from rlhf_book.figures.widgets import TokenInspector
from tests.results.scripts import load

ROOT = Path(__file__).resolve().parents[1]

TEXT = (ROOT / "book" / "inspector.md").read_text(encoding="utf-8")
PARTS = re.findall(r"^ *```\{generated\} inspector_page:(\w+)$", TEXT, re.MULTILINE)
_, RECORD = load("token_inspector")
RUNS = {run["arm"]: run for run in RECORD["runs"]}


def minus(text):
    return text.replace("\u2212", "-")


def test_no_result_is_typed_in_by_hand():
    assert PARTS == ["recorded", "lengths", "cut", "silent", "together", "pulled", "moved", "left_out"]
    assert not re.search(r"\d\.\d", TEXT)
    assert TokenInspector.words in TEXT


def test_what_was_recorded():
    text = page.recorded()
    for arm, run in RUNS.items():
        assert f"`{RECORD['task'][arm]}`" in text
        assert ", ".join(str(look["tokens"]) for look in run["steps"]) in text
        assert f"{run['reward'][0]:.2f} and {run['reward'][-1]:.2f}" in text
    assert RECORD["command"] in text


def test_shares_of_the_group_that_the_figure_opens_with():
    """One over completions of the batch and tokens of the completion, against one over completions and the budget."""
    n = RUNS["clock"]["steps"][0]["completions"]
    text = page.lengths()
    assert f"3 tokens has a share of 1/({n} x 3)" in text
    assert f"15 tokens 1/({n} x 15): a factor of 5.0" in text
    group = RUNS["clock"]["steps"][0]["groups"][0]
    budget = 1 / n / group["values"][group["rows"]["dr_grpo"]["share"]]
    assert budget == pytest.approx(44, abs=1e-3)  # that of the task
    assert f"both have 1/({n} x 44), where 44 is the budget." in text
    assert "| tokens that a completion may have | 44 | 8 |" in page.recorded()


def test_a_token_that_the_clip_cuts():
    step, prompt, token, completion = map(
        int, re.search(r"step (\d+), prompt (\d+), .* token (\d+) of completion (\d+)", page.cut()).groups()
    )
    look = next(look for look in RUNS["clock"]["steps"] if look["step"] == step)
    group = look["groups"][prompt - 1]
    gates = group["values"][group["rows"]["grpo"]["gate"]]
    assert gates[completion - 1][token - 1] == 0
    for other in look["groups"][: prompt - 1]:  # none in the groups before
        assert all(gate != 0 for own in other["values"][other["rows"]["grpo"]["gate"]] for gate in own)


def test_a_pull_without_a_push_is_that_of_the_formula():
    """k3 with 0.04: .04 x share x (ref / now - 1), at a token whose gate is 0."""
    text = page.pulled()
    token, completion = map(int, re.search(r"token (\d+) of completion (\d+)", text).groups())
    group, i, t = RUNS["clock"]["steps"][0]["groups"][0], completion - 1, token - 1
    away = math.exp(group["ref"][i][t] - group["now"][i][t]) - 1
    assert f"= {away:.0f}$" in text
    n, own = RUNS["clock"]["steps"][0]["completions"], len(group["tokens"][i])
    assert f"weight of +{0.04 * away / n / own:.4f}, or +" in text
    assert group["rewards"][i] == 0
    push, pull, rest = map(float, re.search(r"push of (\S+) and a pull of (\S+) leave (\S+)\.$", minus(text)).groups())
    assert push + pull == pytest.approx(rest, abs=1.1e-4)
    assert push < 0 < pull


def test_what_moved_is_counted_from_the_log_probs():
    text = page.moved()
    for look, words in zip(
        (RUNS["clock"]["steps"][0], RUNS["clock"]["steps"][-1]),
        re.findall(r"\d+ of \d+ at step \d+", text),
        strict=True,
    ):
        group = look["groups"][0]
        credit = group["values"][group["rows"]["grpo"]["advantage"]]
        ways = [
            (now > old) == (credit[i] > 0)
            for i in range(len(group["tokens"]))
            for now, old in zip(group["now"][i], group["old"][i], strict=True)
        ]
        assert words == f"{sum(ways)} of {len(ways)} at step {look['step']}"
        assert 0.3 < sum(ways) / len(ways) < 0.8  # far from all of them
    assert "up in completion 2 and down in completions 1 and 6" in text
    assert "from 0.344 to 0.323" in text


def test_a_line_for_every_step_that_can_be_chosen():
    lines = page.silent().splitlines()[5:-1]
    assert len(lines) == sum(len(run["steps"]) for run in RUNS.values())
    for line, look in zip(lines, (look for run in RUNS.values() for look in run["steps"]), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        shown = dict(zip(("grpo", "gmpo", "icepop", "cispo", "dppo", "gspo"), map(int, cells[3:]), strict=True))
        assert shown == {row: look["silent"][row] for row in shown}
        assert {look["credited"][row] for row in shown} == {int(cells[2])}
        assert shown["gspo"] > int(cells[2]) / 2  # "it cuts most of them"
        assert shown["cispo"] == 0


def test_completions_that_gspo_cuts_as_a_whole():
    cut, all_ = map(int, re.search(r"cuts (\d+) of the (\d+) completions", page.together()).groups())
    assert all_ == 2 * RECORD["group_size"]["clock"]
    gates = [
        group["values"][group["rows"]["gspo"]["gate"]] for group in RUNS["clock"]["steps"][-1]["groups"]
    ]  # one number a completion
    assert cut == sum(gate == 0 for own in gates for gate in own) > 0


def test_rows_that_are_left_out_are_named_with_what_they_need():
    text = page.left_out()
    assert set(re.findall(r"`(\w+)`", text)) == {"ppo", "sao", "opd", "sdpo", "remax", "high_entropy", "gdpo"}
    assert "`ppo` (a critic)" in text
    assert "`opd` (a teacher)" in text
    assert f"The other {len(fitting_rows())} rows are." in text


def test_nothing_is_said_of_a_record_that_is_not_there(monkeypatch):
    monkeypatch.setattr(page, "read_record", lambda name: None)
    assert {getattr(page, part)() for part in PARTS if part != "left_out"} == {"Not recorded yet."}
