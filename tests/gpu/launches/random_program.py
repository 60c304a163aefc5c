"""Random calls of the driver, for so many seconds, in a process behind the hook: started by `random_calls.py`.

    random_program.py SECONDS SEED DEPTH [now]

It says "ready" when it has a context, and without `now` waits for a line before it walks.
Every call may be refused for want of memory; nothing else may go wrong. At the end a line of JSON: how many calls were
made, and by kind how many were refused. DEPTH above 0: it also starts such programs. The exit status is `LOST` if the
context of this program was lost, or that of one which it started; it says then what it did last.
"""

import ctypes
import itertools
import json
import mmap
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

import images
from calls import HEAP, OUT_OF_MEMORY, PENDING, PRINTF, STACK, Cuda, CudaError, sparse_shape
from graphs import described, node_of

MIB = 1 << 20
BROKEN = 700
"""From here on a context is lost: an illegal address, a failed launch."""
LOST = 3
PINNED, DEVICE = 1, 1
APART = 2 * MIB
NO_RESERVE = 0x4000  # MAP_NORESERVE
PER_THREAD = c_void_p(2)  # CU_STREAM_PER_THREAD
KINDS = ("stack", "variables", *images.CALLING)
LIMITS = (STACK, PRINTF, HEAP, PENDING)


class ContextLostError(Exception):
    """A call said that the context is lost: which, and the CUresult."""


