"""A time limit for a call into user code: a verifier, or a reader's answer to an exercise.

In the main thread on Linux and macOS, a timer interrupts a call that runs Python code, sleeps, waits for another
process, or matches a regular expression. It cannot interrupt two kinds of call: code of another language that does not
return, and an endless loop that catches every exception inside. Elsewhere (other threads, Windows) the call runs in a
thread of its own. When its time is up, the caller goes on and the call is left behind: its thread keeps running until
the call or the process ends.
"""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any


class VerifierWarning(UserWarning):
    """A verifier or reward function has failed; its completion gets 0."""


class TimeoutInterrupt(BaseException):
    """Not an `Exception`, so that a call that catches every `Exception` does not catch it."""


def call_with_timeout(call: Callable[[], Any], seconds: float) -> Any:
    """What a call returns, if it returns in time.

    Args:
        call: A function without arguments.
        seconds: After this time the call is interrupted, or left behind (see above).

    Raises:
        TimeoutError: If the call took longer. An error that the call raises is not caught.

    Example:
        >>> call_with_timeout(lambda: sum(range(5)), 1.0)
        10
        >>> call_with_timeout(lambda: time.sleep(60), 0.01)
        Traceback (most recent call last):
        TimeoutError: it took longer than 0.01 seconds
    """
    seconds = min(seconds, 1e7)  # four months; the system's timer refuses much larger numbers
    by_signal = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    try:
        return (_interrupted if by_signal else _left_behind)(call, seconds)
    except TimeoutInterrupt:
        raise TimeoutError(f"it took longer than {seconds:g} seconds") from None


class Alarm:
    """The timer calls `ring`. A nested function instead would cost a millisecond where annotations are checked."""

    armed = True
    now: "Alarm | None" = None  # of the call that is under way

    def __init__(self, seconds: float):
        self.end, self.before = time.monotonic() + seconds, Alarm.now

    def ring(self, *signal_and_frame: object) -> None:
        """The handler of SIGALRM: ends the call, if its time is up."""
        if not self.armed:
            return
        if (left := self.end - time.monotonic()) > 0:  # the call has set a timer of its own
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), 1.0)
            return
        raise TimeoutInterrupt


def _interrupted(call: Callable[[], Any], seconds: float) -> Any:
    alarm = Alarm(seconds)
    began = time.monotonic()
    handler, blocked = signal.signal(signal.SIGALRM, alarm.ring), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    # The timer repeats every second, for a call that has caught the first exception with a bare `except:`.
    previous = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        try:
            Alarm.now = alarm
            return call()
        finally:
            alarm.armed = False
    finally:  # disarmed twice, since the timer may fire while the inner `finally` is entered
        alarm.armed = False
        Alarm.now = alarm.before
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm.ring)  # it may be blocked and waiting, and then comes at the next line
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGALRM, handler)
        if previous[0]:  # a timer was set before this call: let it fire when it would have fired
            signal.setitimer(signal.ITIMER_REAL, max(previous[0] - (time.monotonic() - began), 1e-3), previous[1])


def _left_behind(call: Callable[[], Any], seconds: float) -> Any:
    returned: list[Any] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            returned.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not returned:
        raise TimeoutInterrupt
    return returned[0]
