"""The exercises of the chapter on scaling up, one a file, in the order of the chapter."""

from .bugs import BUGS
from .checkpoint import CHECKPOINT
from .decode import DECODE
from .lora import LORA
from .lost import LOST
from .processes import PROCESSES
from .truncated import TRUNCATED
from .verifier import VERIFIER

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (CHECKPOINT, LORA, LOST, TRUNCATED, DECODE, PROCESSES, VERIFIER)
