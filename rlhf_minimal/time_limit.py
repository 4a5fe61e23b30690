"""A limit on the time of a call into somebody else's code: a verifier, or a reader's answer to an exercise.

What can be cut off: in the main thread on Linux and macOS a timer interrupts whatever runs in Python, sleeps, waits for
another process, or matches a regular expression. Two things cannot be interrupted so: code of another language that
does not come back, and a loop without end that catches every exception inside. Elsewhere (other threads, Windows) the
call runs in a thread of its own, which is left behind when its time is up: the caller goes on, and the abandoned call
goes on beside it until it ends or the process does.
"""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any


class _TimeIsUp(BaseException):
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
    except _TimeIsUp:
        raise TimeoutError(f"it took longer than {seconds:g} seconds") from None


class _Alarm:
    """What the timer calls; a function made anew for each call costs a millisecond where annotations are checked."""

    armed = True

    def ring(self, *signal_and_frame: object) -> None:
        if self.armed:
            raise _TimeIsUp


def _interrupted(call: Callable[[], Any], seconds: float) -> Any:
    alarm = _Alarm()
    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, alarm.ring)
    # It rings again and again, for a call whose `except:` has swallowed the first one.
    others = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        try:
            return call()
        finally:
            alarm.armed = False
    finally:  # twice, since it may ring while the inner one is entered
        alarm.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if others[0]:  # somebody else's alarm was set: it rings when it would have rung
            signal.setitimer(signal.ITIMER_REAL, max(others[0] - (time.monotonic() - began), 1e-3), others[1])


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
        raise _TimeIsUp
    return found[0]
