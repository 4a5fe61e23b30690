"""The page that compares the rows: what it says of numbers that were made up, and nothing of missing ones."""

import dataclasses
import math
import random
import re
import statistics
from pathlib import Path

import pytest
import torch

import comparison_page as page
from rlhf_book import benchmark, comparison
from rlhf_book.benchmark import explorer_table, read_groups
from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from tests.results.made_up import made_up_record, script

ROOT = Path(__file__).resolve().parents[1]

TEXT = (ROOT / "book" / "comparison.md").read_text(encoding="utf-8")
PARTS = re.findall(r"^```\{generated\} comparison_page:(\w+)(?: (\S+))?$", TEXT, re.MULTILINE)


@pytest.fixture
def recorded(monkeypatch):
    """Puts a record in the place of the book's."""

    def put(record):
        monkeypatch.setattr(benchmark, "read_record", lambda name: record)
        monkeypatch.setattr(page, "read_record", lambda name: record)

    return put


def all_parts():
    return {(name, group): getattr(page, name)(*([group] if group else [])) for name, group in PARTS}


def test_the_page_is_made_of_the_record():
    assert {name for name, _ in PARTS} == {"answer", "settings", "recorded", "test", "example", "sections"}
    assert not re.search(r"0\.\d{2,}", TEXT.replace("0.05", ""))  # no result is typed in by hand


@pytest.mark.parametrize("record", [None, made_up_record(("addition-1",), left_out=1)])
def test_what_is_not_recorded_is_said_once_and_has_no_heading(recorded, record):
    recorded(record)
    found = all_parts()
    for name in ("answer", "settings", "sections"):
        assert found[name, ""].startswith("Not recorded yet"), name
    text = "\n".join(found.values())
    assert "## " not in text
    assert " is ahead of " not in text
    if record:
        planned = len(script.plan(["addition-1"]))
        assert text.count(f"({planned - 1} of {planned} runs)") == 1
        assert text.count(f"clock, 4 updates a rollout (0 of {len(script.plan(['clock-4']))} runs)") == 1
    assert explorer_table(record)["groups"] == []


def test_a_group_that_is_whole_has_a_section_and_one_that_is_not_a_place_in_a_sentence(recorded):
    recorded(made_up_record(("addition-1", "reviews-4")))
    text = page.sections()
    assert re.findall("^## (.*)$", text, re.MULTILINE) == [
        "Addition, one update a rollout",
        "Reviews, 4 updates a rollout",
    ]
    assert text.count("\n### What separates") == 2
    assert page.ABOUT["reviews"] in text
    assert page.ABOUT["clock"] not in text
    (rest,) = [line for line in page.settings().splitlines() if line.startswith("Planned")]
    assert rest.count(" runs)") == len(script.GROUPS) - 2
    recorded(made_up_record())
    assert "Planned" not in page.settings()
    assert page.sections().count("\n### What separates") == len(script.GROUPS)


def test_a_row_that_is_ahead_is_said_to_be_and_noise_is_not(recorded):
    recorded(made_up_record(("addition-1", "addition-4"), ahead=("reinforce",)))
    for name in ("addition-1", "addition-4"):
        group = read_groups()[name]
        text = page.separated(group)
        pairs = group.pairs("sampled")
        apart = {pair for pair, one in pairs.items() if one.separated}
        others = [row for row in group.own if row != "reinforce"]
        assert apart <= {("reinforce", row) for row in others}
        assert len(apart) > len(others) // 2
        end = text.split("\n\n")[0]
        assert f"Of {len(pairs)} pairs {len(apart)} are separated." in end
        assert "Accuracy of greedy completions at the end." in text
        (ahead,) = re.findall(r"`(\w+)` is ahead of (.*?)\. ", end)
        assert ahead[0] == "reinforce"
        assert set(re.findall(r"`(\w+)`", ahead[1])) == {row for _, row in apart}
        assert "The largest mean difference that is not separated is " in end
        assert f"All {len(group.own)} are separated from the coin" in end
        assert len(text.split("\n\n")) == len(benchmark.MEASURES)  # entropies are all alike here: no word of them


