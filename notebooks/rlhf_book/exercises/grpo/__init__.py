"""The exercises on GRPO, one a file: first those of the core, then those of the chapter in depth."""

from .advantage import ADVANTAGE
from .all_wrong import ALL_WRONG
from .bugs import BUGS
from .clipped_loss import CLIPPED_LOSS
from .closed_form import CLOSED_FORM
from .dead_groups import DEAD_GROUPS
from .k3_penalty import K3
from .leave_one_out import LEAVE_ONE_OUT
from .on_policy import ON_POLICY
from .process import PROCESS
from .ragged_groups import RAGGED_GROUPS
from .std_weight import STD_WEIGHT

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (
    RAGGED_GROUPS,
    DEAD_GROUPS,
    ALL_WRONG,
    ADVANTAGE,
    CLOSED_FORM,
    CLIPPED_LOSS,
    K3,
    ON_POLICY,
    STD_WEIGHT,
    LEAVE_ONE_OUT,
    PROCESS,
)
