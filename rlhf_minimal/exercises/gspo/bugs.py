"""Find the bug: plausible code about GSPO that is wrong."""

from ..bug import Bug

BUGS: tuple[Bug, ...] = ()
