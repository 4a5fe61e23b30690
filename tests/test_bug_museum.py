"""The bug museum: every bug once, symptoms as the code prints them, diffs that apply, places that are told once."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

import apparatus
import bug_museum as museum
from rlhf_book.exercises import BUGS
from rlhf_book.exercises.cells import imports, source
from rlhf_book.museum import FOUND

ROOT = Path(__file__).resolve().parents[1]

ALL = [*BUGS.values(), *FOUND]
each_bug = pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.id)
each_found = pytest.mark.parametrize("bug", FOUND, ids=lambda bug: bug.id)


@pytest.fixture(scope="module")
def page():
    return museum.rooms()


@pytest.fixture(scope="module")
def rooms(page):
    """Id -> the text of its room."""
    parts = re.split(r"^\(museum-(.+)\)=$", page, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def printed(call, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        call(*arguments)
    return out.getvalue()


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)


# ── the rooms ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_bug_has_one_room(page, rooms):
    names = re.findall(r"^\(museum-(.+)\)=$", page, re.MULTILINE)
    assert sorted(names) == sorted(bug.id for bug in ALL)
    assert len(set(names)) == len(names) == len(rooms)


@each_bug
def test_a_room_prints_what_its_code_prints(bug, rooms):
    """The code of the page, run as it is printed, prints what stands above it."""
    wrong, symptom, _ = blocks(rooms[bug.id], "python")
    names = {}
    exec(f"{imports(bug.needs)}{wrong}\n\n\n{symptom}", names)
    (said,) = blocks(rooms[bug.id], "text")
    assert said.strip()
    assert printed(names[bug.symptom.__name__], names[bug.wrong.__name__]).rstrip("\n") == said


@each_bug
def test_a_diff_applies_and_mends(bug, rooms):
    """Without its plus lines it is the wrong code, without its minus lines it is code that has the property."""
    (diff,) = blocks(rooms[bug.id], "diff")
    lines = diff.splitlines()
    assert {line[0] for line in lines if line} <= {" ", "+", "-"}
    before, after = ("\n".join(line[1:] for line in lines if line[:1] != sign) for sign in "+-")
    assert before == source(bug.wrong)
    assert before != after
    names = {}
    exec(f"{imports(bug.needs)}{after}", names)
    bug.reveals(names[bug.wrong.__name__])


@each_bug
def test_symptom_and_code_stand_open_and_the_rest_is_folded(bug, rooms):
    text = rooms[bug.id]
    shown, *folded = text.split("<details>")
    assert len(folded) == text.count("</details>") == (4 if bug.id in museum.sources()["bugs"] else 3)
    assert shown.index("```text") < shown.index("```python")
    assert "```diff" not in shown
    assert museum.moral(bug) not in shown
    assert source(bug.reveals) not in shown
    assert bug.hint in folded[1]
    assert museum.moral(bug) in folded[2]


@each_bug
def test_a_bug_of_a_chapter_leads_back_to_it(bug, rooms):
    assert (f"<exercise-{bug.id}>`" in rooms[bug.id]) == (bug.id in BUGS)


def test_both_lists_at_the_top_lead_to_every_room():
    text = museum.index()
    chapters, ideas = text.split("## By idea")
    for part in (chapters, ideas):
        assert sorted(re.findall(r"\]\(#museum-(.+?)\)", part)) == sorted(bug.id for bug in ALL)


# ── where they were met ──────────────────────────────────────────────────────────────────────────────────────────


def test_every_bug_of_no_chapter_has_a_public_place(rooms):
    met = museum.sources()["bugs"]
    assert {bug.id for bug in FOUND} <= met.keys() <= {bug.id for bug in ALL}
    for name, places in met.items():
        urls = [place["url"] for place in places]
        assert len(set(urls)) == len(urls)
        assert all(url in rooms[name] for url in urls)
    stars = re.findall(r"\]\(#museum-([^)]+)\)\\\*", museum.index())
    assert sorted(stars) == sorted(met)


@pytest.mark.parametrize("url", re.findall(r'url: "(.+?)"', museum.SOURCES.read_text(encoding="utf-8")))
def test_an_address_is_that_of_a_thread_or_of_one_version_of_a_file(url):
    repository = r"https://github\.com/[\w.-]+/[\w.-]+"
    assert re.fullmatch(rf"{repository}/((issues|pull)/\d+|blob/[0-9a-f]{{40}}/[\w./-]+)", url)


def test_a_name_has_the_number_of_its_address():
    text = museum.SOURCES.read_text(encoding="utf-8")
    for name, url in re.findall(r'name: "(.+?)", url: "(.+?)"', text):
        if "/blob/" not in url:
            assert name.rpartition("#")[2] == url.rpartition("/")[2], name


def test_what_is_no_bug_says_why_and_where():
    text, entries = museum.none(), museum.sources()["none"]
    assert len(entries) >= 3
    known = {bug.id for bug in ALL}
    for entry in entries:
        assert entry["see"] in apparatus.pages_of_the_book()
        assert all(place["url"] in text for place in entry["sources"])
    assert set(re.findall(r"#museum-([\w-]+)", text)) <= known


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bugs: {no-such-bug: []}\nnone: []\n", "there is no bug 'no-such-bug'"),
        ("bugs: {padded-mean: [{name: a, url: 'https://a'}]}\nnone: []\n", "padded-mean: expected a name, an address"),
        ("bugs: {padded-mean: [{name: a, url: b, said: c}]}\nnone: []\n", "padded-mean: expected a name, an address"),
        ("bugs: {}\nnone: [{title: a}]\n", "'a': expected a title, said, fact, see and sources"),
        ("none: []\n", "there is no 'bugs'"),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path, text, said):
    (tmp_path / "bug-sources.yml").write_text(text)
    with pytest.raises(ValueError, match=said):
        museum.sources(tmp_path / "bug-sources.yml")


# ── bugs of no chapter are held to what the chapters' bugs are held to ───────────────────────────────────────────────


@each_found
def test_the_property_fails_for_the_wrong_code_alone(bug):
    with pytest.raises(AssertionError, match="."):
        bug.reveals(bug.wrong)
    bug.reveals(bug.mended)
    assert bug.check(bug.mended)
    verdict = bug.check(bug.wrong)
    assert not verdict
    assert "a property that your version does not have: " in verdict.message


@each_found
def test_the_symptom_is_seen(bug):
    assert printed(bug.symptom, bug.wrong) != printed(bug.symptom, bug.mended)


@each_found
def test_the_title_and_the_statement_do_not_give_it_away(bug):
    changed = set(source(bug.mended).splitlines()) - set(bug.symptom_cell.splitlines())
    for line in (line.strip() for line in changed if any(map(str.isalnum, line))):
        assert line not in bug.markdown
    assert bug.concept in apparatus.concepts()


def test_mended_forms_are_the_librarys():
    from functools import partial

    from rlhf_minimal.functional import advantages, gates, ratios

    mended = {bug.id: bug.mended for bug in FOUND}
    generator = torch.Generator().manual_seed(0)
    logp = -torch.rand(3, 5, generator=generator) - 0.1
    old = logp + 0.3 * torch.randn(3, 5, generator=generator)
    mask = torch.tensor([[1.0, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 1, 1]])
    kept = mask != 0
    ours = mended["summed-ratio"](logp, old, mask)
    torch.testing.assert_close(ours[kept], ratios.token(logp, old, mask)[kept])
    x = torch.randn(3, 5, generator=generator)
    torch.testing.assert_close(mended["padded-whitening"](x, mask), advantages.whiten(x, mask), rtol=1e-4, atol=1e-4)
    rewards = x * mask
    library = advantages.returns_to_go(rewards, mask, gamma=0.9)
    torch.testing.assert_close(mended["reset-returns"](rewards, mask, 0.9), library)
    gate = partial(gates.clip_weight, cap=5.0)
    ratio = torch.tensor([[0.1, 0.9, 3.0, 40.0]])
    torch.testing.assert_close(gate(ratio, torch.ones(1, 4)), mended["floored-weight"](ratio))
