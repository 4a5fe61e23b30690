"""The trusted end of the line: a student's function as one that the book's checkers can call.

The checker, the hidden batches and the right answers are in this process; the student's code is in another one and
sees the arguments of one call at a time. What comes back are numbers, which are compared here.
"""

import contextlib
import json
import math
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .isolation import Isolation, Limits, Process
from .worker import LARGEST, decode, encode

FORM = "its process did not keep to the form of an answer"
STARTS = 8  # of a process, for one submission: each end costs what was running, not what follows
AGAIN = 2.0  # times its seconds: for running again what had run before an end


class Ended(Exception):
    """The student's process is gone, or speaks nonsense; the text says what is known."""


class Session:
    """One submission: its cells have run in a process of its own, and its functions can be called.

    Args:
        way: the walls.
        library: a folder with `worker.py` and the library.
        limits: what it may use.
        cells: the source of its code cells, in their order.
    """

    def __init__(
        self, way: Isolation, library: Path, limits: Limits, cells: Sequence[str]
    ) -> None:
        self.way, self.library, self.limits = way, library, limits
        self.cells = list(cells)
        self.end_of_time = time.monotonic() + limits.seconds
        self._again = AGAIN * limits.seconds
        self._ran: set[int] = set()  # cells that have not ended their process
        self.notes: dict[int, str] = {}  # cell -> what happened in it
        self.problem = ""  # why the process ended that ran last
        self._deadly: set[int] = set()
        self._process: Process | None = None
        self._starts = 0
        self.complaints = subprocess.DEVNULL  # where the walls' own errors go
        self._ending: list[threading.Thread] = []

    @property
    def seconds_left(self) -> float:
        """Until the submission's time is up."""
        return self.end_of_time - time.monotonic()

    @contextlib.contextmanager
    def beside(self, seconds: float = math.inf) -> Iterator[None]:
        """What the submission is asked in here runs beside its clock, for so many seconds at most."""
        began, end = time.monotonic(), self.end_of_time
        self.end_of_time += seconds
        try:
            yield
        finally:
            self.end_of_time = end + min(seconds, time.monotonic() - began)

    @contextlib.contextmanager
    def _not_counted(self, before: bool) -> Iterator[None]:
        """What had run before an end is run again beside the clock, for `AGAIN` times its seconds in all."""
        if not before:
            yield
            return
        began = time.monotonic()
        try:
            with self.beside(self._again):
                yield
        finally:
            self._again = max(0.0, self._again - (time.monotonic() - began))

    def start(self) -> None:
        """A process in which every cell has run that does not end its process.

        Raises:
            Ended: it cannot be had.
        """
        while self._process is None:
            if self.seconds_left <= 0:
                raise Ended("the time of this submission is up")
            if self._starts >= STARTS:
                raise Ended("its code has ended too many processes")
            self._starts += 1
            with self._not_counted(self._starts > 1):
                self._process = Process(
                    self.way, self.library, self.limits, self.complaints
                )
                ready = self._hear(60.0)
            if "ready" not in ready:
                self.close()
                raise Ended("its process did not start")
            for number, source in enumerate(self.cells, start=1):
                if number in self._deadly:
                    continue
                request = {"do": "cell", "source": source, "number": number}
                try:
                    with self._not_counted(number in self._ran):
                        said = self.ask(request, self.limits.cell_seconds)
                    self._ran.add(number)
                except Ended as problem:
                    self._deadly.add(number)
                    self.notes[number] = f"left out: {problem}"
                    break
                if "error" in said:
                    self.notes[number] = f"raised {_words(said['error'])}"

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """One request and its answer.

        Raises:
            Ended: there is none; the process has been killed.
        """
        if self._process is None:
            raise Ended("its process has ended")
        try:
            assert self._process.popen.stdin is not None
            data = json.dumps(request).encode()
            self._write(len(data).to_bytes(4, "big") + data, seconds)
            return self._hear(seconds)
        except (
            BaseException
        ) as problem:  # the checker's timer, too: it may still answer
            self.problem = str(problem) or "it took too long"
            self.close()
            raise

    def has(self, name: str) -> bool:
        """Whether its cells have left a function of this name."""
        return self.ask({"do": "has", "name": name}, 20.0).get("has") is True

    def close(self) -> None:
        """End the process; a later `start` makes a new one."""
        if self._process is not None:  # in a thread, which no timer's signal interrupts
            self._ending.append(threading.Thread(target=self._process.end))
            self._process = None
        for ending in list(self._ending):
            if ending.ident is None:
                ending.start()
            ending.join()
            self._ending.remove(ending)

    def _write(self, data: bytes, seconds: float) -> None:
        assert self._process is not None and self._process.popen.stdin is not None
        pipe = self._process.popen.stdin.fileno()
        os.set_blocking(pipe, False)
        end = time.monotonic() + min(seconds, max(self.seconds_left, 0.0))
        while data:
            if not select.select([], [pipe], [], max(0.0, end - time.monotonic()))[1]:
                raise Ended("it does not listen")
            try:
                data = data[os.write(pipe, data[: 2**16]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._gone() from None

    def _read(self, count: int, end: float, limit: str) -> bytes:
        assert self._process is not None and self._process.popen.stdout is not None
        pipe, data = self._process.popen.stdout.fileno(), bytearray()
        while len(data) < count:
            if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
                raise Ended(self._process.why() or limit)
            part = os.read(pipe, min(count - len(data), 2**20))
            if not part:
                raise self._gone()
            data += part
        return bytes(data)

    def _hear(self, seconds: float) -> dict[str, Any]:
        left = max(self.seconds_left, 0.0)
        end = time.monotonic() + min(seconds, left)
        limit = (
            f"it took longer than {seconds:g} seconds"
            if seconds <= left
            else "the time of this submission is up"
        )
        try:
            length = int.from_bytes(self._read(4, end, limit), "big")
            if length > LARGEST:
                raise Ended(FORM)
            said = json.loads(self._read(length, end, limit))
        except (ValueError, RecursionError, MemoryError):
            said = None
        except Ended:
            self.close()
            raise
        if not isinstance(said, dict) or not all(
            _is_error(said[name])
            for name in ("error", "gradient_error")
            if name in said
        ):
            self.close()
            raise Ended(FORM)
        return said

    def _gone(self) -> Ended:
        assert self._process is not None
        return Ended(self._process.why() or "its process ended")

    def function(self, name: str, leaves: Sequence[int]) -> Callable[..., Any]:
        """A function of the submission, for a checker: it is run over there.

        Args:
            name: what the student has called it.
            leaves: the positions of the arguments whose gradients are asked for.
        """

        def call(*given: Any) -> Any:
            request = {
                "do": "call",
                "name": name,
                "arguments": [encode(x) for x in given],
                "leaves": list(leaves),
            }
            said = self.ask(request, 20.0)
            if "error" in said:
                raise _error(said["error"])
            try:
                return self._answer(said, given, leaves)
            except Exception:
                self.close()
                raise Ended(FORM) from None

        return call

    def _answer(
        self, said: dict[str, Any], given: Sequence[Any], leaves: Sequence[int]
    ) -> Any:
        value = decode(said["value"])
        changed = said.get("changed", [])
        if not isinstance(changed, list) or len(changed) > len(given):
            raise ValueError("no positions")
        for i in changed:
            if type(i) is int and 0 <= i < len(given) and isinstance(given[i], Tensor):
                _spoil(given[i])  # the checker notices what the student's code has done
        if "gradient_error" not in said and "gradients" not in said:
            return value
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        if "gradient_error" in said:
            gradients: list[Any] | BaseException = _error(said["gradient_error"])
        else:
            gradients = [decode(part) for part in said["gradients"]]
            for i, gradient in zip(leaves, gradients, strict=True):
                if gradient is not None and (
                    not isinstance(gradient, Tensor)
                    or gradient.shape != given[i].shape
                    or not gradient.is_floating_point()
                ):
                    raise ValueError("no gradient")
        return _Remote.apply(value, gradients, *(given[i] for i in leaves))


class _Remote(torch.autograd.Function):
    """A value whose gradient was computed elsewhere, for a checker that asks for the gradient of its sum."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Any, *leaves: Tensor) -> Tensor:
        ctx.gradients = gradients
        ctx.kinds = [leaf.dtype for leaf in leaves]
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        if isinstance(ctx.gradients, BaseException):
            raise ctx.gradients
        parts = [
            None if part is None else part.to(kind)
            for part, kind in zip(ctx.gradients, ctx.kinds, strict=True)
        ]
        return None, None, *parts


def _spoil(x: Tensor) -> None:
    with torch.no_grad():
        if x.dtype is torch.bool:
            x.logical_not_()
        else:
            x.add_(1)


def _is_error(said: Any) -> bool:
    """A name and a text, as the worker writes them."""
    return isinstance(said, list) and [type(part) for part in said] == [str, str]


def _error(said: list[str]) -> BaseException:
    """An exception with the name and the text of the student's."""
    name, text = (part[:200] for part in said)
    name = name if name.isidentifier() else "Exception"
    return type(name, (Exception,), {})(text)


def _words(said: list[str]) -> str:
    error = _error(said)
    return f"{type(error).__name__}: {error}"
