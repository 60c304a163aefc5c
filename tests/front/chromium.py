"""Debian's Chromium without a window, driven over its own protocol.

`--remote-debugging-pipe`: requests and answers are JSON, each ended by NUL, on the descriptors 3 and 4; no port, and no
library beside the standard one. https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

TIMEOUT = 120.0  # seconds for anything that the browser does
# As root it has no sandbox; a container's /dev/shm is small; nothing is fetched from anywhere.
OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--in-process-gpu",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


class Browser:
    """A running Chromium with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        read_by_it, self._to = os.pipe()
        self._from, written_by_it = os.pipe()
        command = (
            f"exec 3<&{read_by_it} 4>&{written_by_it}; exec chromium {' '.join(OPTIONS)} --user-data-dir={profile}"
        )
        self._log = (profile.parent / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            pass_fds=(read_by_it, written_by_it),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, "HOME": str(profile)},
            start_new_session=True,
        )
        os.close(read_by_it)
        os.close(written_by_it)
        self._buffer = b""
        self._number = 0
        self.events: list[dict] = []

    def call(self, method: str, session: str | None = None, **params: object) -> dict:
        """Return the result of a method of the protocol; what happens meanwhile is kept in `events`."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        if session:
            request["sessionId"] = session
        os.write(self._to, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + TIMEOUT
        while True:
            message = self._receive(end, method)
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self.events.append(message)

    def _receive(self, end: float, what: str) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"chromium does not answer {what} within {TIMEOUT:.0f} s"
            piece = os.read(self._from, 1 << 20)
            assert piece, f"chromium ended during {what}"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def page(
        self, url: str, width: int = 1280, height: int = 900, *, dark: bool = False, own_window: bool = False
    ) -> "Page":
        """Open a tab of that size and theme, before all others; in a window of its own none of them hides it.

        A window has menus and a strip of tabs, which take more time of a core than most of the pages of tests.
        """
        return Page(self, url, width, height, dark=dark, own_window=own_window)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._log.close()


class Page:
    """A tab."""

    def __init__(self, browser: Browser, url: str, width: int, height: int, *, dark: bool, own_window: bool) -> None:
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank", newWindow=own_window)["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self.resize(width, height)
        self.theme("dark" if dark else "light")
        self._call("Page.navigate", url=url)

    def _call(self, method: str, **params: object) -> dict:
        return self._browser.call(method, self._session, **params)

    def before_all(self, script: str) -> None:
        """Run JavaScript before anything of the pages that are opened from now on."""
        self._call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def refuse(self, *addresses: str) -> None:
        """From now on let requests for these addresses, with `*` for anything, fail, and no others."""
        self._call("Network.setBlockedURLs", urls=addresses)

    def go(self, url: str) -> None:
        """Open another page."""
        self._call("Page.navigate", url=url)

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def theme(self, name: str) -> None:
        """Change what the system prefers: dark or light."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def evaluate(self, expression: str) -> object:
        """Return the value of JavaScript; of a promise when it is settled."""
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """Return the text that stands in an element, as a reader sees it."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def wait(self, expression: str, seconds: float = TIMEOUT) -> object:
        """Wait until JavaScript is true; return its value."""
        end = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"not within {seconds} s: {expression}; status: {self.text('#status')}"
            time.sleep(0.02)  # asked without a pause, a tab would have no time for what it is asked about
        return value

    def press(self, key: str, text: str = "") -> None:
        """Press and release a key; `text` is what it types."""
        code = {"Escape": 27, "Enter": 13}.get(key, 0)  # the browser's own dialogs listen to codes
        typed = {"text": text} if text else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **typed)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def move_pointer(self, x: float, y: float) -> None:
        """Move the pointer to a place of the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write what is seen, or the whole page, as a PNG."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def complaints(self) -> list[str]:
        """Return what the browser complained about in this tab: exceptions, errors, refused or failed requests."""
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            params = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    details = params["exceptionDetails"]
                    found.append(str(details.get("exception", {}).get("description", details["text"])))
                case "Log.entryAdded":
                    found.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
                case "Runtime.consoleAPICalled":
                    found.append(str([argument.get("value") for argument in params["args"]]))
        return found

    def requested(self) -> set[str]:
        """Return all addresses that this tab asked for."""
        return {
            event["params"]["request"]["url"]
            for event in self._browser.events
            if event["method"] == "Network.requestWillBeSent" and event.get("sessionId") == self._session
        }

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextlib.contextmanager
def running_browser(directory: Path) -> Iterator[Browser]:
    """A browser with its profile in a directory."""
    profile = directory / "profile"
    profile.mkdir()
    browser = Browser(profile)
    try:
        yield browser
    finally:
        browser.close()
