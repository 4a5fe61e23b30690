"""Milliseconds of a GRPO step in the playground: `python -m tests.benchmarks.playground`. No part of the suite.

With the tree and without, with WebAssembly and without, 16 prompts with 16 and with 8 completions each, in Node and in
a worker of Chromium that is opened from disk. All take turns within one run; a machine that is busy slows all of them.
"""

import base64
import json
import statistics
import tempfile
from pathlib import Path

from rlhf_book.figures.playground import engine, kernel, rows, weights
from tests.browser.chromium import open_page, started
from tests.viz.engine import PRELUDE, in_engine

WAYS = {"tree, WebAssembly": (True, True), "tree, JavaScript": (True, False), "no tree, WebAssembly": (False, True)}
# Two steps to warm up, then a step of each way in turn.
MEASURE = """
const made = Object.entries(WAYS).flatMap(([name, [shared, wasm]]) => [16, 8].map((group) =>
  [`16 x ${group}, ${name}`, make({ group }, { shared, wasm, rows: shared ? 0 : 16 * group * 12 }), []]));
for (const [, trainer] of made) { trainer.test = () => 0; trainer.step(); trainer.step(); }
for (let turn = 0; turn < TURNS; turn++) for (const [, trainer, times] of made) {
  const began = performance.now();
  trainer.step();
  times.push(performance.now() - began);
}
say(Object.fromEntries(made.map(([name, , times]) => [name, times])));
"""


def in_chromium(script: str) -> dict[str, list[float]]:
    """The same script in a worker of a page from disk."""
    values = {
        "weights": base64.b64encode(weights()).decode(),
        "kernel": base64.b64encode(kernel()).decode(),
        "rows": rows(),
    }
    prelude = PRELUDE % {name: json.dumps(value) for name, value in values.items()}
    source = f"{engine()}\n{prelude.replace('console.log(JSON.stringify(value))', 'postMessage(value)')}\n{script}"
    with tempfile.TemporaryDirectory() as folder, started() as browser:
        page = Path(folder) / "page.html"
        page.write_text(
            f'<meta charset="utf-8"><script>const source = {json.dumps(source)};'
            "window.done = new Promise((resolve) => { "
            "const worker = new Worker(URL.createObjectURL(new Blob([source])));"
            "worker.onmessage = ({ data }) => resolve(data); });</script>",
            encoding="utf-8",
        )
        found: dict[str, list[float]] = open_page(browser, page, []).evaluate("window.done")
        return found


def main(turns: int = 20) -> None:
    given = {"WAYS": WAYS, "TURNS": turns}
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
    for where, found in (
        ("Node", in_engine(MEASURE, timeout=1800, **given)),
        ("Chromium", in_chromium(constants + MEASURE)),
    ):
        for name, times in found.items():
            low, middle, high = statistics.quantiles(times, n=4)
            print(f"{where:9} {name:30} {middle:6.1f} ms  (middle half {low:.1f} to {high:.1f}, n = {turns})")


if __name__ == "__main__":
    main()
