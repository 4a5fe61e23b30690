"""What a reader's function can change beyond its answer, and how that is put back.

A function may call `torch.set_default_dtype`, seed a generator, take a signal over, or put something of its own in the
place of `torch.allclose`. Neither its own verdict nor the next one depends on that: settings and names are put back
after each call. It is no prison. Who wants to cheat a checker in the same process will, and a checker is no exam.
"""

import builtins
import contextlib
import math
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from operator import is_
from types import ModuleType
from typing import Any

import numpy as np
import torch

from rlhf_minimal.timeouts import Alarm

from_iterable = chain.from_iterable
_LATE = 0.5  # seconds: the second thread waits so much longer than the timer


class Names:
    """The names of modules and classes, and which object each of them is."""

    def __init__(self, places: list[Any]) -> None:
        unique = {id(place): place for place in places}
        self.before = [(place, dict(vars(place))) for place in unique.values()]
        # The same once more, as one long list each: thousands of names are compared after every call.
        self._places = [vars(place) for place in unique.values()]  # as they will be
        self._now = [place.values() for place in self._places]
        self._lengths = [len(names) for _, names in self.before]
        self._values = [value for _, names in self.before for value in names.values()]

    def are_the_same(
        self,
        all: Any = all,
        len: Any = len,
        list: Any = list,
        map: Any = map,
    ) -> bool:
        """Whether every name is the object that it was. The tools are defaults: builtins may be what has changed."""
        return list(map(len, self._places)) == self._lengths and all(
            map(is_, from_iterable(self._now), self._values)
        )

    def put_back(
        self, all: Any = all, len: Any = len, map: Any = map, vars: Any = vars
    ) -> None:
        """Makes every name what it was; removes those that are new, other than imported modules."""
        if self.are_the_same():
            return
        for place, before in self.before:
            now = vars(place)
            if len(now) == len(before) and all(map(is_, now.values(), before.values())):
                continue
            for name, value in before.items():
                if name not in now or now[name] is not value:
                    _write(place, name, value)
            for name in [name for name in vars(place) if name not in before]:
                if not isinstance(vars(place)[name], ModuleType):  # it was imported
                    _write(place, name)


class World:
    """The settings and names of the process, to be put back after each call of a reader's function.

    Args:
        judges: The modules and classes that the verdict is made with, see `made_with`.
    """

    def __init__(self, judges: Sequence[Any]) -> None:
        # Looked at after each call: what a verdict is made with. Looked at in the end: what else a chapter uses.
        self.names = Names([torch, torch.Tensor, builtins, math, *judges])
        loaded = tuple(map(id, sys.modules.values()))
        self.others = Names(
            [*_OTHERS, *_ours("rlhf_minimal", loaded), *_ours("rlhf_book", loaded)]
        )
        self.settings = [(read, write, read()) for read, write in _SETTINGS]
        self.handlers = _handlers()
        self.over = False

    def restore(self) -> None:
        """Puts back what the comparison depends on; nothing, once the check is over (a call left behind ends later)."""
        if self.over:
            return
        self.names.put_back()
        for read, write, before in self.settings:
            if read() != before:
                write(before)

    def restore_all(self) -> None:
        """Puts back the rest, too."""
        self.restore()
        self.others.put_back()
        if threading.current_thread() is threading.main_thread():
            now = _handlers()
            for number, handler in self.handlers.items():
                if now[number] != handler and handler is not None:
                    signal.signal(number, handler)


@contextmanager
def left_as_it_is(judges: Sequence[Any]) -> Iterator[World]:
    """A reader's function runs in here: with gradients, without warnings, and all is put back in the end."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  (readers have it)
    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        warnings.catch_warnings(),
        watched(),
    ):
        warnings.simplefilter("ignore")  # wrong answers divide by zero
        world = World(judges)
        try:
            yield world
        finally:
            world.restore_all()
            world.over = True
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def watched() -> Iterator[None]:
    """In here a call of `call_with_timeout` is interrupted even if it has taken the timer's signal over, or has switched it off.

    A second thread sends SIGURG to the main thread, half a second after the time is up. Python does nothing at this
    signal unless it has a handler, and neither does the system: a signal that comes too late cannot end the process.
    A call that takes over SIGURG, too, is not interrupted.
    """
    watching = threading.current_thread() is threading.main_thread() and hasattr(
        signal, "SIGURG"
    )
    if not watching:
        yield
        return
    main, going = threading.get_ident(), [True]

    def late(*signal_and_frame: object) -> None:
        if Alarm.now and time.monotonic() > Alarm.now.end:
            Alarm.now.ring()

    def watch() -> None:
        # Without locks: an exception in the main thread could leave one closed.
        struck = 0.0
        while going:
            time.sleep(0.05)
            alarm, now = Alarm.now, time.monotonic()
            if alarm is None or not alarm.armed:
                continue
            if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
                signal.setitimer(signal.ITIMER_REAL, 0)  # it would end the process
            if now > max(alarm.end, struck) + _LATE:
                struck = now
                signal.pthread_kill(main, signal.SIGURG)

    before = signal.signal(signal.SIGURG, late)
    try:
        threading.Thread(target=watch, daemon=True).start()
        yield
    finally:
        going.clear()
        signal.signal(signal.SIGURG, before)


def made_with(*functions: Callable[..., Any]) -> tuple[Any, ...]:
    """The modules of this package that these functions are made with, and their classes.

    They are the modules in which the functions stand, and all those from which one of them has a module, a function or
    a class.
    """
    found: dict[str, ModuleType] = {}
    todo = [getattr(function, "__module__", None) for function in functions]
    while todo:
        name = todo.pop()
        if name in found or not f"{name}.".startswith(f"{__package__}."):
            continue
        module = found[str(name)] = sys.modules[str(name)]
        for thing in vars(module).values():
            owner = getattr(thing, "func", thing)  # of a partial, the function
            of_module = isinstance(thing, ModuleType)
            todo.append(
                thing.__name__ if of_module else getattr(owner, "__module__", None)
            )
    return _with_classes(list(found.values()), __package__)


@lru_cache(maxsize=8)
def _ours(package: str, loaded: tuple[int, ...]) -> tuple[Any, ...]:
    """The modules of a package among those that are loaded, and their classes."""
    modules = [
        module
        for name, module in sys.modules.items()
        if f"{name}.".startswith(f"{package}.") and module is not None
    ]
    return _with_classes(modules, package)


def _with_classes(modules: list[ModuleType], package: str) -> tuple[Any, ...]:
    classes = [
        thing
        for module in modules
        for thing in vars(module).values()
        if isinstance(thing, type) and f"{thing.__module__}.".startswith(f"{package}.")
    ]
    return (*modules, *classes)


def _write(place: Any, name: str, *value: Any) -> None:
    with contextlib.suppress(AttributeError, TypeError):  # some cannot be written
        setattr(place, name, *value) if value else delattr(place, name)


def _handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _device() -> Any:
    """What `torch.set_default_device` was told; None if nothing, which is faster than "cpu"."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _deterministic() -> tuple[bool, bool]:
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), warn_only


def _set_deterministic(flags: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(flags[0], warn_only=flags[1])


def _output() -> tuple[Any, Any]:
    return sys.stdout, sys.stderr


def _set_output(streams: tuple[Any, Any]) -> None:
    sys.stdout, sys.stderr = streams


_OTHERS = [torch.testing, torch.nn.functional, torch.autograd, np, random, signal]
_SETTINGS: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (_device, torch.set_default_device),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (_deterministic, _set_deterministic),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.gettrace, sys.settrace),
    (_output, _set_output),
    (os.getcwd, os.chdir),
]