def test_the_first_lines_count_what_separates(recorded):
    recorded(made_up_record(("addition-1",), ahead=()))
    assert "of 78 pairs of rows 0 are separated" in page.answer()
    assert "No row is separated from all others, in any measure of any group" in page.answer()
    record = made_up_record(("addition-1",))
    for run in record["runs"]:  # one row far above all others, without noise
        if run["row"] == "reinforce":
            run["sampled"] = 0.95 + run["seed"] / 1000
        elif run["row"] != "coin":
            run["sampled"] = 0.5 + run["seed"] / 2000
        if run["row"] != "coin":
            run["greedy"] = run["area"] = 0.5
    recorded(record)
    group = read_groups()["addition-1"]
    assert group.ahead_of_all("sampled") == "reinforce"
    assert group.ahead_of_all("greedy") is None
    assert group.ahead_of_all("area") is None
    assert (
        "Separated from all other rows, and above them: in sampled completions at the end, `reinforce` in addition, "
        "one update a rollout; in greedy ones, no row of any group; over the whole curve, no row of any group. "
        "Everywhere else these runs choose none."
    ) in page.answer()
    for run in record["runs"]:  # and over the curve alone
        if run["row"] != "coin" and run["seed"] in script.SEEDS:
            run["area"], run["sampled"] = run["sampled"], 0.5
    recorded(record)
    assert "completions at the end, no row of any group" in page.answer()
    assert "over the whole curve, `reinforce` in addition" in page.answer()


def test_a_row_below_the_control_is_said_to_be_there(recorded):
    record = made_up_record(("reviews-4",))
    for run in record["runs"]:
        if run["row"] == "ppo":
            run["sampled"] = -3.0 + run["seed"] / 1000
    recorded(record)
    assert "4 of 5 rows are separated from the coin, above it, and 1 below it." in page.answer()
    end = page.in_words(read_groups()["reviews-4"], "sampled")
    assert end.endswith("4 of 5 are separated from the coin, above it; below it `ppo`.")
    assert "4 of 5 end above the start's 0.300; not so `ppo`." in end


def test_a_pair_is_doubtful_if_its_spread_is_below_that_of_two_evaluations(recorded):
    record = made_up_record(("addition-1",), ahead=())
    ends = {"rloo": 0.78, "ppo": 0.82, "grpo": 0.95}  # and the others at .5: far below, with any spread
    for run in record["runs"]:
        if run["row"] != "coin":
            run["sampled"] = ends.get(run["row"], 0.5) + run["seed"] * 1e-4 * (-1 if run["row"] == "ppo" else 1)
    recorded(record)
    group = read_groups()["addition-1"]
    wanted = math.sqrt(0.78 * 0.22 / 1000 + 0.82 * 0.18 / 1000)
    assert group.noise("sampled", "rloo", "ppo") == pytest.approx(wanted, rel=1e-3)
    assert group.noise("greedy", "rloo", "ppo") == 0
    pairs, doubtful = group.pairs("sampled"), group.doubtful("sampled")
    assert ("rloo", "ppo") in doubtful  # .04 apart, and it takes 9.7 x .018 / sqrt(5) = .078
    assert pairs["rloo", "grpo"].separated
    assert ("rloo", "grpo") not in doubtful  # .17 apart
    assert all(pairs[pair].separated for pair in doubtful)
    end = page.in_words(group, "sampled")
    assert "`ppo` ahead of `rloo` (a spread of 0.000, where two evaluations differ by 0.018)" in end
    assert f"are separated in accuracy of sampled completions at the end ({len(doubtful)} of them" in page.answer()
    assert "`ppo` is ahead of `rloo` by 0.04" in page.example()
    for run in record["runs"]:  # a spread as large as that of evaluations is no doubt
        if run["row"] == "ppo" and run["seed"] in script.SEEDS:
            run["sampled"] = 0.95 + 0.02 * (run["seed"] - 2)
    recorded(record)
    assert not any("ppo" in pair for pair in read_groups()["addition-1"].doubtful("sampled"))


def test_what_the_chapter_on_choosing_calls_doubtful():
    groups = read_groups()
    assert len([one for one in groups["addition-1"].pairs("sampled").values() if one.separated]) == 6
    with_gspo = {("reinforce", "gspo"), ("ppo", "gspo"), ("gspo", "opo"), ("gspo", "sao")}
    assert groups["addition-1"].doubtful("sampled") == {("rloo", "ppo"), *with_gspo}
    assert groups["clock-4"].doubtful("sampled") == {("grpo", "dr_grpo")}
    assert not any("reinforce" in pair for pair in groups["clock-1"].doubtful("sampled"))
    assert not any("gspo" in pair for pair in groups["clock-4"].doubtful("area"))


