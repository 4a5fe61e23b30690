"""Small wrong versions of a module, one change each: a sign flipped, a bound moved, a check left out.

A mutant that no test notices is either the same program or a hole in the tests. Nothing is excluded by a pattern or a
pragma. What is no program is not mutated: annotations, docstrings, the words of an error message (its raise is dropped
instead) and `__all__`.
"""

import ast
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType

COMPARE = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
OTHER_NAME = {
    "amax": "amin",
    "amin": "amax",
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "sum": "mean",
    "mean": "sum",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
    "exp": "expm1",
    "expm1": "exp",
    "rsqrt": "sqrt",
}
DROPPED = {"detach", "abs", "flip", "clamp", "cumsum", "logical_not", "log", "to", "repeat_interleave", "nan_to_num"}


@dataclass(frozen=True)
class Mutant:
    """One change: where it is, what stood there and what stands there now."""

    line: int
    lines: range  # of the statement that it is in
    function: str | None  # qualified name of the outermost function, None in the body of a class or module
    before: str
    after: str
    # All mutants of a module share its tree: the change is made when it is asked for, and taken back.
    _tree: ast.Module = field(repr=False)
    _path: list = field(repr=False)
    _other: ast.AST = field(repr=False)

    @property
    def change(self) -> str:
        return f"{self.before} -> {self.after}"

    @property
    def source(self) -> str:
        """The mutated module."""
        with self._changed() as tree:
            return ast.unparse(tree)

    def code(self, filename: str) -> CodeType:
        """The mutated module, compiled."""
        with self._changed() as tree:
            return compile(tree, filename, "exec")

    @contextmanager
    def _changed(self):
        original = _at(self._tree, self._path)
        _put(self._tree, self._path, self._other)
        try:
            yield self._tree
        finally:
            _put(self._tree, self._path, original)


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a module's source, in the order of its lines."""
    tree = ast.parse(source)
    found = []
    for path, function in _places(tree):
        node = _at(tree, path)
        others = list(_changes(node))
        before = _short(ast.unparse(node)) if others else ""
        for other in others:
            ast.fix_missing_locations(ast.copy_location(other, node))
            after = _short(ast.unparse(other))
            found.append(Mutant(node.lineno, _lines(tree, path), function, before, after, tree, path, other))
    return sorted(found, key=lambda mutant: mutant.line)


def _lines(tree: ast.AST, path: list) -> range:
    """The lines of the innermost statement; of one with a body, those of its head."""
    statement, node = tree, tree
    for name, index in path:
        node = getattr(node, name) if index is None else getattr(node, name)[index]
        statement = node if isinstance(node, ast.stmt) else statement
    body = getattr(statement, "body", None)
    return range(statement.lineno, body[0].lineno if body else statement.end_lineno + 1)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 90 else line[:87] + "..."


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op], comparators=_) if type(op) in COMPARE:
            new.ops = [COMPARE[type(op)]()]
            yield new
        case ast.Compare(ops=[first, second], comparators=_):  # 0 <= x <= 1: each side by itself
            for i, op in enumerate((first, second)):
                other = copy.deepcopy(new)
                other.ops[i] = COMPARE[type(op)]()
                yield other
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            new.op = ARITHMETIC[type(op)]()
            yield new
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):  # -1 is one number
            yield ast.Constant(1 - value)
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            yield operand
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield new
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(value=str(value)):
            yield ast.Constant(f"XX{value}XX")
        case ast.If() | ast.IfExp():
            new.test = ast.UnaryOp(ast.Not(), new.test)
            yield new
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Assert():
            yield ast.Pass()
        case ast.Call():
            for i, keyword in enumerate(new.keywords):
                if keyword.arg is not None:
                    fewer = copy.deepcopy(new)
                    del fewer.keywords[i]
                    yield fewer
            if isinstance(new.func, ast.Attribute):
                if new.func.attr in OTHER_NAME:
                    other = copy.deepcopy(new)
                    other.func.attr = OTHER_NAME[new.func.attr]
                    yield other
                if new.func.attr in DROPPED:
                    yield new.func.value


def _places(tree: ast.Module) -> Iterator[tuple[list, str | None]]:
    """The way from the root to every node that is program: ("body", 3), ("value", None), ..."""

    def walk(node, path, function, classes):
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_comment", "type_params"):
                continue
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST) or _is_docstring(child) or _is_all(child):
                    continue
                here = [*path, (name, index)]
                inside, around = function, classes
                if isinstance(child, ast.FunctionDef) and function is None:
                    inside = ".".join([*classes, child.name])
                if isinstance(child, ast.ClassDef):
                    around = [*classes, child.name]
                if name == "decorator_list":
                    inside = None  # runs when the module is imported, like a class body
                if hasattr(child, "lineno"):
                    yield here, inside
                negative = isinstance(child, ast.UnaryOp) and isinstance(child.operand, ast.Constant)
                if not isinstance(child, ast.Raise | ast.JoinedStr) and not negative:
                    yield from walk(child, here, inside, around)

    yield from walk(tree, [], None, [])


def _is_docstring(node) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_all(node) -> bool:
    return isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"


def _at(tree, path):
    for name, index in path:
        tree = getattr(tree, name) if index is None else getattr(tree, name)[index]
    return tree


def _put(tree, path, new) -> None:
    *way, (name, index) = path
    parent = _at(tree, way)
    if index is None:
        setattr(parent, name, new)
    else:
        getattr(parent, name)[index] = new
