"""Find the bug: plausible code about the clipped objective of PPO that is wrong."""

from ..bug import Bug

BUGS: tuple[Bug, ...] = ()