def test_the_noise_of_an_area_is_that_of_its_points():
    """By drawing: areas of two rows of the same accuracies, from so many completions a point."""
    draw, group = random.Random(0), read_groups()["addition-1"]
    rows = ("rloo", "dapo")
    curves = [[statistics.mean(run["curve"][i] for run in group.runs[row]) for i in range(7)] for row in rows]

    def area(curve):
        counts = [None, *[500] * 5, 1000]
        points = [
            p if n is None else draw.gauss(p, math.sqrt(p * (1 - p) / n)) for p, n in zip(curve, counts, strict=True)
        ]
        return (sum(points[1:-1]) + (points[0] + points[-1]) / 2) / 6

    drawn = [area(curves[0]) - area(curves[1]) for _ in range(4000)]
    assert group.noise("area", *rows) == pytest.approx(statistics.stdev(drawn), rel=0.05)


def test_a_shared_run_says_what_it_is():
    """With one update GSPO's gradient is GRPO's without its KL penalty, at any batch."""
    group = read_groups()["addition-1"]
    assert {row: group.stands_for(row) for row in group.own if group.stands_for(row)} == {
        "dr_grpo": "here no ratio acts",
        "gspo": "here GRPO without its KL",
        "cispo": "here no ratio acts",
    }
    assert "`sapo` (here GRPO without its KL)" in page.results(read_groups()["addition-1"])
    assert "`gspo` (here GRPO without its KL; by " in page.separated(read_groups()["addition-1"])
    assert not any(read_groups()["addition-4"].stands_for(row) for row in read_groups()["addition-4"].own)
    torch.manual_seed(0)
    old, mask, rewards = torch.randn(8, 5).sub(3), torch.ones(8, 5), torch.rand(8)
    found = []
    for row in (ALGORITHMS["gspo"], dataclasses.replace(ALGORITHMS["grpo"], kl=())):
        logp = old.clone().requires_grad_()
        policy_loss(row, Batch(logp, old, mask, rewards, 4)).backward()
        found.append(logp.grad)
    torch.testing.assert_close(*found)


def test_the_coin_ends_below_the_start_and_the_table_has_both():
    for group in read_groups().values():
        assert statistics.mean(run["sampled"] for run in group.runs["coin"]) < group.start()
        *_, coin, start = page.results(group).splitlines()[:-1]
        assert coin.startswith("| coin |")
        assert start.startswith(f"| start |  | {group.start():.3f} |")


def test_a_pair_at_different_rates_or_at_an_edge_is_marked(recorded, monkeypatch):
    record = made_up_record(("addition-1",), ahead=("reinforce",))
    group = script.GROUPS["addition-1"]
    for run in record["runs"]:
        if run["row"] == "reinforce" and run["seed"] in script.SEEDS:
            run["lr"] = group.rates[0]
    recorded(record)
    end = page.in_words(read_groups()["addition-1"], "sampled")
    apart = sum(one.separated for one in read_groups()["addition-1"].pairs("sampled").values())
    assert end.count("; rates differ; `reinforce` at the edge of the rates)") == apart
    assert f"In {apart} of these {apart} the rates differ" in end
    recorded(made_up_record(("addition-1",), ahead=("reinforce",)))
    end = page.in_words(read_groups()["addition-1"], "sampled")
    assert "rates" not in end


def test_a_rate_that_won_by_less_than_its_seeds_differ_is_told(recorded):
    record = made_up_record(("addition-1",))
    tuned = [run for run in record["runs"] if run["row"] == "rloo" and run["seed"] in script.TUNING]
    for run in tuned:
        run["sampled"] = {4e-4: 0.5, 8e-4: 0.6, 1.6e-3: 0.61, 3.2e-3: 0.5}[run["lr"]]
    recorded(record)
    assert "rloo" not in read_groups()["addition-1"].narrow_rates()
    for run in tuned:
        run["sampled"] += 0.02 * (run["lr"] == 8e-4) * (1 if run["seed"] == script.TUNING[0] else -1)
    assert read_groups()["addition-1"].narrow_rates()["rloo"] == pytest.approx(0.01)
    assert "`rloo` (by 0.010)" in page.rates(read_groups()["addition-1"])


