"""One line that tells how a run is going: redrawn in a terminal, a plain line now and then elsewhere."""

import shutil
import sys
import time

from rlhf_minimal.metrics import Metrics


class Progress:
    """A progress bar with numbers behind it.

    Args:
        total: Steps in all.
        shown: Which metrics to show, with their formats, for example `{"reward": ".2f"}`.
        done: Steps already taken, by a run that is resumed.
        every: Without a terminal, a line every so many steps.
    """

    def __init__(self, total: int, shown: dict[str, str], *, done: int = 0, every: int):
        self.total, self.shown, self.every = total, shown, every
        self.stream = sys.stdout
        self.live = self.stream.isatty()
        self.first, self.began = done, time.perf_counter()

    def update(self, step: int, metrics: Metrics) -> None:
        """Shows the state after `step`."""
        if not self.live and step % self.every and step not in (self.first + 1, self.total):
            return
        numbers = "  ".join(f"{name} {metrics[name]:{form}}" for name, form in self.shown.items() if name in metrics)
        per_step = (time.perf_counter() - self.began) / max(step - self.first, 1)
        left = f"{per_step * (self.total - step):.0f} s left" if step < self.total else "done"
        line = f"step {step:>{len(str(self.total))}}/{self.total}  {numbers}  {left}"
        if self.live:
            width = shutil.get_terminal_size().columns
            cells = max(0, min(24, width - len(line) - 4))
            full = round(cells * step / self.total)
            line = f"{'█' * full}{'░' * (cells - full)} {line}"[: width - 1]
            self.stream.write("\r\x1b[K" + line)
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def close(self) -> None:
        """Ends the live line."""
        if self.live:
            self.stream.write("\n")
            self.stream.flush()
