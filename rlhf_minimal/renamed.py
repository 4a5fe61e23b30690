"""Keywords that have changed: whoever passes an old one is told the new one. `CHANGELOG.md` lists all old names."""

import functools
from typing import Any, TypeVar

_KEYWORDS = {
    "Recipe": {"read": "compute_logprobs", "read_values": "compute_values", "keep_groups_together": "sort_minibatches"}
}

Kind = TypeVar("Kind", bound=type)


def keywords(cls: Kind) -> Kind:
    """The class, whose old keywords are from here on answered with the new ones.

    Raises:
        TypeError: Later, when somebody passes an old keyword.
    """
    init, new = cls.__init__, _KEYWORDS[cls.__name__]  # type: ignore[misc]

    @functools.wraps(init)
    def checked(*args: Any, **options: Any) -> None:
        for old in new.keys() & options:
            raise TypeError(f"{cls.__name__}: the keyword {old} is now {new[old]}")
        init(*args, **options)

    cls.__init__ = checked  # type: ignore[misc]
    return cls
