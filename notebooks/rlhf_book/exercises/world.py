"""What a reader's function can change beyond its own arguments, and how that is put back.

A function may call `torch.set_default_dtype`, switch gradients off, seed a generator, take a signal over, or put
something of its own in the place of `torch.allclose`. Neither its own verdict nor the next one may depend on that. It
is no prison: who wants to cheat a checker that runs in the same process will.
"""

import builtins
import contextlib
import math
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any

import numpy as np
import torch

from rlhf_minimal import time_limit


class World:
    """The state of the process, to be put back after each call of a reader's function."""

    def __init__(self) -> None:
        own = {name: module for name, module in sys.modules.items() if name.startswith(__package__)}
        machinery = [own[f"{__package__}.exercise"], own[__name__]]
        classes = [thing for module in machinery for thing in vars(module).values() if _is_ours(thing)]
        machinery.append(time_limit)  # whose classes have a state of their own
        # What a verdict is made with, looked at after every call; and what other exercises have, looked at in the end.
        self.names = _names([torch, torch.Tensor, torch.nn.functional, builtins, math, *machinery, *classes])
        self.others = _names([torch.autograd, random, signal, *own.values()])
        self.settings = [(write, read()) for read, write in _SETTINGS]
        self.handlers = _handlers()

    def restore(self) -> None:
        """Puts back what the comparison depends on."""
        _restore(self.names)
        for (read, _), (write, before) in zip(_SETTINGS, self.settings, strict=True):
            if read() != before:
                write(before)

    def restore_all(self) -> None:
        """Puts back the rest, too."""
        self.restore()
        _restore(self.others)
        if threading.current_thread() is threading.main_thread() and (now := _handlers()) != self.handlers:
            for number, handler in self.handlers.items():
                if now[number] != handler and handler is not None:
                    signal.signal(number, handler)


@contextmanager
def left_as_it_is() -> Iterator[World]:
    """A world that is put back at the end, with the generators of random numbers."""
    world, state = World(), (random.getstate(), np.random.get_state())  # noqa: NPY002  (readers have it)
    with torch.random.fork_rng(devices=[]):
        try:
            yield world
        finally:
            world.restore_all()
            random.setstate(state[0])
            np.random.set_state(state[1])  # noqa: NPY002


def _is_ours(thing: Any) -> bool:
    return isinstance(thing, type) and thing.__module__.startswith("rlhf_book.")


def _names(places: list[Any]) -> list[tuple[Any, dict[str, Any]]]:
    return [(place, dict(vars(place))) for place in {id(place): place for place in places}.values()]


def _restore(names: list[tuple[Any, dict[str, Any]]]) -> None:
    for place, before in names:
        now = vars(place)
        if len(now) == len(before) and all(map(is_, now.values(), before.values())):
            continue
        now = dict(now)
        for name in now.keys() - before.keys():
            with contextlib.suppress(AttributeError, TypeError):
                delattr(place, name)
        for name, value in before.items():
            if name not in now or now[name] is not value:
                with contextlib.suppress(AttributeError, TypeError):  # some of a class cannot be written, nor was it
                    setattr(place, name, value)


def _handlers() -> dict[int, Any]:
    """What is done at each signal. Those of the time limit are its own, which puts them back."""
    ours = {getattr(signal, name, None) for name in ("SIGALRM", "SIGVTALRM")}
    return {number: signal.getsignal(number) for number in signal.valid_signals() if number not in ours}


def _device() -> str:
    return str(torch.get_default_device())


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _output() -> tuple[Any, Any]:
    return sys.stdout, sys.stderr


def _set_output(streams: tuple[Any, Any]) -> None:
    sys.stdout, sys.stderr = streams


_SETTINGS: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (_device, torch.set_default_device),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (_deterministic, lambda flags: torch.use_deterministic_algorithms(flags[0], warn_only=flags[1])),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.gettrace, sys.settrace),
    (_output, _set_output),
    (os.getcwd, os.chdir),
]
