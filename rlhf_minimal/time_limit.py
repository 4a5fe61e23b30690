"""A time limit for a call into user code: a verifier, or a reader's answer to an exercise.

In the main thread on Linux and macOS, a timer interrupts a call that runs Python code, sleeps, waits for another
process, or matches a regular expression. It cannot interrupt two kinds of call: code of another language that does not
return, and an endless loop that catches every exception inside. Elsewhere (other threads, Windows) the call runs in a
thread of its own. When its time is up, the caller goes on and the call is left behind: its thread keeps running until
the call or the process ends.

A call may also take the timer's signal over. `watched` has a second thread that then interrupts it by another signal.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LATE = 0.5  # seconds: so much longer the second thread waits than the timer, and between two attempts


class TimeIsUp(BaseException):
    """Not an `Exception`, so that a call that catches every `Exception` does not catch it."""


def in_time(call: Callable[[], Any], seconds: float) -> Any:
    """What a call returns, if it returns in time.

    Args:
        call: A function without arguments.
        seconds: After this time the call is interrupted, or left behind (see above).

    Raises:
        TimeoutError: If the call took longer. An error that the call raises is not caught.

    Example:
        >>> in_time(lambda: sum(range(5)), 1.0)
        10
        >>> in_time(lambda: time.sleep(60), 0.01)
        Traceback (most recent call last):
        TimeoutError: it took longer than 0.01 seconds
    """
    seconds = min(seconds, 1e7)  # four months; the system's timer refuses much larger numbers
    by_signal = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    try:
        return (_interrupted if by_signal else _left_behind)(call, seconds)
    except TimeIsUp:
        raise TimeoutError(f"it took longer than {seconds:g} seconds") from None


class _Alarm:
    """The timer calls `ring`. A nested function instead would cost a millisecond where annotations are checked."""

    armed = True
    now: "_Alarm | None" = None  # of the call that is under way

    def __init__(self, seconds: float):
        self.end, self.before = time.monotonic() + seconds, _Alarm.now

    def ring(self, *signal_and_frame: object) -> None:
        if not self.armed:
            return
        if (left := self.end - time.monotonic()) > 0:  # the call has set a timer of its own
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), 1.0)
            return
        raise TimeIsUp


def _interrupted(call: Callable[[], Any], seconds: float) -> Any:
    alarm = _Alarm(seconds)
    began = time.monotonic()
    handler, blocked = signal.signal(signal.SIGALRM, alarm.ring), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    # The timer repeats every second, for a call that has caught the first exception with a bare `except:`.
    previous = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        try:
            _Alarm.now = alarm
            return call()
        finally:
            alarm.armed = False
    finally:  # disarmed twice, since the timer may fire while the inner `finally` is entered
        alarm.armed = False
        _Alarm.now = alarm.before
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm.ring)  # it may be blocked and waiting, and then comes at the next line
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGALRM, handler)
        if previous[0]:  # a timer was set before this call: let it fire when it would have fired
            signal.setitimer(signal.ITIMER_REAL, max(previous[0] - (time.monotonic() - began), 1e-3), previous[1])


@contextmanager
def watched() -> Iterator[None]:
    """In here a call of `in_time` is interrupted even if it has taken the timer's signal over, or has switched it off.

    A second thread sends SIGURG to the main thread, half a second after the time is up. Python does nothing at this
    signal unless it has a handler, and neither does the system: a signal that comes too late cannot end the process.
    A call that takes over SIGURG, too, is not interrupted.
    """
    watching = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGURG")
    if not watching:
        yield
        return
    main, going = threading.get_ident(), [True]

    def late(*signal_and_frame: object) -> None:
        if _Alarm.now and time.monotonic() > _Alarm.now.end:
            _Alarm.now.ring()

    def watch() -> None:  # without locks: an exception in the main thread could leave one closed
        struck = 0.0
        while going:
            time.sleep(0.05)
            alarm, now = _Alarm.now, time.monotonic()
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
        raise TimeIsUp
    return returned[0]
