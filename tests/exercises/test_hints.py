"""Three hints lead to a solution and none of them is one: each says more than the one before."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import solutions
from rlhf_book.exercises import BUGS, EXERCISES, check, hint
from rlhf_book.whiteboard import Whiteboard

ROOT = Path(__file__).resolve().parents[2]

ITEMS = {**EXERCISES, **BUGS}


def squeezed(text):
    """A text without comments, layout, parentheses and the formatter's commas."""
    return re.sub(r"\s+|[()]|,(?=\s*[)\]}])", "", re.sub(r"#.*", "", text))


def code_in(text):
    """The blocks of code of a hint."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def expressions(function):
    """What a function assigns and returns, and what it computes to branch or to go on, as it is written."""
    source = inspect.getsource(function)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Return | ast.Assign | ast.AugAssign) and node.value is not None:
            yield ast.get_source_segment(source, node.value)
        elif isinstance(node, ast.If | ast.While):
            test = ast.get_source_segment(source, node.test)
            yield from filter(computes, [test])


def computes(expression):
    """Whether an expression does arithmetic or compares; a call on names that stand there already is bookkeeping."""
    return any(isinstance(node, ast.BinOp | ast.Compare) for node in ast.walk(ast.parse(f"({expression})")))


def decisive(item):
    """What no hint may hold; of a bug all that the code under suspicion does not have anyway, and be it `d**2 / 2`."""
    if item.id in EXERCISES:
        return {text for text in filter(computes, expressions(item.solution)) if len(squeezed(text)) > 12}
    found = set(expressions(item.mended)) - set(expressions(item.wrong))
    return {text for text in found if len(squeezed(text)) > (5 if computes(text) else 12)}


def gives_away(text, item):
    """The expressions of a solution that stand in a hint, however they are laid out."""
    return [code for code in decisive(item) if squeezed(code) in squeezed(text)]


def test_every_exercise_has_three_hints():
    assert [name for name, item in ITEMS.items() if len(item.hints) != 3] == []


@pytest.mark.parametrize("item", ITEMS.values(), ids=lambda item: item.id)
def test_levels_differ_and_the_last_has_a_gap_or_asks(item):
    first, idea, outline = item.hints
    assert first == item.hint
    assert len({squeezed(text) for text in item.hints}) == 3
    assert "```" not in idea
    assert 12 <= len(idea.split()) <= 80
    for text in (idea, outline):
        assert text.rstrip()[-1] in ".?`"
        assert not re.search(r"^\s*([-+*>=]|\d+[.)]) ", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
        assert text.count("```") == 2 * len(code_in(text))
        assert re.sub(r"```.*?```", "", text, flags=re.DOTALL).count("$") % 2 == 0
    blocks = code_in(outline)
    assert all("..." in block for block in blocks)
    assert blocks or "?" in outline
    for block in blocks:
        ast.parse(f"{block}    pass" if block.endswith(":\n") else block)


@pytest.mark.parametrize("item", ITEMS.values(), ids=lambda item: item.id)
def test_no_hint_holds_the_decisive_code(item):
    for text in item.hints:
        assert gives_away(text, item) == []


@pytest.mark.parametrize("item", ITEMS.values(), ids=lambda item: item.id)
def test_a_hint_with_decisive_code_would_be_found(item):
    function = item.solution if item.id in EXERCISES else item.mended
    assert decisive(item)
    assert gives_away(inspect.getsource(function), item)
    for code in decisive(item):
        assert gives_away(f"Write this:\n\n```python\nx = {code}  # so\n```", item)


def test_asking_again_gives_the_next_one_and_then_the_last_again():
    item = EXERCISES["grpo-advantage"]
    said = [hint("grpo-advantage").markdown for _ in range(4)]
    for number, text in zip((1, 2, 3, 3), said, strict=True):
        assert text.startswith(f"**Hint {number} of 3** (`grpo-advantage`):")
        assert item.hints[number - 1] in text
    assert hint("padded-mean").markdown.startswith("**Hint 1 of 3**")  # each exercise counts for itself


def test_a_level_can_be_asked_for_and_the_count_goes_on_from_there():
    assert "Hint 2 of 3" in hint("grpo-k3", level=2).markdown
    assert "Hint 3 of 3" in hint("grpo-k3").markdown
    assert "Hint 1 of 3" in hint("grpo-k3", level=1).markdown
    assert "Hint 2 of 3" in hint("grpo-k3").markdown


@pytest.mark.parametrize("level", [0, 4, -1, True])  # other types: tests/errors
def test_a_level_that_does_not_exist_names_the_range(level):
    with pytest.raises(ValueError, match=f"no hint {level!r} for 'grpo-k3': expected a level from 1 to 3"):
        hint("grpo-k3", level)
    assert "Hint 1 of 3" in hint("grpo-k3").markdown  # a wrong call has shown nothing


@pytest.mark.parametrize("turn", ["first", "second"])
def test_who_asks_in_one_test_has_not_asked_in_another(turn):
    """Whichever of the two runs first: the next one would otherwise be told the second hint."""
    assert "Hint 1 of 3" in hint("grpo-k3").markdown, turn


def test_a_wrong_answer_is_told_the_first_hint_whatever_has_been_shown():
    item = EXERCISES["dr-grpo-weights"]
    for _ in range(3):
        hint(item.id)
    said = check(item.id, lambda advantages, lengths, budget: item.solution(advantages, lengths, budget) ** 3).message
    assert item.where in said
    assert item.hints[1] not in said


def test_the_board_goes_on_too_and_the_page_of_solutions_folds_what_comes_after_the_first():
    board = Whiteboard()
    assert "Hint 1 of" in board.hint("grpo-k3").markdown
    assert "Hint 2 of" in board.hint("grpo-k3").markdown
    assert "Hint 1 of" in hint("grpo-k3").markdown  # each counts for itself
    assert "Hint 1 of" in Whiteboard().hint("grpo-k3").markdown  # and a new board begins anew
    assert "Hint 3 of" in board.hint("grpo-k3").markdown
    page = solutions.chapter("grpo").partition("## `grpo-k3`")[2].partition("\n## ")[0]
    first, idea, outline = EXERCISES["grpo-k3"].hints
    places = [page.index(text) for text in (first, "Hint 2 of 3", idea, "Hint 3 of 3", outline, "Solution</summary>")]
    assert places == sorted(places)
