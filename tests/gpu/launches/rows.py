"""What launches, limits and images take of a card: each row of decision 101, tried in a process behind the hook.

    tests/gpu/launches/run                                       # on a GPU host with nobody else on the card, as root
    CONVGPU_DEVICES=simulated:16GiB tests/gpu/launches/run       # a rehearsal without a card
    python3 tests/gpu/launches/rows.py [WAY...]                  # some rows, as `abandoned`; all without one

One line a row: what was answered, what the card lost at most and in the end, by NVML's count of the whole card, and the
limit. The exit status is 1 if a row is wrong. It never takes more than 8 GiB.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]
sys.path[:0] = [str(ROOT / "tests/fakes"), str(FOLDER)]

import images  # noqa: E402 - by the path above
from daemon import Daemon, running_daemon  # noqa: E402
from memory import Card, Sampler  # noqa: E402

GIB, MIB = 1 << 30, 1 << 20
DEVICES = os.environ.get("CONVGPU_DEVICES", "nvml")
OUT_OF_MEMORY = 2
LOCAL = 60 << 10
SMALL = 4 << 10
AUDITS = 6.0  # seconds in which there are some
TOLERATED = 64 * MIB
"""Code, and the first heap and buffer of printf, are measured when they are there (decision 101)."""
FEW = 8 * MIB
"""Where nothing of that came."""


@dataclass(frozen=True)
class Row:
    """One thing to try.

    Attributes:
        before: what another process does first; the scheduler is killed then, and the process stays.
        refused: CUDA_ERROR_OUT_OF_MEMORY is the answer.
        only_on_cards: the simulated driver lacks calls that it makes.
        tolerated: bytes above the limit.
        undone: it may be above the limit until what the call took is measured, and given back.
    """

    what: str
    way: str
    refused: bool = True
    limit: int = 2 * GIB
    before: str = ""
    only_on_cards: bool = False
    tolerated: int = TOLERATED
    undone: bool = False


OBTAINED = {
    "functions": "listed by its module",
    "kernels": "listed by its library",
    "form": "got from the kernel of a library",
    "library": "got from a library's module",
    "function": "got from the module of another function",
}
CALLED = {
    "malloc": "calls malloc",
    "vprintf": "prints",
    "__assertfail": "asserts",
    images.CALL: "launches another",
}
ROWS = [
    Row("a kernel with 60 kB of local memory, six forms of launch", f"launches {LOCAL} module"),
    Row("the same, a kernel of a library", f"launches {LOCAL} library"),
    *[Row(f"the same, {said}", f"obtained {way} {LOCAL}", only_on_cards=True) for way, said in OBTAINED.items()],
    Row("the same, put into a graph", f"graph {LOCAL}"),
    Row("the same, captured", f"capture {LOCAL}"),
    Row("a kernel with 4 kB of local memory", f"launches {SMALL} module", refused=False),
    Row("the same, a kernel of a library", f"launches {SMALL} library", refused=False),
    Row("the same, put into a graph", f"graph {SMALL}", refused=False),
    Row("the same, captured", f"capture {SMALL}", refused=False),
    Row("the same, of another context than the current one, into a graph", "elsewhere"),
    Row("such a kernel in a green context, and in its primary one", f"green {SMALL}", refused=False),
    Row("one with 60 kB of local memory there", f"green {LOCAL}"),
    Row("an executable graph of 15,000 kernels side by side", "executables 15000 beside 1"),
    Row("ten executable graphs of 5,000 kernels side by side", "executables 5000 beside 10"),
    Row("an executable graph of 15,000 in the body of a conditional node", "bodies 15000"),
    Row("the same of 100", "bodies 100", refused=False),
    Row("graphs of 300 MiB that nobody frees, launched and destroyed", f"abandoned 12 {300 * MIB} never"),
    Row("the same, freed afterwards", f"abandoned 12 {300 * MIB} later", refused=False),
    Row("the same, freed by a node", f"abandoned 12 {300 * MIB} freed", refused=False),
    Row("ten of 5,000 kernels one after the other", "executables 5000 chained 10", refused=False),
    Row("kernels of 30,000 of them updated to 30 kB of parameters", "widened 30000 all", only_on_cards=True),
    Row("the same, one by one", "widened 60000 each", only_on_cards=True),
    Row("4,000 streams", "streams 4000"),
    *[
        Row(f"500 threads with their default streams by {call}, where nothing is left", f"threads 500 {call} full")
        for call in ("cuMemsetD8Async", "cuMemcpyDtoH_ptds", "cuEventRecord", "cuStreamQuery")
    ],
    Row("500 threads with their default streams", "threads 500 cuMemsetD8Async free", refused=False),
    Row("2,000 green contexts, one after the other", "greens 2000"),
    Row("a heap of 6 GiB", f"limit heap {6 * GIB}"),
    Row("a heap of 1 GiB, and a kernel that allocates", f"limit heap {GIB}", refused=False),
    Row("a buffer of printf of 2 GiB", f"limit printf {2 * GIB}"),
    Row("a buffer of printf of 512 MiB, and a kernel that prints", f"limit printf {512 * MIB}", refused=False),
    Row("stacks of 32 kB", f"limit stack {32 << 10}"),
    Row("stacks of 4 kB", f"limit stack {SMALL}", refused=False),
    Row("1,000,000 pending launches of kernels by kernels", "launching 1000000 module"),
    Row("100,000 of them, by a kernel of a module", "launching 100000 module", refused=False),
    Row("100,000 of them, by a kernel of a library", "launching 100000 library", refused=False),
    *[
        Row(f"a kernel of a {owner} that {does}, where nothing is left", f"calling {name} {owner}", tolerated=FEW)
        for name, does in CALLED.items()
        for owner in ("module", "library")
    ],
    Row("40,000 pages registered apart, where nothing is left", f"pinned 40000 {2 * MIB}"),
    Row("a piece mapped 40,000 times apart, where nothing is left", f"mapped 40000 {512 * MIB}"),
    Row("a piece of the host's memory mapped 20,000 times, where nothing is left", f"mapped 20000 {2 * MIB} 2"),
    Row("24 GiB of a pool of the host's memory, where nothing is left", f"pooled {24 * GIB}"),
    Row("80 sparse arrays of 16 GiB, where nothing is left", "sparse 80"),
    Row("a library with 3 GiB of variables", f"variables cubin {3 * GIB} library"),
    Row("a library with 1 GiB of variables, used", f"variables cubin {GIB} library", refused=False),
    Row("a module with 3 GiB of variables", f"variables cubin {3 * GIB} module"),
    Row("a module with 1 GiB of variables, used", f"variables cubin {GIB} module", refused=False),
    Row("a module of PTX with 3 GiB of variables", f"variables ptx {3 * GIB} module"),
    Row("a module of PTX with 1 GiB of variables, used", f"variables ptx {GIB} module", refused=False),
    Row("a library of PTX with 3 GiB of variables", f"variables ptx {3 * GIB} library"),
    Row("a library of PTX with 1 GiB of variables, used", f"variables ptx {GIB} library", refused=False),
    Row("a library of 1.75 GiB, eagerly in two contexts", f"eager {7 * GIB // 4}", limit=4 * GIB, undone=True),
    Row("the same of 1 GiB, used in both", f"eager {GIB}", refused=False, limit=4 * GIB),
    Row("memory exported and released, the descriptors kept", f"kept exported {256 * MIB}"),
    Row("the same, imported, of which a dma-buf is kept", f"kept imported {256 * MIB}"),
    Row("memory freed of which a dma-buf is kept", f"kept dmabuf {256 * MIB}"),
    Row("memory of pools freed whose pointers were exported", f"kept pool {256 * MIB}"),
    Row("memory of pools freed of which a dma-buf is kept", f"kept pool-dmabuf {256 * MIB}"),
    Row("memory that workers exported who have ended", f"left exported {256 * MIB}"),
    Row(
        "the same, before and after a restart of the scheduler",
        f"left exported {256 * MIB}",
        limit=3 * GIB,  # three contexts
        before=f"left exported {256 * MIB} {512 * MIB}",
    ),
    Row("memory of such workers of which a dma-buf is kept", f"left dmabuf {256 * MIB}"),
    Row("memory that such workers imported, of which one is kept", f"left imported {256 * MIB}"),
]


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process in the container's place."""
    settings = os.environ | {"LD_PRELOAD": str(folder / "libconvgpu.so")}
    if DEVICES != "nvml":
        settings |= {"LD_LIBRARY_PATH": str(folder / "driver"), "CONVGPU_SIMULATED": "1"}
    return settings


