"""A headless Chromium with its network cut off, driven through its own debugging protocol.

The book promises to work from a folder, without a server and without a network. The only honest test of that
is a browser that opens the pages, notes everything they ask for, and runs what is on them.

    with Browser() as browser:
        page = browser.open(Path("_build/html/index.html"))
        assert page.outside_requests == [] and page.errors == []
        page.evaluate("document.title")

Threads may drive several tabs at a time, each its own: `browser.tab()`.
"""

import base64
import json
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import websocket

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

FLAGS = [
    "--headless=new",
    "--no-sandbox",  # needed where tests run as root, as they do in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    # A tab that another one covers is drawn, and its clock runs, as if it were in front.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--proxy-server=direct://",
    "--remote-debugging-port=0",  # the browser picks a free one and writes it down
    "--remote-allow-origins=*",
]

KEYS = {  # name: (key code, text it types)
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Tab": (9, ""),
    "Space": (32, " "),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "Home": (36, ""),
    "End": (35, ""),
}

# Listeners to a size or a colour scheme are called with the next frame, and what they change is drawn with the one
# after. What fades is put at its end: how long it takes to get there depends on how busy the machine is.
DRAWN = """(async () => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  await frame();
  await frame();
  for (const animation of document.getAnimations()) {
    if (animation.effect.getComputedTiming().endTime !== Infinity) animation.finish();
  }
  await frame();
})()"""

# All of the page is there, and it leads to no other.
ARRIVED = "document.readyState === 'complete' && !document.querySelector('meta[http-equiv=refresh i]')"


class Browser:
    """One Chromium with a tab to begin with, and more on demand; a context manager."""

    def __enter__(self) -> "Browser":
        """Start Chromium and connect to its first tab."""
        if PROGRAM is None:
            raise FileNotFoundError("no Chromium found: install Debian's package `chromium`")
        self._profile = tempfile.TemporaryDirectory(prefix="chrome-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [PROGRAM, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._socket = _connect(self._address())
            self._lock = threading.Lock()
            self._page = self.tab()
            self._opened: tuple[Path | str, int, int] | None = None
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop Chromium and remove its profile."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def _address(self) -> str:
        port_file = Path(self._profile.name) / "DevToolsActivePort"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"{PROGRAM} ended with status {self._process.returncode} before it was ready")
            if port_file.exists() and len(lines := port_file.read_text().split()) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            time.sleep(0.1)
        raise TimeoutError(f"{PROGRAM} was not ready after 60 seconds")

    def _send(self, method: str, **parameters: object) -> dict:
        """A command to the browser itself, which answers and says nothing else."""
        with self._lock:
            self._socket.send(json.dumps({"id": 1, "method": method, "params": parameters}))
            answer = json.loads(self._socket.recv())
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def tab(self) -> "Page":
        """A new tab in a window and a profile of its own: it has its own process, and nothing of another's storage."""
        context = self._send("Target.createBrowserContext")["browserContextId"]
        target = self._send("Target.createTarget", url="about:blank", browserContextId=context, newWindow=True)
        address, _, _ = self._address().partition("/devtools/")
        return Page(f"{address}/devtools/page/{target['targetId']}")

    def open(self, page: Path | str, *, width: int = 1400, height: int = 900, dark: bool = False) -> "Page":
        """Open a built page from disk (or any address) and wait until it has settled."""
        self._page.resize(width, height)
        self._page.prefer(dark=dark)
        self._page.goto(page.resolve().as_uri() if isinstance(page, Path) else page)
        self._opened = page, width, height
        return self._page

    def keep(self, page: Path | str, *, width: int = 1400, height: int = 900, dark: bool = False) -> "Page":
        """The page that is open, as the last test has left it, if it is this one at this size; or else open it."""
        if self._opened != (page, width, height):
            return self.open(page, width=width, height=height, dark=dark)
        self._page.prefer(dark=dark)
        self._page.draw()
        return self._page


def _connect(address: str) -> websocket.WebSocket:
    # That every byte is UTF-8 is checked once more when its JSON is read, and by that in C.
    options = {"timeout": 60, "suppress_origin": True, "skip_utf8_validation": True}
    return websocket.create_connection(address, **options)


