"""One-line checks with messages that say what to do.

The annotations of a signature check nothing in a reader's program; only the tests have jaxtyping read them. So every
shape, dtype and number that a function relies on is checked here, in each call.
"""

import math
import unicodedata
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor


def check(mask: Tensor, **tensors: Tensor) -> None:
    """As `check_tokens`, and at least one token is trained.

    Args:
        mask: [B, T], 1 on trained tokens.
        **tensors: the other [B, T] arguments by name.

    Raises:
        ValueError: naming the argument, what was given, and what to do.

    Example:
        >>> check(torch.ones(2, 3), logp=torch.zeros(3, 2))
        Traceback (most recent call last):
        ValueError: logp has shape (3, 2), expected (2, 3) as the mask has: one value for each completion token
    """
    check_tokens(mask, **tensors)
    if not (mask != 0).any():
        raise ValueError(
            "the mask is zero everywhere, so no token would be trained: drop this batch, or check how the mask "
            "was made (completion_mask includes the first EOS)"
        )


def check_tokens(mask: Tensor, **tensors: Tensor) -> None:
    """Per-token arguments: [B, T], floating, on one device, finite wherever the mask is 1.

    Args:
        mask: [B, T], 1 on trained tokens; a part of a batch may have none.
        **tensors: the other [B, T] arguments by name.

    Raises:
        ValueError: naming the argument, what was given, and what to do.
    """
    check_mask(mask)
    trained = mask != 0
    for name, x in tensors.items():
        check_floating(name, x)
        if x.shape != mask.shape:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}, expected {tuple(mask.shape)} as the mask has: "
                "one value for each completion token"
            )
        if x.device != mask.device:
            raise ValueError(f"{name} is on {x.device} and the mask on {mask.device}: move them to one device")
        if not torch.isfinite(x[trained]).all():
            raise ValueError(
                f"{name} is not finite on a trained token: a NaN or an infinity there would reach every weight; "
                "look for a zero probability, an overflow, or a mask that covers padding"
            )


ROUNDING = 1e-3  # how far above 0 a log-prob may lie by rounding in half precision


def check_logprobs(**logps: Tensor) -> None:
    """Log-probs of trained tokens, in one tensor or several that only together can be told from made-up numbers.

    Refused where each of them is nowhere below 0 and somewhere above it: those are negative log-likelihoods. So is one
    alone beside another that can only be log-probs, nowhere above 0 and somewhere below it.
    """
    spans = {name: (float(x.min()), float(x.max())) for name, x in logps.items() if x.numel()}
    wrong = {name: span for name, span in spans.items() if span[0] >= -ROUNDING and span[1] > ROUNDING}
    right = any(low < -ROUNDING and high <= ROUNDING for low, high in spans.values())
    if wrong and (right or len(wrong) == len(logps)):
        low, high = min(low for low, _ in wrong.values()), max(high for _, high in wrong.values())
        raise ValueError(
            f"{' and '.join(wrong)}: {low:.3g} and more on every trained token, up to {high:.3g}, and the logarithm of "
            "a probability is at most 0: if these are negative log-likelihoods, pass log pi instead of -log pi"
        )


def check_fits(what: str, x: Tensor) -> None:
    """What was computed from finite numbers is finite: it would be 0, NaN or an infinity without a word."""
    if not torch.isfinite(x).all():
        raise ValueError(
            f"{what} overflows {x.dtype}: the numbers are too large to be squared, so scale them down, or find out "
            "where they come from"
        )


def check_mask(mask: Any, name: str = "mask") -> None:
    """A mask is [B, T] and holds zeros and ones only; any dtype."""
    check_tensor(name, mask)
    if mask.dim() != 2 or mask.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}, expected [B, T] with at least one token")
    if not ((mask == 0) | (mask == 1)).all():
        raise ValueError(f"{name} must hold only 0 and 1 (1 = trained token); token weights belong in `trust`")


def check_completions(mask: Tensor, name: str = "mask") -> None:
    """Every row has a trained token: an empty completion would have probability 1 under any policy."""
    empty = (mask == 0).all(-1).nonzero().flatten().tolist()
    if empty:
        raise ValueError(
            f"{name} is zero everywhere in row {empty[0]}: a completion has at least its EOS, so drop the pair, or "
            "check how the mask was made (completion_mask includes the first EOS)"
        )


def check_floating(name: str, x: Any) -> None:
    """Floating-point, so that a reward of 1 / 2 is not silently 0."""
    check_tensor(name, x)
    if not x.is_floating_point():
        raise ValueError(f"{name} has dtype {x.dtype}, expected floating point: call .float() on it")


def check_integers(name: str, x: Any) -> None:
    """Whole numbers: token ids, lengths."""
    check_tensor(name, x)
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise ValueError(f"{name} has dtype {x.dtype}, expected integers: call .long() on it")


