"""The recorded runs on DeepSeek-R1: whole, still what the code of today begins to do, and as the chapter tells them."""

import time
from types import SimpleNamespace

import pytest
import torch

from rlhf_book import tongues
from rlhf_minimal.tasks import CompletionRow, Problem
from tests.results.scripts import load, separated

script, RECORD = load("r1_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
COUNTED = ("base", "base-train", "base-rl", "cold", "cold-train", "more", "more-rl")
AFTER = ("base", "cold", "rl", "kept", *script.LAST)


def ends(arm, name="accuracy"):
    return torch.tensor([RUNS[arm, seed][name] for seed in script.SEEDS])


def stage(which, name="accuracy"):
    return torch.tensor([RUNS["stages", seed][which][name] for seed in script.SEEDS])


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for (arm, _), run in RUNS.items():
        if arm == "stages":
            assert set(AFTER) < set(run)
            assert run["written"] == script.STEPS * script.PROMPTS * script.GROUP
            assert all(len(run["last_steps"][way]["accuracy"]) == script.LAST_STEPS for way in script.LAST)
        elif arm == "scorer":
            assert len(run["score_by_extra"]) == len(script.EXTRA)
            assert run["pairs"] > 300
        elif arm == "counted":
            assert set(COUNTED) < set(run)
            assert all(0 <= share <= 1 for one in COUNTED for share in run[one].values())
        elif arm == "worked":
            assert {"large", *script.OWN} < set(run)
        elif arm == "kept":
            assert {"large", "rl", "rl-train", "kept", "kept-train", *script.OWN} < set(run)
        else:
            assert 0 <= run["accuracy"] <= 1
        if arm not in (*script.TAUGHT, *script.OWN, *script.FEW, "scorer", *script.COUNTED):
            assert all(len(run["steps"][name]) == script.STEPS for name in script.SEEN)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


@pytest.mark.parametrize("arm", ["zero", "small-centred", "coin", "zero-tenth", "zero-dropped", "zero-fixed"])
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens."""
    model, vocabulary = script.begin()
    seen = script.reinforce(
        model,
        vocabulary,
        script.PAID[arm],
        "zero/0",
        steps=2,
        row=script.ROWS.get(arm, script.GRPO),
        coin=arm == "coin",
        dropped=arm == "zero-dropped",
    )
    for name in ("accuracy", "format", "small"):
        assert seen[name] == pytest.approx(RUNS[arm, 0]["steps"][name][:2], abs=0.06)


def test_the_stages_begin_as_recorded():
    """The cold start, and the first step of RL after it."""
    model, vocabulary = script.cold_start(0)
    assert script.examined(model, vocabulary)["accuracy"] == pytest.approx(
        RUNS["stages", 0]["cold"]["accuracy"], abs=0.06
    )
    seen = script.reinforce(model, vocabulary, script.COLD_TIDY, "stages/0", steps=1)
    assert seen["accuracy"][0] == pytest.approx(RUNS["stages", 0]["steps"]["accuracy"][0], abs=0.06)


def test_what_is_paid():
    problem = Problem("3+8+........:", "b")
    assert script.rule("3d8b(b)", problem, ("tidy", "small")) == pytest.approx(1.4)
    assert script.rule("3D8B(B)", problem, ("tidy", "capital")) == pytest.approx(1.4)
    assert script.rule("3D8B(B)", problem, ("tidy", "small")) == pytest.approx(1.2)
    assert script.rule("", problem, ("tidy", "small", "capital")) == 0
    assert script.rule("(a)", problem, ("tenth",)) == pytest.approx(0.02)


def test_a_new_start_begins_to_write_as_the_crowd():
    model, vocabulary = script.base_start(32, 40)
    begun = script.examined(model, vocabulary, n=60, tries=1)
    whole = script.examined(*script.begin("tongues-small"), n=60, tries=1)
    assert 0.2 < whole["format"] < 0.6
    assert whole["liking"] > begun["liking"]


def test_a_reward_of_the_format_crowds_out_the_reasoning_and_less_so_where_it_is_centred():
    assert separated(ends("zero"), ends("accuracy"))
    assert ((ends("zero-centred") - ends("zero")) > 0.2).sum() == 4  # and one seed in which nothing is gained
    assert ends("zero").max() < 0.25 < 0.5 < ends("accuracy").min()
    assert ends("zero", "format").min() > 0.9
    assert ends("accuracy", "format").max() < 0.2


def test_the_language_costs_from_the_base_and_nothing_that_is_seen_after_a_cold_start():
    assert separated(ends("small-centred"), ends("zero-centred"))
    assert not separated(ends("no-language"), stage("rl"))


def test_stages_one_and_two_each_gain():
    assert separated(stage("base"), stage("cold"))
    assert separated(stage("cold"), stage("rl"))
    assert stage("cold", "format").min() > 0.8 > 2 * stage("base", "format").max()


def test_the_score_rises_while_the_liking_falls():
    for seed in script.SEEDS:
        run = RUNS["stages", seed]
        score = run["last_steps"]["last-fast"]["score"]
        assert sum(score[-5:]) > sum(score[:5])
        assert run["last-fast"]["liking"] < run["kept"]["liking"]
    assert separated(stage("last", "liking"), stage("last-rules", "liking"))


def test_imitation_beats_rl_on_the_weak_base_and_rl_needs_the_better_one():
    assert separated(ends("small-rl"), ends("small-sft"))
    assert separated(ends("small-both"), ends("small-sft"))
    assert separated(ends("small-rl"), ends("more-rl"))
    assert ends("small-rl").max() < 0.2


def test_the_large_ones_completions_teach_more_than_the_students_own():
    for size in ("small", "more"):
        assert separated(ends(f"{size}-own"), ends(f"{size}-sft"))
    assert separated(ends("more-own"), ends("more-rl"))
    assert (stage("rl") < ends("more-rl")).all()  # this teacher is the weaker model


def counted(which, name):
    return torch.tensor([RUNS["counted", seed][which][name] for seed in script.SEEDS])


@pytest.mark.parametrize("split", ["", "-train"])
def test_a_cold_start_leaves_fewer_groups_to_the_format(split):
    for name in ("alike", "by_format"):
        base, cold = (counted(f"{start}{split}", name) for start in ("base", "cold"))
        assert separated(base, cold)
        assert (cold < 0.6 * base).all()


def test_rl_on_rightness_makes_the_language_purer_and_the_better_small_base_keeps_its_own():
    assert separated(counted("base", "one_language"), counted("base-rl", "one_language"))
    assert not separated(counted("more", "one_language"), counted("more-rl", "one_language"))
    assert separated(counted("base", "right_small"), counted("base", "right_capital"))
    assert separated(counted("base", "right_capital"), counted("base-rl", "right_capital"))


def test_the_counts_come_out_as_recorded():
    again = script.counted(*script.begin(), "r1/counted/0")
    for name, value in RUNS["counted", 0]["base"].items():
        assert again[name] == pytest.approx(value, abs=0.12 if name.startswith("right_") else 0.05)


def test_what_is_counted_is_what_the_rules_say(monkeypatch):
    """Two groups, by hand: one ties in rightness and differs in the box, one differs in rightness."""
    problems = [Problem("3+8+........:", "b")] * script.GROUP + [Problem("3+........:", "d")] * script.GROUP
    texts = ["(a)"] * 6 + ["3d8bc", "3D8b(c)"] + ["3d(d)"] * 7 + ["3Dd(e)"]
    said = SimpleNamespace(problems=problems, texts=texts)
    monkeypatch.setattr(script, "roll_out", lambda *_, **__: said)
    found = script.counted(None, None, "by-hand", n=2)
    assert (found["right"], found["alike"], found["by_format"]) == (round(7 / 16, 4), 0.5, 0.5)
    assert found["alike_sum"] == 0
    assert found["worked"] == 10 / 16
    assert found["one_language"] == 0.8


def test_as_few_of_the_large_ones_are_as_many_as_its_own_and_as_various():
    for few, own in script.FEW.items():
        for seed in script.SEEDS:
            one, other = RUNS[few, seed], RUNS["kept", seed][own]
            assert one["rows"] == other["rows"] == RUNS[own, seed]["rows"]
            assert one["questions"] == pytest.approx(other["questions"], rel=0.12)
            assert one["distinct"] == pytest.approx(other["distinct"], rel=0.15)


def test_the_few_are_drawn_by_lot(monkeypatch):
    """The rows lie question by question, so the first of them would be of few questions."""
    large = [CompletionRow(str(i // 8), str(i)) for i in range(800)]
    monkeypatch.setattr(script, "of_the_large", lambda seed: (None, large))
    monkeypatch.setattr(script, "kept_rows", lambda *_: (large[:100], 800))
    monkeypatch.setattr(script, "imitate", lambda *_: None)
    _, rows = script.few_of_the_large("small-few", 0)
    found = script.kinds(rows)
    assert found["rows"] == found["distinct"] == 100
    assert found["questions"] > 50
    assert script.few_of_the_large("small-few", 1)[1] != rows


def test_rows_questions_and_distinct_rows():
    rows = [CompletionRow("a", "x"), CompletionRow("a", "x"), CompletionRow("a", "y"), CompletionRow("b", "x")]
    assert script.kinds(rows) == {"rows": 4, "questions": 2, "distinct": 3}


def test_groups_that_tie_in_rightness_move_nothing_when_they_are_dropped(monkeypatch):
    """Two groups: one ties in rightness, with boxes that differ; one differs in rightness."""
    problems = [Problem("3+8+........:", "b")] * script.GROUP + [Problem("3+........:", "d")] * script.GROUP
    texts = ["(a)"] * 6 + ["3d8bc", "3D8a(c)"] + ["3d(d)"] * 7 + ["3De"]
    mask = torch.ones(len(texts), 4)
    said = SimpleNamespace(problems=problems, texts=texts, mask=mask)
    monkeypatch.setattr(script, "roll_out", lambda *_, **__: said)
    given = {}
    for dropped in (False, True):
        monkeypatch.setattr(script, "update", lambda m, o, out, r, row, d=dropped: given.update({d: r.view(2, -1)}))
        model, vocabulary = script.begin("tongues-small")
        script.reinforce(model, vocabulary, ("tidy",), "by-hand", steps=1, dropped=dropped)
    assert given[False][0].std() > 0 == given[True][0].std()
    torch.testing.assert_close(given[False][1], given[True][1])


def test_dropping_the_tied_groups_is_separated_from_the_plain_sum_and_not_from_a_tenth_of_the_weight():
    assert separated(ends("zero"), ends("zero-dropped"))
    assert ends("zero-dropped", "works_all").min() > 0.8
    assert ends("zero-dropped")[2] < 0.3 < ends("zero-dropped")[[0, 1, 3, 4]].min()  # one works and slips
    for other, told in (("zero-tenth", False), ("zero-fixed", False), ("zero-centred", True)):
        assert separated(ends(other), ends("zero-dropped")) == told
    assert (ends("zero-dropped", "format") < 0.1).sum() == 3  # and the box is lost
    assert not separated(ends("zero"), ends("zero-tenth"))
    assert (ends("zero-tenth", "works_all") < 0.2).sum() == 3


def test_without_the_division_by_length_four_of_five_keep_reasoning_and_box():
    both = (ends("zero-fixed", "works_all") > 0.5) & (ends("zero-fixed", "format") > 0.5)
    assert both.sum() == 4
    assert separated(ends("zero"), ends("zero-fixed"))


def test_the_same_rows_of_a_better_writer_teach_more():
    for size in ("small", "more"):
        assert separated(ends(f"{size}-own"), ends(f"{size}-few"))
        assert separated(ends(f"{size}-few"), ends(f"{size}-sft"))
    assert separated(ends("more-rl-small"), ends("more-sft"))
    assert ends("more-rl-small", "small").min() > 0.85


def test_most_of_what_the_weak_base_keeps_of_its_own_is_guessed():
    for seed in script.SEEDS:
        run = RUNS["worked", seed]
        share = {whose: run[whose]["worked"] / run[whose]["rows"] for whose in ("large", *script.OWN)}
        assert share["small-own"] < 0.2 < 0.5 < share["more-own"] < 0.65 < 0.99 < share["large"]
        assert {whose: run[whose]["rows"] for whose in share} == {
            whose: RUNS["kept", seed][whose]["rows"] for whose in share
        }


def test_a_row_is_worked_if_every_move_is_written():
    texts = ["3d8b(b)", "3d8c(c)", "(b)", "3d(b)"]
    rows = [CompletionRow("3+8+........:", text) for text in texts]
    assert script.worked(rows) == {"rows": 4, "worked": 2}


def test_no_later_stage_is_above_the_second():
    for later in ("kept", "last", "last-rules"):
        assert not (separated(stage("rl"), stage(later)) and stage(later).mean() > stage("rl").mean())
        assert (stage(later, "liking") < stage("rl", "liking")).all()


def test_fewer_groups_tie_in_the_sum_than_in_rightness_at_the_start_of_stage_four():
    ties = {
        name: torch.tensor([RUNS["kept", seed]["kept-train"][name] for seed in script.SEEDS])
        for name in ("alike", "alike_sum")
    }
    assert separated(ties["alike_sum"], ties["alike"])
    assert ties["alike_sum"].min() > 0.05


def test_imitating_itself_comes_out_as_recorded():
    again = script.imitates_itself("tongues-small", 0)
    assert again["start"]["accuracy"] == pytest.approx(RUNS["small-own", 0]["start"]["accuracy"], abs=0.03)
    assert again["rows"] == pytest.approx(RUNS["small-own", 0]["rows"], abs=20)
    assert again["distinct"] <= again["rows"] < again["written"]


def test_the_reward_model_costs_rightness_and_knows_little():
    assert separated(stage("last"), stage("last-rules"))
    assert (stage("last") < stage("last-rules")).all()
    assert ends("scorer", "agrees").max() < 0.65


def test_the_cold_start_brings_sixteen_samples_and_rl_one():
    assert not separated(stage("rl", "known_16"), stage("cold", "known_16"))
    assert separated(stage("rl", "known_1"), stage("cold", "known_1"))


def test_kept_completions_earn_everything():
    model, vocabulary = script.cold_start(0)
    rows, written = script.kept_rows(model, vocabulary, 99)
    assert 0 < len(rows) < written
    for row in rows[:50]:
        assert tongues.in_format(row.completion) == tongues.consistency(row.completion) == 1
        due = tongues.HOURS[sum(tongues.moves_of(row.prompt)) % len(tongues.HOURS)]
        assert tongues.accuracy(row.completion, Problem(row.prompt, due)) == 1


def test_a_step_with_both_kinds_has_a_question_of_each():
    """Coins fell on one side sixteen times: problems of seed 2661, step 5. All other steps keep the ones they had."""
    task = script.recipe("both").task
    name = "r1/last/2661/5"
    assert not any(tongues.has_rule(p.prompt) for p in task.problems("train", script.PROMPTS, seed=name))
    assert {tongues.has_rule(p.prompt) for p in script.asked("both", name)} == {True, False}
    assert len(script.asked("both", name)) == script.PROMPTS
    for seed in script.SEEDS:
        for step in range(script.LAST_STEPS):
            name = f"r1/last/{seed}/{step}"
            assert script.asked("both", name) == task.problems("train", script.PROMPTS, seed=name)
    name = "r1/zero/0/0"
    reasoning = script.recipe("reasoning").task
    assert script.asked("reasoning", name) == reasoning.problems("train", script.PROMPTS, seed=name)


def test_a_step_without_a_question_of_moves_is_survived():
    model, vocabulary = script.begin()
    seen = script.reinforce(
        model,
        vocabulary,
        script.COLD_TIDY,
        "last/2661",
        steps=6,
        kind="both",
        general=lambda problems, texts: torch.zeros(len(texts)),
    )
    assert {name: len(values) for name, values in seen.items()} == dict.fromkeys(seen, 6)


def test_the_seconds_of_the_stages_are_theirs_whoever_asks_first(monkeypatch):
    passed = []

    def spent(*_, **__):
        begun = time.process_time()
        while time.process_time() - begun < 0.3:
            pass
        passed.append(1)
        return {"accuracy": 0.0}

    monkeypatch.setattr(script, "examined", spent)
    monkeypatch.setattr(script, "cold_start", lambda seed: script.begin())
    monkeypatch.setattr(script, "reinforce", lambda *_, **__: {})
    monkeypatch.setattr(script, "kept_rows", lambda *_: ([], 0))
    monkeypatch.setattr(script, "general_rows", lambda *_: [])
    monkeypatch.setattr(script, "imitate", lambda *_: None)
    monkeypatch.setattr(script, "scorer", lambda seed: None)
    script.stages.cache_clear()
    try:
        script.stages(77)  # as an arm does that needs their completions
        asked = len(passed)
        first = script.run("stages", 77)
        assert len(passed) == asked  # nothing is computed again
        assert first["cpu_seconds"] >= 0.3 * asked
        assert list(first)[0] == "cpu_seconds"
    finally:
        script.stages.cache_clear()


@pytest.mark.parametrize(("tidy", "small"), [(0.2, 0.2), (0.1, 0.7), (0.3, 0.6)])
def test_the_weights_do_not_decide_what_is_kept(monkeypatch, tidy, small):
    model, vocabulary = script.begin("tongues-small-more")
    monkeypatch.setattr(script, "STEPS", 2)
    usual, _ = script.kept_rows(model, vocabulary, 99)
    monkeypatch.setattr(script, "FORMAT", tidy)
    monkeypatch.setattr(script, "LANGUAGE", small)
    again, _ = script.kept_rows(model, vocabulary, 99)
    assert usual == again != []