@contextmanager
def program(folder: Path, way: str) -> Iterator[list[tuple[str, int]]]:
    """Go that way; give what was answered. The process stays until the end."""
    command = [sys.executable, str(FOLDER / "step.py"), *way.split()]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(folder), stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        yield [(call, result) for call, result in json.loads(line or '[["no answer", -1]]')]
        process.stdin.close()
        process.wait(60)


def attempt(card: Card, daemon: Daemon, folder: Path, row: Row) -> tuple[list[tuple[str, int]], int, int]:
    """Return what was answered, the most that the card lost, and what it has lost in the end."""
    floor = card.rest()
    with Sampler(card, floor, row.limit) as sampler, ExitStack() as programs:
        if row.before:
            programs.enter_context(program(folder, row.before))
            time.sleep(AUDITS)
            daemon.kill()
            daemon.start()
        answers = programs.enter_context(program(folder, row.way))
        lasting = card.rest() - floor
    return answers, sampler.peak, lasting


def judge(row: Row, answers: list[tuple[str, int]], peak: int, lasting: int) -> str:
    """Return what is wrong, or nothing."""
    wanted = OUT_OF_MEMORY if row.refused else 0
    # What comes after the refused call takes nothing.
    some = row.refused and not row.way.startswith(("launches", "obtained"))
    if answers[0][1] != wanted or any(result not in {wanted, 0 if some else wanted} for _call, result in answers):
        return f"expected {wanted}"
    if lasting > row.limit + row.tolerated:
        return "above the limit, and stays"
    return "above the limit" if peak > row.limit + row.tolerated and not row.undone else ""