class Walk:
    """What the process has, and one random step after the other."""

    def __init__(self, seed: int, depth: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a walk, no secret
        # Without the hook, too, a launch by a kernel fails once stacks had other sizes (driver 580, H200).
        self.images = [kind for kind in KINDS if seed % 2 == 0 or kind != images.CALL]
        self.limits = [limit for limit in LIMITS if seed % 2 or limit != STACK]
        self.cuda = Cuda()
        self.depth = depth
        self.calls: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.blocks: list[c_uint64] = []
        self.streamed: list[c_uint64] = []
        self.owners: list[tuple[c_void_p, bool, c_void_p]] = []
        self.kinds: dict[int | None, bytes] = {}
        self.last = deque[list[str | int]](maxlen=80)
        """What it did last, and how often in a row, which it says when its context is lost."""
        self.lost = 0
        self.handles: list[c_uint64] = []
        self.instances: list[c_void_p] = []
        self.areas: list[tuple[mmap.mmap, list[c_void_p]]] = []
        self.arrays: list[c_void_p] = []
        self.children: list[subprocess.Popen[bytes]] = []
        self.primary = c_void_p()
        self.cuda.must("cuCtxGetCurrent", byref(self.primary))
        self.stream = self.cuda.stream()
        self.steps: list[Callable[[], None]] = [
            *[self.allocate, self.free] * 6,
            *[self.allocate_async, self.free_async] * 3,
            *[self.load, self.unload, self.launch, self.launch] * 2,
            *[self.create, self.release, self.limit, self.graph, self.green, self.streams, self.context, self.start],
            *[self.register, self.unregister, self.sparse, self.threads, self.pool, self.fork],
        ]

    def ask(self, name: str, *arguments: object) -> bool:
        """Make a call; whether it succeeded.

        Raises:
            ContextLostError: it is lost.
        """
        return self.told(name, self.cuda.call(name, *arguments))

    def told(self, name: str, result: int) -> bool:
        """Count an answer."""
        self.calls[name] += 1
        self.note(f"{name}: {result}")
        if result >= BROKEN and not 800 <= result < 1000:
            raise ContextLostError(f"{name}: {result}")
        if result == OUT_OF_MEMORY:
            self.refused[name] += 1
        elif result:
            self.refused[f"{name}: {result}"] += 1
        return result == 0

    def note(self, step: str) -> None:
        """Keep what was done."""
        if self.last and self.last[-1][0] == step:
            self.last[-1][1] = int(self.last[-1][1]) + 1
        else:
            self.last.append([step, 1])

    def size(self) -> int:
        """A size: as often small as large."""
        return int(2 ** self.random.uniform(4, 29.5))

    def some(self, things: list[c_uint64]) -> c_uint64 | None:
        """Take one out."""
        return things.pop(self.random.randrange(len(things))) if things else None

    def allocate(self) -> None:
        result, address = self.cuda.allocate(self.size())
        if self.told("cuMemAlloc_v2", result):
            self.blocks.append(address)

    def free(self) -> None:
        address = self.some(self.blocks)
        if address is not None:
            self.ask("cuMemFree_v2", address)

    def allocate_async(self) -> None:
        address = c_uint64()
        if self.ask("cuMemAllocAsync", byref(address), c_size_t(self.size()), self.stream):
            self.streamed.append(address)

    def free_async(self) -> None:
        address = self.some(self.streamed)
        if address is not None:
            self.ask("cuMemFreeAsync", address, self.stream)
        if self.random.random() < 0.3:
            self.ask("cuStreamSynchronize", self.stream)

    def pool(self) -> None:
        """Make a pool of its own, allocate from it, and end both."""
        made, taken = c_void_p(), list[c_uint64]()
        if not self.ask("cuMemPoolCreate", byref(made), (ctypes.c_int * 22)(PINNED, 0, DEVICE, 0)):
            return
        for _piece in range(self.random.choice([1, 3, 20])):
            address = c_uint64()
            if self.ask("cuMemAllocFromPoolAsync", byref(address), c_size_t(self.size()), made, self.stream):
                taken.append(address)
        for address in taken:
            self.ask("cuMemFreeAsync", address, self.stream)
        self.ask("cuStreamSynchronize", self.stream)
        self.ask("cuMemPoolDestroy", made)

    def fork(self) -> None:
        """Fork; the child has no context, so it is told that, and ends."""
        child = os.fork()
        if child == 0:
            os._exit(0 if self.cuda.call("cuCtxSynchronize") else 1)
        _pid, status = os.waitpid(child, 0)
        self.calls["fork"] += 1
        self.lost += status != 0

    def create(self) -> None:
        where = (ctypes.c_byte * 64)()
        ctypes.memmove(where, (ctypes.c_int * 4)(PINNED, 0, DEVICE, 0), 16)
        handle, size = c_uint64(), self.random.randint(1, 128) * 2 * MIB
        if self.ask("cuMemCreate", byref(handle), c_size_t(size), where, c_uint64(0)):
            self.handles.append(handle)

    def release(self) -> None:
        handle = self.some(self.handles)
        if handle is not None:
            self.ask("cuMemRelease", handle)

    def image(self) -> tuple[bytes, bytes]:
        """An image of some kind; variables only where their size can be read."""
        simulated = self.cuda.simulated
        kind = self.random.choice(self.images)
        if kind == "stack":
            return images.stack(self.random.choice([256, 2 << 10, 4 << 10, 16 << 10, 60 << 10]), simulated)
        if kind == "variables":
            return images.cubin(self.random.choice([64, 256, 1024, 3072]) * MIB, self.cuda)
        return images.CALLING[kind](simulated)

    def load(self) -> None:
        if len(self.owners) > 12:
            return
        library = self.random.random() < 0.5
        image, name = self.image()
        result, made = self.cuda.load(image, library)
        if self.told("cuLibraryLoadData" if library else "cuModuleLoadData", result):
            kernel = self.kernel(made, library, name)
            if kernel is not None:
                self.owners.append((made, library, kernel))
                self.kinds[kernel.value] = name

    def kernel(self, owner: c_void_p, library: bool, name: bytes) -> c_void_p | None:
        """Get the kernel of an image, by its name or listed."""
        found, listed = c_void_p(), (c_void_p * 1)()
        if self.random.random() < 0.5:
            call = "cuLibraryGetKernel" if library else "cuModuleGetFunction"
            return found if self.ask(call, byref(found), owner, name) else None
        call = "cuLibraryEnumerateKernels" if library else "cuModuleEnumerateFunctions"
        return c_void_p(listed[0]) if self.ask(call, listed, c_uint(1), owner) and listed[0] else None

    def chosen(self) -> tuple[c_void_p, bool]:
        """Choose a kernel; say whether it is one of a library."""
        _owner, library, kernel = self.random.choice(self.owners)
        self.note(f"kernel {self.kinds[kernel.value].decode()} of a {'library' if library else 'module'}")
        return kernel, library

    def unload(self) -> None:
        if self.owners:
            self.ask("cuCtxSynchronize")
            made, library, _kernel = self.owners.pop(self.random.randrange(len(self.owners)))
            self.ask("cuLibraryUnload" if library else "cuModuleUnload", made)

    def launch(self) -> None:
        if self.owners:
            kernel, _library = self.chosen()
            form = self.random.choice(["cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"])
            self.told(form, self.cuda.launch(kernel, form))

    def limit(self) -> None:
        kind = self.random.choice(self.limits)
        sizes = {STACK: [1 << 10, 2 << 10, 4 << 10, 16 << 10], PENDING: [1000, 2048, 20_000, 300_000]}
        size = self.random.choice(sizes.get(kind, [8 * MIB, 64 * MIB, 512 * MIB, 4096 * MIB]))
        self.told(f"cuCtxSetLimit({kind})", self.cuda.limit(kind, size))
        self.note(f"to {size}")

    def graph(self) -> None:
        """Launch a graph of a kernel, beside itself or one after the other, and keep some of them."""
        if not self.owners:
            return
        made, instance, before = c_void_p(), c_void_p(), None
        self.ask("cuGraphCreate", byref(made), 0)
        kernel, library = self.chosen()
        chained = self.random.random() < 0.5
        for _node in range(self.random.choice([1, 1, 30, 1000])):
            before = self.add(made, kernel, library, before if chained else None)
            if before is None:
                break
        if before and self.ask("cuGraphInstantiateWithFlags", byref(instance), made, c_uint64(0)):
            self.ask("cuGraphLaunch", instance, self.stream)
            self.ask("cuStreamSynchronize", self.stream)
            self.instances.append(instance)
        while len(self.instances) > self.random.choice([0, 3, 6]):
            self.ask("cuGraphExecDestroy", self.instances.pop(self.random.randrange(len(self.instances))))
        self.ask("cuGraphDestroy", made)

    def add(self, graph: c_void_p, kernel: c_void_p, library: bool, before: c_void_p | None) -> c_void_p | None:
        """Put a kernel into a graph; return the node."""
        node, parameters = c_void_p(), node_of(kernel, ctypes.cast(self.cuda.parameters, c_void_p))
        parameters.function = None if library else kernel
        parameters.kernel = kernel if library else None
        waits, count = (byref(before), c_size_t(1)) if before else (None, c_size_t(0))
        added = self.ask("cuGraphAddKernelNode_v2", byref(node), graph, waits, count, byref(parameters))
        return node if added else None

    def green(self) -> None:
        """Make a green context, launch in its stream, and end it."""
        made, stream = c_void_p(), c_void_p()
        if not self.ask("cuGreenCtxCreate", byref(made), described(self.cuda), 0, 1):
            return
        if self.ask("cuGreenCtxStreamCreate", byref(stream), made, 1, 0):
            if self.owners:
                kernel, _library = self.chosen()
                self.told("cuLaunchKernel", self.cuda.launch(kernel, stream=stream))
            self.ask("cuStreamSynchronize", stream)
            self.ask("cuStreamDestroy_v2", stream)
        self.ask("cuGreenCtxDestroy", made)

    def streams(self) -> None:
        """Make streams, and end them."""
        made = [c_void_p() for _stream in range(self.random.choice([1, 10, 100]))]
        made = [stream for stream in made if self.ask("cuStreamCreate", byref(stream), 1)]
        for stream in made:
            self.ask("cuStreamDestroy_v2", stream)

    def register(self) -> None:
        """Have pages registered that lie apart."""
        if len(self.areas) > 5:
            return
        count = self.random.choice([10, 300, 3000])
        area = mmap.mmap(-1, count * APART, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
        begin = ctypes.addressof(ctypes.c_ubyte.from_buffer(area))
        pages = [c_void_p(begin + number * APART) for number in range(count)]
        done = itertools.takewhile(lambda page: self.ask("cuMemHostRegister_v2", page, c_size_t(4096), 0), pages)
        self.areas.append((area, list(done)))

    def unregister(self) -> None:
        if self.areas:
            _area, pages = self.areas.pop(self.random.randrange(len(self.areas)))
            for page in pages:
                self.ask("cuMemHostUnregister", page)

    def sparse(self) -> None:
        """Make a sparse array of up to 16 GiB, and keep some."""
        array, edge = c_void_p(), self.random.choice([64, 4096, 32768])
        if self.ask("cuArray3DCreate_v2", byref(array), sparse_shape(edge)):
            self.arrays.append(array)
        while len(self.arrays) > self.random.choice([0, 3, 6]):
            self.ask("cuArrayDestroy", self.arrays.pop(self.random.randrange(len(self.arrays))))

    def threads(self) -> None:
        """Use the default streams of threads."""

        def use() -> None:
            self.cuda.must("cuCtxSetCurrent", self.primary)
            self.ask("cuMemsetD8Async", self.cuda.out, 0, c_size_t(1), PER_THREAD)

        threads = [threading.Thread(target=use) for _thread in range(self.random.choice([1, 10, 60]))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def context(self) -> None:
        """Make another context, allocate and launch in it, and end it."""
        made, image = c_void_p(), images.stack(4 << 10, self.cuda.simulated)
        if not self.ask("cuCtxCreate_v2", byref(made), 0, 0):
            return
        self.cuda.allocate(self.size())
        result, owner = self.cuda.load(image[0], library=False)
        kernel = self.kernel(owner, False, image[1]) if result == 0 else None
        if kernel is not None:
            out, self.cuda.out = self.cuda.out, c_uint64()
            self.told("cuLaunchKernel", self.launch_there(kernel))
            self.cuda.out = out
            self.cuda.must("cuCtxSetCurrent", self.primary)
            self.elsewhere(kernel)
            self.cuda.must("cuCtxSetCurrent", made)
        self.ask(self.random.choice(("cuCtxDestroy_v2", "cuCtxDetach")), made)
        self.cuda.must("cuCtxSetCurrent", self.primary)

    def elsewhere(self, kernel: c_void_p) -> None:
        """Make an executable graph of another context's kernel."""
        graph, instance = c_void_p(), c_void_p()
        self.ask("cuGraphCreate", byref(graph), 0)
        node = self.add(graph, kernel, library=False, before=None)
        if node and self.ask("cuGraphInstantiateWithFlags", byref(instance), graph, c_uint64(0)):
            self.ask("cuGraphExecDestroy", instance)
        self.ask("cuGraphDestroy", graph)

    def launch_there(self, kernel: c_void_p) -> int:
        """Launch in another context, where the kernel needs an address of that one."""
        result, out = self.cuda.allocate(4096)
        if result:
            return result
        parameters, at = self.cuda.parameters, c_uint(0)
        self.cuda.parameters = (c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(at))
        result = self.cuda.launch(kernel)
        self.cuda.parameters = parameters
        return result

    def start(self) -> None:
        """Start a program of the same kind, which ends by itself or is killed."""
        if self.depth == 0:
            return
        self.lost += sum(child.poll() == LOST for child in self.children)
        self.children = [child for child in self.children if child.returncode is None]
        if len(self.children) > 1:
            self.random.choice(self.children).kill()
            return
        words = [sys.executable, __file__, str(self.random.randint(1, 5)), str(self.random.getrandbits(32)), "0", "now"]
        self.children.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))

    def end(self) -> None:
        for child in self.children:
            child.kill()
            self.lost += child.wait() == LOST


def main() -> int:
    """Walk until the time is over, once a line comes or no more can come."""
    seconds, seed, depth = map(int, sys.argv[1:4])
    try:
        walk = Walk(seed, depth)
    except CudaError as refused:
        sys.exit(f"no context: {refused}")
    print("ready", flush=True)
    if len(sys.argv) == 4 and not sys.stdin.readline():
        sys.exit("nobody said when to begin")
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            walk.random.choice(walk.steps)()
    except ContextLostError as lost:
        print(
            f"seed {seed}, {lost}, after",
            *(f"{times} x {step}" for step, times in walk.last),
            sep="\n  ",
            file=sys.stderr,
        )
        walk.lost += 1
    finally:
        walk.end()
    print(json.dumps({"calls": sum(walk.calls.values()), "refused": dict(walk.refused)}), flush=True)
    return LOST if walk.lost else 0


if __name__ == "__main__":
    sys.exit(main())
