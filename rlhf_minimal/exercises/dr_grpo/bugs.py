"""Find the bug: plausible code about Dr. GRPO that is wrong."""

from ..bug import Bug

BUGS: tuple[Bug, ...] = ()
