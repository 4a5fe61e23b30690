"""Names that have changed: whoever asks for an old one is told the new one. `CHANGELOG.md` says it of methods, too."""

import functools
import sys
from typing import Any, NoReturn, TypeVar

_MODULES = {
    "rlhf_minimal.tasks.guard": "rlhf_minimal.tasks.scoring",
    "rlhf_minimal.time_limit": "rlhf_minimal.timeouts",
    "rlhf_minimal.lab.prefixes": "rlhf_minimal.lab.forced_tokens",
}
# Each line: a module, then old and new name in turns.
_NAMES = """
train read_policy compute_logprobs read_critic compute_values Reading PolicyOutput place_steps scatter_steps
train by_length forward_in_length_buckets at_precision autocast_and_checkpointing recomputes uses_checkpointing
sample read_with_cache decode_with_cache
models read_on forward_with_cache joined concatenate recomputing checkpointing spare backup_path
models OF_STEPS STEP_SCORER_FILE
metrics OF_THE_MACHINE NONDETERMINISTIC clock synchronized_time
fit preference_loss reward_model_loss pair_loss direct_preference_loss rows_of_step batch_of_step
fit read_reference add_reference_logprobs evaluate_examples evaluate_pairs Example EncodedPair
fit taught teacher_completions
"""
_KEYWORDS = {
    "Recipe": {
        "read": "compute_logprobs",
        "read_values": "compute_values",
        "keep_groups_together": "sort_minibatches",
    }
}

Kind = TypeVar("Kind", bound=type)


class _Modules:
    """Python asks this for every module before it looks for one."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name in _MODULES:
            raise ImportError(f"the module {name} is now {_MODULES[name]}")


sys.meta_path.insert(0, _Modules)


def names_of(module: str) -> None:
    """From here on, an old name of this module is answered with the new one.

    Raises:
        ImportError: Later, when somebody imports the old name, or reads it off the module.
    """
    lines = [words for place, *words in map(str.split, _NAMES.split("\n")[1:-1]) if f"rlhf_minimal.{place}" == module]
    new = {old: now for words in lines for old, now in zip(words[::2], words[1::2], strict=True)}

    def answer(name: str) -> NoReturn:
        if name in new:
            raise ImportError(f"{module}.{name} is now {new[name]}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    vars(sys.modules[module])["__getattr__"] = answer


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