class Page:
    """The open page: what it asked for, what went wrong, and hands to try it with."""

    def __init__(self, address: str):
        self._socket = _connect(address)
        self._number = 0
        self._loaded = False
        self.requests: list[str] = []
        self.errors: list[str] = []
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)  # several tabs cannot all have the focus

    @property
    def outside_requests(self) -> list[str]:
        """Every address that the page asked for and that is not on this disk or inside the page itself."""
        inside = ("file:", "data:", "blob:", "about:", "chrome:")
        return [url for url in self.requests if not url.startswith(inside)]

    def send(self, method: str, **parameters: object) -> dict:
        """Send one command of the DevTools protocol and wait for its answer; events on the way are noted."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        number = self._number
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self._note(message)

    def _note(self, event: dict) -> None:
        details = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(details["request"]["url"])
            case "Runtime.exceptionThrown":
                thrown = details["exceptionDetails"]
                self.errors.append(thrown.get("exception", {}).get("description", thrown["text"]))
            case "Runtime.consoleAPICalled" if details["type"] == "error":
                self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in details["args"]))
            case "Log.entryAdded" if details["entry"]["level"] == "error":
                self.errors.append(f"{details['entry']['text']} {details['entry'].get('url', '')}".strip())
            case "Page.loadEventFired":
                self._loaded = True

    def goto(self, url: str) -> None:
        """Open an address, follow a redirect; return when all has loaded and the mathematics is typeset."""
        self.requests.clear()
        self.errors.clear()
        self._loaded = False
        if problem := self.send("Page.navigate", url=url).get("errorText"):
            raise RuntimeError(f"{url}: {problem}")
        while True:
            while not self._loaded:
                self._note(json.loads(self._socket.recv()))  # raises after the socket's minute of silence
            try:
                for _ in range(200):  # a redirect is asked, and not expected: on a busy machine it comes late
                    self.evaluate("window.MathJax?.startup?.promise?.then(() => true) ?? true")
                    self.settle()
                    if self.evaluate(ARRIVED):
                        return
                raise RuntimeError(f"{url}: not loaded within a minute")
            except RuntimeError as problem:
                if "navigated" not in str(problem):
                    raise
                self._loaded = False  # a redirect took us elsewhere: wait for that page

    def settle(self, seconds: float = 0.3) -> None:
        """Let timers, animations and late scripts run."""
        self.evaluate(f"new Promise(resolve => setTimeout(resolve, {1000 * seconds}))")

    def draw(self) -> None:
        """Wait until what was changed (a size, a colour scheme) is on the screen."""
        self.evaluate(DRAWN)

    def evaluate(self, expression: str) -> object:
        """Run JavaScript on the page (a promise is awaited) and return its value."""
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            thrown = answer["exceptionDetails"]
            raise RuntimeError(thrown.get("exception", {}).get("description", thrown["text"]))
        return answer["result"].get("value")

    def press(self, key: str, times: int = 1) -> None:
        """Press a key: a name from `KEYS` or one character."""
        code, text = KEYS.get(key, (ord(key.upper()[0]), key))
        name = " " if key == "Space" else key
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                event = {"type": kind, "key": name, "code": key, "windowsVirtualKeyCode": code}
                self.send(
                    "Input.dispatchKeyEvent",
                    **event,
                    **({"text": text} if text and kind == "keyDown" else {}),
                )

    def type(self, text: str) -> None:
        """Type into whatever has the focus."""
        self.send("Input.insertText", text=text)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window in CSS pixels; below 600 wide it is a phone."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def prefer(self, *, dark: bool = False, medium: str = "") -> None:
        """Pretend that the reader's system is set to dark (or light), or that the page goes to a printer."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=medium, features=[scheme])

    def screenshot(self, path: Path | str, *, whole: bool = False) -> None:
        """Save what is visible (or the whole page) as a PNG."""
        clip: dict = {}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        image = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)
        Path(path).write_bytes(base64.b64decode(image["data"]))

    def print_to_pdf(self, path: Path | str, *, seconds: float = 60, **options: object) -> None:
        """Print the page as the reader's browser would, with more `options` of the protocol, within so many seconds."""
        self._socket.settimeout(seconds)
        pdf = self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True, **options)
        Path(path).write_bytes(base64.b64decode(pdf["data"]))
