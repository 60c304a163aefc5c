"""The page with 200 containers in headless Chromium: what keeps it from answering its reader while news come."""

import shutil
import statistics
import tempfile
from pathlib import Path

import _test_folders  # noqa: F401 - for the imports below
from _report import Figure, at_most, percentile, report
from chromium import running_browser
from page_world import MIB, house

CONTAINERS, SECONDS = 200, 15
# Frames and long tasks (more than 50 ms, https://w3c.github.io/longtasks/) of some seconds.
OBSERVE = f"""new Promise((done) => {{
  const tasks = [], frames = [];
  const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration)));
  observer.observe({{type: "longtask"}});
  let last = performance.now();
  const begin = last;
  requestAnimationFrame(function frame(now) {{
    frames.push(now - last);
    last = now;
    if (now - begin < {SECONDS * 1000}) requestAnimationFrame(frame);
    else done([tasks, frames.slice(1)]);
  }});
}})"""


def main() -> None:
    """Each container has a process; some wait."""
    if shutil.which("chromium") is None:
        raise SystemExit("not run: chromium is not installed; scripts/install/browser installs it")
    with (
        tempfile.TemporaryDirectory() as scratch,
        house(Path(scratch), "simulated:140GiB") as built,
        running_browser(Path(scratch)) as browser,
    ):
        for number in range(CONTAINERS):
            built.container(f"job-{number}", 2 << 30)
            built.process(f"job-{number}").allocate((1000 - number) * MIB)
        tab = browser.page(built.url)
        tab.wait(f"document.querySelectorAll('#container-table tbody tr').length === {CONTAINERS}")
        tasks, frames = tab.evaluate(OBSERVE)  # type: ignore[misc]
        complaints = tab.complaints()
    if complaints:
        raise SystemExit(f"the page complained: {complaints}")
    figures = [
        at_most(f"frame with {CONTAINERS} containers, p99", percentile(frames, 99), "ms", 100),
        Figure("the same, median", statistics.median(frames), "ms"),
        at_most("longest task that keeps the page from answering", max(tasks, default=0.0), "ms", 100),
        Figure(f"tasks of more than 50 ms in {SECONDS} s", len(tasks), ""),
    ]
    report("page", figures)


if __name__ == "__main__":
    main()
