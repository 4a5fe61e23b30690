"""The hook that asserts annotations in tests: it finds what jaxtyping's own decorator finds, and leaves nothing out."""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jaxtyping
import pytest
import torch
from jaxtyping import Float, Int, install_import_hook
from torch import Tensor

from rlhf_minimal.functional import aggregation
from tests import shapes

SOURCE = """
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from jaxtyping import Float, Int
from torch import Tensor

Row = Float[Tensor, "T"]

def pair(x: Float[Tensor, "B T"], y: Float[Tensor, "B"]) -> Float[Tensor, "T"]:
    return x.sum(0) if len(y) else y

def wrong_result(x: Float[Tensor, "B T"]) -> Float[Tensor, "T"]:
    return x.sum(1)

def wrong_number(x: int) -> int:
    return str(x)

def optional(x: Float[Tensor, "B"] | None = None, *, y: list[Float[Tensor, "B"]] = ()) -> None: ...

def some(x: Row, f: Callable[[Row], Row]) -> Row:
    return f(x)

def outer(n: int) -> Float[Tensor, "n"]:
    def inner(x: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
        return x
    return inner(n)

@contextmanager
def block(x: Float[Tensor, "B"]) -> Iterator[Tensor]:
    yield pair(x[None], x[:1])

@dataclass
class Batch:
    x: Float[Tensor, "B T"]
    y: Float[Tensor, "B"]
    names: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return "many"

    @classmethod
    def of(cls, x: Float[Tensor, "B T"]) -> "Batch":
        return cls(x, x[:, 0])

    @staticmethod
    def both(x: Int[Tensor, "B"], y: Int[Tensor, "B"]) -> None: ...

    def other(self, batch: "Batch") -> "Batch":
        return batch

    def twice(self, x: Tensor) -> Tensor:
        return 2 * x

class Wider(Batch):
    pass
"""
X, Y = torch.ones(2, 3), torch.ones(2)
RIGHT = {
    "two arguments": lambda m: m.pair(X, Y),
    "nothing": lambda m: m.optional(),
    "a keyword": lambda m: m.optional(Y, y=[torch.ones(2)]),
    "a function": lambda m: m.some(Y, lambda x: x),
    "a block": lambda m: m.block(Y).__enter__(),
    "another length in the next call": lambda m: (m.pair(X, Y), m.pair(torch.ones(4, 5), torch.ones(4))),
    "a dataclass": lambda m: m.Batch(X, Y),
    "a class method": lambda m: m.Batch.of(X).other(m.Wider(X, Y)),
}
WRONG = {
    "two lengths of one axis": lambda m: m.pair(X, torch.ones(3)),
    "an argument by keyword": lambda m: m.pair(X, y=torch.ones(3)),
    "a dimension too many": lambda m: m.pair(X[None], Y),
    "a dtype": lambda m: m.pair(X.long(), Y),
    "no tensor": lambda m: m.pair([[1.0]], Y),
    "a result of another length": lambda m: m.wrong_result(X),
    "a result of another type": lambda m: m.wrong_number(3),
    "an argument of another type": lambda m: m.wrong_number("3"),
    "inside a list": lambda m: m.optional(Y, y=[torch.ones(3)]),
    "no function": lambda m: m.some(Y, 3),
    "a function inside": lambda m: m.outer(3),
    "a block": lambda m: m.block(X),
    "a dataclass": lambda m: m.Batch(X, torch.ones(3)),
    "a class that inherits": lambda m: m.Wider(X, torch.ones(3)),
    "a field": lambda m: m.Batch(X, Y, names="ab"),
    "a property": lambda m: m.Batch(X, Y).rows,
    "a class method": lambda m: m.Batch.of(Y),
    "a method": lambda m: m.Batch(X, Y).twice(3),
    "a static method": lambda m: m.Batch.both(torch.tensor([1]), torch.tensor([1, 2])),
}


@pytest.fixture(scope="module", params=["jaxtyping", "ours"])
def module(request, tmp_path_factory):
    """The source above, imported as `--jaxtyping-packages` makes pytest import our packages."""
    name = f"shapes_by_{request.param}"
    folder = tmp_path_factory.mktemp("source")
    (folder / f"{name}.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setattr(jaxtyping, "jaxtyped", shapes.jaxtyped if request.param == "ours" else shapes.theirs)
        with install_import_hook(name, "beartype.beartype"):
            made = importlib.import_module(name)
    yield made
    del sys.modules[name]


def test_pytests_option_installs_it():
    hooked = any(type(finder).__name__ == "_JaxtypingFinder" for finder in sys.meta_path)
    assert (jaxtyping.jaxtyped is shapes.jaxtyped) == hooked
    assert hasattr(aggregation.token_mean, "__wrapped__") == hooked
    if hooked:
        with pytest.raises(TypeError, match="violates"):
            aggregation.token_mean(X, Y, totals=None)


@pytest.mark.parametrize("what", RIGHT)
def test_what_fits_its_annotations_passes(module, what):
    RIGHT[what](module)


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_refused(module, what):
    with pytest.raises(TypeError, match=r"(?i)type|violates"):
        WRONG[what](module)


@pytest.mark.parametrize("module", ["ours"], indirect=True)
def test_a_class_whose_name_is_quoted_is_asked_for(module):
    """Its own methods have to quote it; jaxtyping's own decorator lets them pass."""
    with pytest.raises(TypeError, match="violates"):
        module.Batch(X, Y).other(3)


def test_a_scope_ends_with_its_call_even_after_an_error():
    @shapes.checked
    def fails(x: Float[Tensor, "B"]) -> Float[Tensor, "B"]:
        raise KeyError

    with pytest.raises(KeyError):
        fails(torch.ones(2))
    stack = jaxtyping._storage._shape_storage.memo_stack
    assert not any("B" in single for single, *_ in stack)
    with pytest.raises(KeyError):
        fails(torch.ones(3))


def test_a_function_keeps_its_name_signature_and_source():
    def cell(x: Float[Tensor, "B T"], *, low: float = 0.2) -> Int[Tensor, "B"]:
        """What it does."""

    ours = shapes.checked(cell)
    assert ours is not cell
    assert (ours.__name__, ours.__doc__, ours.__module__) == (cell.__name__, cell.__doc__, cell.__module__)
    assert inspect.signature(ours) == inspect.signature(cell)
    assert inspect.getsource(ours) == inspect.getsource(cell)
    assert inspect.unwrap(ours) is cell


def test_only_an_annotation_that_names_an_axis_needs_a_scope():
    @dataclass
    class Kept:
        x: int

    B = Float[Tensor, "B"]
    for hint in (B, list[B], B | None, Iterator[Int[Tensor, ""]], Callable[[int], B], Callable[[B], int], "x"):
        assert shapes.names_axes(hint)
    for hint in (int, list[int], Tensor | None, Kept, None):
        assert not shapes.names_axes(hint)
    assert shapes.checked(functools.cache) is functools.cache  # nothing is annotated: nothing is wrapped