def show(row: Row, answers: list[tuple[str, int]], peak: int, lasting: int, wrong: str) -> None:
    """Print the row."""
    said = ", ".join(f"{call} {result}" for call, result in answers)
    refused = "refused" if any(result == OUT_OF_MEMORY for _call, result in answers) else "accepted"
    sizes = f"most {peak / GIB:6.3f}  in the end {lasting / GIB:6.3f}  limit {row.limit / GIB:.0f} GiB"
    print(f"{'WRONG' if wrong else 'ok   '}  {row.what:60}  {refused:8}  {sizes}", flush=True)
    if wrong:
        print(f"       {wrong}: {said}", flush=True)


def try_all(daemon: Daemon, card: Card, rows: list[Row]) -> int:
    """Try these rows; return how many are wrong."""
    count = 0
    for number, row in enumerate(rows):
        folder = daemon.container(f"row{number}", memory=str(row.limit))
        answers, peak, lasting = attempt(card, daemon, folder, row)
        wrong = judge(row, answers, peak, lasting)
        show(row, answers, peak, lasting, wrong)
        count += bool(wrong)
    return count


def main() -> int:
    """Return 1 if a row is wrong."""
    with tempfile.TemporaryDirectory() as scratch, running_daemon(Path(scratch) / "d", DEVICES) as daemon:
        card = Card(None if DEVICES == "nvml" else Path(scratch) / "d/driver")
        rows = [row for row in ROWS if DEVICES == "nvml" or not row.only_on_cards]
        rows = [row for row in rows if row.way.split()[0] in sys.argv[1:]] or rows
        wrong = try_all(daemon, card, rows)
    print(f"{wrong} of {len(rows)} rows wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
