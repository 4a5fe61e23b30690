"""Every annotation is an assertion while the tests run, at a small part of the cost of jaxtyping's own decorator.

`--jaxtyping-packages` puts `jaxtyping.jaxtyped(typechecker=…)` on every function and class of our packages. For each
call it binds the arguments to the signature and calls two empty functions with the same annotations: some fifty
microseconds, which is more than most cells take on the tiny tensors of a test. `install` puts `checked` in its place:
the function itself is checked, by the same type checker, and the names of axes have a scope only where an annotation
names an axis.
"""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping._decorator import jaxtyped as theirs
from jaxtyping._storage import pop_shape_memo, push_shape_memo

with_our_errors = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))
NOTHING: dict[str, Any] = {}


def install() -> None:
    """From here on, the import hook of jaxtyping decorates with `checked`."""
    jaxtyping.jaxtyped = jaxtyped


def jaxtyped(thing: Any = None, *, typechecker: Any = None) -> Any:
    """Called as jaxtyping's own is by its import hook, whose type checker is beartype."""
    return checked if thing is None else checked(thing)


def checked(thing: Any) -> Any:
    """A function, method or dataclass whose annotations are asserted in every call."""
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and "__init__" in vars(thing) and not hasattr(thing.__init__, "__wrapped__"):
            thing.__init__ = checked(thing.__init__)
        return thing
    if isinstance(thing, classmethod | staticmethod):
        return type(thing)(checked(thing.__func__))
    if isinstance(thing, property):
        return property(*(part and checked(part) for part in (thing.fget, thing.fset, thing.fdel)), thing.__doc__)
    hints = list(getattr(thing, "__annotations__", {}).values())
    if not hints:
        return thing
    if inspect.isgeneratorfunction(thing) or inspect.iscoroutinefunction(thing) or inspect.isasyncgenfunction(thing):
        return theirs(thing, typechecker=beartype)  # beartype looks at their arguments late, outside of their scope
    inner = with_our_errors(thing)
    return in_a_scope(inner) if any(map(names_axes, hints)) else inner


def in_a_scope(function: Callable[..., Any]) -> Callable[..., Any]:
    """An axis called B is as long in the result as in the arguments; the next call has a B of its own."""

    @functools.wraps(function)
    def scoped(*args: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        push_shape_memo(NOTHING)
        try:
            return function(*args, **named)
        finally:
            pop_shape_memo()

    return scoped


def names_axes(hint: Any) -> bool:
    """Whether a type of jaxtyping stands in an annotation; a text, which is read later, may hold one."""
    if isinstance(hint, str | typing.ForwardRef):
        return True
    if isinstance(hint, list | tuple):
        return any(map(names_axes, hint))
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(names_axes, typing.get_args(hint)))
