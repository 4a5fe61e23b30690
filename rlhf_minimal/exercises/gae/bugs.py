"""Find the bug: plausible code about generalised advantage estimation that is wrong."""

from ..bug import Bug

BUGS: tuple[Bug, ...] = ()
