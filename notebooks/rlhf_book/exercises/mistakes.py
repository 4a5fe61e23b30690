"""The commonest mistakes as transformations of a function that is right: its sign, two arguments, or one of them.

A mistake that is no such transformation is a function of its own, in the file of its exercise.
"""

import inspect
from collections.abc import Callable
from typing import Any


def negated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The other sign: a loss in the place of an objective, a push in the wrong direction.

    Example:
        >>> negated(lambda old, new: new - old)(1, 3)
        -2
    """

    def wrong(*given: Any) -> Any:
        return -function(*given)

    wrong.__name__ = "negated"
    return wrong


def swapped(function: Callable[..., Any], one: str, other: str) -> Callable[..., Any]:
    """Two arguments in each other's place, such as the old policy's log-probs and the new one's.

    Example:
        >>> swapped(lambda old, new: new - old, "old", "new")(1, 3)
        -2
    """
    names = inspect.signature(function)

    def wrong(*given: Any) -> Any:
        named = _by_name(names, given)
        return function(**named | {one: named[other], other: named[one]})

    wrong.__name__ = f"swapped_{one}_and_{other}"
    return wrong


def given(function: Callable[..., Any], **changes: Any) -> Callable[..., Any]:
    """Another argument: a value, or what a function makes of the right one, as `mask=torch.ones_like`: padding counted.

    Example:
        >>> given(lambda old, new: new - old, new=10, old=abs)(-1, 3)
        9
    """
    names = inspect.signature(function)

    def wrong(*given: Any) -> Any:
        named = _by_name(names, given)
        made = {
            name: change(named[name]) if callable(change) else change
            for name, change in changes.items()
        }
        return function(**named | made)

    wrong.__name__ = f"given_another_{'_and_'.join(changes)}"
    return wrong


def _by_name(names: inspect.Signature, given: tuple[Any, ...]) -> dict[str, Any]:
    bound = names.bind(*given)
    bound.apply_defaults()
    return dict(bound.arguments)