def check_tensor(name: str, x: Any) -> None:
    """A tensor, not a list or an array."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}, expected a tensor: torch.tensor(...) makes one")


def check_same_shape(**tensors: Tensor) -> None:
    """Tensors that are combined element by element: broadcasting would silently pair the wrong ones."""
    (first, x), *others = tensors.items()
    for name, y in others:
        if x.shape != y.shape:
            raise ValueError(
                f"{first} {tuple(x.shape)} and {name} {tuple(y.shape)} must have one shape: nothing is broadcast, so "
                "expand or cut one of them first"
            )


def check_pair(**tensors: Any) -> None:
    """Floating tensors that are combined element by element."""
    for name, x in tensors.items():
        check_floating(name, x)
    check_same_shape(**tensors)


def check_rows(name: str, x: Tensor, rows: int) -> None:
    """A per-sequence argument: [B], floating, finite."""
    check_floating(name, x)
    if x.shape != (rows,):
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected ({rows},): one number for each sequence")
    _check_scores(name, x)


def check_flags(name: str, x: Any, rows: int) -> None:
    """A yes or no for each sequence: [B], bool."""
    check_tensor(name, x)
    if x.shape != (rows,) or x.dtype != torch.bool:
        raise ValueError(f"{name} is {x.dtype} {tuple(x.shape)}, expected bool ({rows},): one value for each sequence")


def check_step_ends(step_ends: Any, mask: Tensor) -> None:
    """1 on the last token of each step: as a mask, and of the mask's shape."""
    check_mask(step_ends, "step_ends")
    check_same_shape(step_ends=step_ends, mask=mask)


def check_parts(parts: Any, rows: int) -> None:
    """Several rewards a sequence: [B, K], floating, finite."""
    check_floating("reward_parts", parts)
    if parts.dim() != 2 or len(parts) != rows or not parts.shape[1]:
        raise ValueError(
            f"reward_parts has shape {tuple(parts.shape)}, expected ({rows}, K): one column for each part of the reward"
        )
    _check_scores("reward_parts", parts)


def _check_scores(name: str, x: Tensor) -> None:
    if not torch.isfinite(x).all():
        raise ValueError(f"{name} holds a number that is not finite: score the completion or drop its group")


def check_rewards(rewards: Tensor) -> None:
    """Rewards whose length is the number of sequences: [B], floating, finite."""
    check_tensor("rewards", rewards)
    if rewards.dim() != 1 or not len(rewards):
        raise ValueError(f"rewards have shape {tuple(rewards.shape)}, expected [B]: one number for each sequence")
    check_rows("rewards", rewards, len(rewards))


def check_group(rows: int, group_size: int, *, at_least: int = 1) -> None:
    """Rows divide into whole groups of ``group_size``, each with at least ``at_least`` completions."""
    check_count(group_size=group_size)
    if rows % group_size:
        raise ValueError(
            f"{rows} sequences do not divide into groups of {group_size}: keep the completions of one prompt "
            "together, and pass their number as group_size"
        )
    if group_size < at_least:
        raise ValueError(
            f"group_size is {group_size}, but a group baseline compares completions of one prompt and needs at "
            f"least {at_least}: sample more completions, or choose an advantage without a group"
        )


def check_positive(**numbers: Any) -> None:
    """Options that only make sense above zero."""
    _check_numbers(numbers, lambda value: value > 0, "a number above 0")


COLDEST = 1e-6  # a temperature; logits over a lower one may overflow


def check_temperature(temperature: Any) -> None:
    """A temperature by which logits are divided."""
    _check_numbers({"temperature": temperature}, lambda value: 0 < value < math.inf, "a finite number above 0")
    if temperature < COLDEST:
        raise ValueError(
            f"temperature is {temperature!r}, and below {COLDEST:g} logits overflow: give a higher one, or sample "
            "greedily, which a sampler does at exactly 0"
        )


def check_not_negative(**numbers: Any) -> None:
    """Options that only make sense at or above zero."""
    _check_numbers(numbers, lambda value: value >= 0, "a number of at least 0")


def check_numbers(**numbers: Any) -> None:
    """Options that may be any number, as long as it is finite."""
    _check_numbers(numbers, math.isfinite, "a finite number")


def check_ddof(ddof: Any) -> None:
    """Sample or population standard deviation."""
    if ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof!r}, expected 1 (sample standard deviation) or 0 (population)")


def check_share(**numbers: Any) -> None:
    """Options that only make sense between zero and one."""
    _check_numbers(numbers, lambda value: 0 <= value <= 1, "a number between 0 and 1")


def check_count(**numbers: Any) -> None:
    """Options that count something: a whole number of at least 1."""
    _check_numbers(numbers, lambda value: value >= 1, "a whole number of at least 1", Integral)


def _check_numbers(numbers: dict[str, Any], fits: Callable[[Any], bool], expected: str, kind: type = Real) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, kind) or not fits(value):
            raise ValueError(f"{name} is {value!r}, expected {expected}")


def check_name(what: str, name: str) -> None:
    r"""Refuses control characters, line ends and halves of characters in a name, which ends up in files and terminals.

    Example:
        >>> check_name("--out", "runs/a\nb")
        Traceback (most recent call last):
        ValueError: --out holds a control character ('runs/a\nb'): take it out, or rename the file
    """
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name):
        raise ValueError(f"{what} holds a control character ({name!r}): take it out, or rename the file")
