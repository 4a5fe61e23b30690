"""The mutator makes the mutants that it says it makes, and leaves alone what is no program."""

import ast

from tests.mutation.mutator import mutants

SOURCE = '''
"""A docstring, 1 + 1."""

from dataclasses import dataclass

__all__ = ["f", "C"]
TABLE = {"a": 1}


@mark("values")
def f(x: "B T", *, low: float = 0.2) -> "B T":
    """Another, x < y."""
    check(x, name="x")
    if low < 0 and not x.any():
        raise ValueError(f"low is {low}")
    return x.clamp(max=low).sum(-1) * 2


class C:
    frozen = True

    def g(self):
        return "token" == self.level
'''


def changes():
    return {(mutant.function, mutant.change) for mutant in mutants(SOURCE)}


def test_it_makes_one_small_change_each():
    assert {
        ("f", "0.2 -> 1.2"),
        ("f", "check(x, name='x') -> pass"),
        ("f", "check(x, name='x') -> check(x)"),
        ("f", "'x' -> 'XXxXX'"),
        ("f", "low < 0 and (not x.any()) -> low < 0 or not x.any()"),
        ("f", "low < 0 -> low <= 0"),
        ("f", "0 -> 1"),
        ("f", "not x.any() -> x.any()"),
        ("f", "x.any() -> x.all()"),
        ("f", "raise ValueError(f'low is {low}') -> pass"),
        ("f", "x.clamp(max=low).sum(-1) * 2 -> x.clamp(max=low).sum(-1) / 2"),
        ("f", "x.clamp(max=low).sum(-1) -> x.clamp(max=low).mean(-1)"),
        ("f", "x.clamp(max=low) -> x.clamp()"),
        ("f", "x.clamp(max=low) -> x"),
        ("f", "-1 -> 0"),
        ("f", "2 -> 3"),
        ("C.g", "'token' == self.level -> 'token' != self.level"),
        ("C.g", "'token' -> 'XXtokenXX'"),
        (None, "'a' -> 'XXaXX'"),
        (None, "'values' -> 'XXvaluesXX'"),
        (None, "True -> False"),
    } <= changes()


def test_it_mutates_no_words_and_no_types():
    for mutant in mutants(SOURCE):
        assert "docstring" not in mutant.before
        assert "B T" not in mutant.before
        assert "'C'" not in mutant.before
        assert not mutant.before.startswith("f'")


def test_every_mutant_is_a_program_and_another_one():
    original = ast.unparse(ast.parse(SOURCE))
    for mutant in mutants(SOURCE):
        compile(mutant.source, "mutant", "exec")
        assert mutant.source != original
        assert mutant.line in mutant.lines or mutant.function is None
