"""A limit on the time of a call into somebody else's code: a verifier, or a reader's answer to an exercise.

What can be cut off: in the main thread on Linux and macOS a timer interrupts whatever runs in Python, sleeps, waits for
another process, or matches a regular expression. A call that takes the timer's signal over is interrupted by a second
thread, between two steps of Python. Code of another language that does not come back cannot be interrupted, and a loop
that catches every exception only after a while, when it happens to be outside of its `try`. Elsewhere (other threads,
Windows) the call runs in a thread of its own, which is left behind when its time is up: the caller goes on, and the
abandoned call goes on beside it until it ends or the process does.
"""

import ctypes
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

_REAL = signal.signal
_AGAIN = 1e-3  # seconds between two rings for a call that swallows them
_SIGNALS = [getattr(signal, name) for name in ("SIGALRM", "SIGVTALRM") if hasattr(signal, name)]


class TimeIsUp(BaseException):
    """Not an `Exception`: a call that catches those must not catch this."""


def in_time(call: Callable[[], Any], seconds: float) -> Any:
    """What a call returns, if it returns in time.

    Args:
        call: Takes nothing.
        seconds: After these it is interrupted, or left behind (see above).

    Raises:
        TimeoutError: If its time was up. Whatever the call raises comes through.

    Example:
        >>> in_time(lambda: sum(range(5)), 1.0)
        10
        >>> in_time(lambda: time.sleep(60), 0.01)
        Traceback (most recent call last):
        TimeoutError: it took longer than 0.01 seconds
    """
    seconds = min(seconds, 1e7)  # four months; the system's timer takes no number that is much larger
    by_signal = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    try:
        return (_interrupted if by_signal else _left_behind)(call, seconds)
    except TimeIsUp:
        raise TimeoutError(f"it took longer than {seconds:g} seconds") from None


def _interrupted(call: Callable[[], Any], seconds: float) -> Any:
    bell, install = _Bell(time.monotonic() + seconds), signal.signal
    handlers = [signal.signal(number, bell.ring) for number in _SIGNALS]
    began = time.monotonic()
    others = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        try:
            _watchman(bell)
            signal.signal = _install  # type: ignore[assignment]
            signal.setitimer(signal.ITIMER_REAL, seconds, 0.25)  # again, for a call whose `except:` swallows the first
            return call()
        finally:
            bell.disarm()
    finally:  # twice, since it may ring while the inner one is entered
        bell.disarm()
        signal.signal = install
        for number, handler in zip(_SIGNALS, handlers, strict=True):
            signal.signal(number, handler)
        if others[0]:  # somebody else's alarm was set: it rings when it would have rung
            signal.setitimer(signal.ITIMER_REAL, max(others[0] - (time.monotonic() - began), 1e-3), others[1])


def _install(number: int, handler: Any) -> Any:
    """Stands in for `signal.signal` during a call: at the alarm, the system's own default is to end the process."""
    return _REAL(number, signal.SIG_IGN if number in _SIGNALS and handler == signal.SIG_DFL else handler)


class _Bell:
    """The alarm of one call."""

    now: "_Bell | None" = None  # of the call that is under way
    watchman: threading.Thread | None = None
    busy = threading.Event()

    def __init__(self, end: float):
        self.end, self.main = end, threading.get_ident()
        self.armed, self.rung = True, 0
        self.lock = threading.Lock()
        self.before = _Bell.now  # a call within a call

    def ring(self, *signal_and_frame: object) -> None:
        if self.armed and time.monotonic() > self.end - 1e-3:  # before, it is an alarm that the call has set
            self.rung += 1
            if self.rung == 3:  # a loop that swallows all: soon it rings in a moment when the loop is outside its `try`
                signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
            raise TimeIsUp

    def disarm(self) -> None:
        self.armed = False
        _Bell.now = self.before
        signal.setitimer(signal.ITIMER_REAL, 0)
        with self.lock:  # the watchman raises nothing from now on, and what is under way is taken back
            _raise_in(self.main, None)

    def look(self) -> bool:
        """Rings if the call has taken the alarm over, or has switched it off; whether that was so."""
        handler, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
        if handler is signal.SIG_DFL:
            signal.setitimer(signal.ITIMER_REAL, 0)  # it would end the process
        if time.monotonic() < self.end or (handler == self.ring and timer != (0.0, 0.0)):
            return False
        with self.lock:
            if self.armed:
                _raise_in(self.main, TimeIsUp)
                if signal.getsignal(signal.SIGVTALRM) == self.ring:
                    signal.pthread_kill(self.main, signal.SIGVTALRM)  # ends a sleep
        return True


def _watchman(bell: _Bell) -> None:
    """Has a thread look after a bell. It is one for all calls, and sleeps between them.

    The alarm cannot be left out in its favour: only a signal of the system interrupts code that does not let other
    threads run, such as a regular expression.
    """
    _Bell.now = bell
    if _Bell.watchman is None or not _Bell.watchman.is_alive():  # none yet, or left behind in another process
        _Bell.busy = threading.Event()
        _Bell.watchman = threading.Thread(target=_keep_watch, args=(_Bell.busy,), daemon=True)
        _Bell.watchman.start()
    _Bell.busy.set()


def _keep_watch(busy: threading.Event) -> None:
    while True:
        busy.wait()
        busy.clear()
        pause = 0.05
        while _Bell.now is not None:
            time.sleep(pause)
            if bell := _Bell.now:
                pause = _AGAIN if bell.look() else 0.05


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raises in another thread, once it runs Python again; None takes back what has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error)
    )


def _left_behind(call: Callable[[], Any], seconds: float) -> Any:
    found: list[Any] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise TimeIsUp
    return found[0]