def test_sharpness_is_the_rank_correlation_with_the_entropy(recorded):
    record = made_up_record(("addition-1",))
    place = {row: i for i, row in enumerate(read_groups(record)["addition-1"].own)}
    for run in record["runs"]:
        if run["seed"] in script.SEEDS and run["row"] in place:
            run["entropy"] = 1.0 - place[run["row"]] / 20
            run["sampled"], run["greedy"] = place[run["row"]] / 20, 1.0 - place[run["row"]] / 30
    recorded(record)
    (said,) = page.sharpness(read_groups()["addition-1"])
    assert "Over the 13 rows" in said
    assert "sampled completions is \u22121.00, with that of greedy ones 1.00." in said
    assert page.ranks([0.3, 0.1, 0.3, 0.2]) == [2.5, 0, 2.5, 1]


def test_where_all_are_alike_the_page_says_that(recorded):
    recorded(made_up_record(("clock-4",), ahead=()))
    end = page.separated(read_groups()["clock-4"]).split("\n\n")[0]
    assert "Of 136 pairs none is separated." in end
    assert " is ahead of " not in end


def test_a_table_has_a_line_a_run_in_the_order_of_the_book(recorded):
    recorded(made_up_record(("addition-1", "reviews-4")))
    lines = page.results(read_groups()["addition-1"]).splitlines()[1:-1]
    names = [line.split("|")[1].strip() for line in lines[2:]]
    assert names[:4] == ["`reinforce`", "`rloo`", "`ppo`", "`reinforce_pp`"]
    assert "`gspo` = `gspo_token` = `gmpo` = `sapo` (here GRPO without its KL)" in names
    assert "`cispo` = `vespo` (here no ratio acts)" in names
    assert names[-2:] == ["coin", "start"]
    assert len(names) == 15
    assert "reward model" in page.results(read_groups()["reviews-4"])
    assert "reward model" not in page.results(read_groups()["addition-1"])
    assert "`dr_grpo` = `kimi_k2`" in page.shared(read_groups()["addition-1"])
    assert "No two" in page.shared(read_groups()["reviews-4"])


def test_intervals_are_those_of_the_seeds():
    assert page.spread([0.1, 0.2, 0.3]) == "0.200 [\u22120.048,\u00a00.448]"  # .2 +- 4.303 x .1 / sqrt(3)


def test_an_edge_of_the_rates_is_told(recorded, monkeypatch):
    monkeypatch.setattr("tests.results.made_up.BEST", 0)
    recorded(made_up_record(("reviews-4",)))
    assert "`ppo` (lowest)" in page.rates(read_groups()["reviews-4"])
    monkeypatch.setattr("tests.results.made_up.BEST", 1)
    recorded(made_up_record(("reviews-4",)))
    assert page.rates(read_groups()["reviews-4"]).startswith("No row had its best rate at an edge of the four.")


def test_all_parts_can_be_made_from_the_record_as_it_is():
    for part, text in all_parts().items():
        assert isinstance(text, str), part


def test_what_would_have_been_enough_is_that_of_the_first_pair(recorded):
    recorded(made_up_record(("reviews-4",)))
    needed = comparison.needed(read_groups()["reviews-4"].pairs("sampled"))
    assert f"With the median spread, the first separation takes {needed:.3f}." in page.separated(
        read_groups()["reviews-4"]
    )


def test_the_versions_are_those_of_the_lines(recorded):
    record = made_up_record(("reviews-4",))
    recorded(record)
    assert "Recorded with torch 0, python 3, by `" in page.recorded()
    record["runs"][0]["versions"] = {"torch": "1"}
    rest = len(record["runs"]) - 1
    assert f"Recorded with torch 0 ({rest} runs) and 1 (1 run), python 3, by `" in page.recorded()


def test_a_record_without_anything_gives_no_groups():
    """And not those of the book's own record."""
    assert read_groups({}) == {}
    assert explorer_table({})["groups"] == []


def test_the_map_has_a_cell_a_pair_in_both_orders_with_opposite_signs_and_marks_what_is_separated():
    for group in page.whole_groups().values():
        grid, found = page.matrix(group), group.pairs("sampled")
        assert grid.count("<td style") == 2 * len(found)
        assert grid.count(">■</td>") == 2 * sum(gap.separated for gap in found.values())
        for (one, other), gap in found.items():
            assert f"{one} minus {other}: {page.number(gap.mean)} in" in grid
            assert f"{other} minus {one}: {page.number(-gap.mean)} in" in grid
