"""One row of `rows.py`, in a process of its own behind the hook: takes memory one way, and says what it was answered.

    step.py WAY [ARGUMENT...]

Prints a JSON list of pairs (call, CUresult), and stays until its stdin ends.
"""

import ctypes
import json
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p

import graphs
import images
from calls import HEAP, PENDING, PRINTF, STACK, Answer, Cuda, sparse_shape

PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
HOST = 2  # CU_MEM_LOCATION_TYPE_HOST
READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
DMA_BUF = 1  # CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
NONE = c_uint64(0)
NO_RESERVE = 0x4000  # MAP_NORESERVE

CALLS = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel")
FORMS = [f"{call}{twin}" for call in CALLS for twin in ("", "_ptsz")]


def launches(cuda: Cuda, size: str, owner: str) -> Iterator[Answer]:
    """Launch a kernel with so much local memory in each form."""
    function = images.kernel(cuda, images.stack(int(size), cuda.simulated), owner == "library")
    for form in FORMS:
        yield form, cuda.launch(function, form)


def obtain(cuda: Cuda, way: str, size: str) -> c_void_p:
    """Return the same kernel, got in that way from an image of two whose other was launched before."""
    library, found, listed = way in {"kernels", "form", "library"}, c_void_p(), (c_void_p * 2)()
    result, owner = cuda.load(images.stacks(int(size)), library)
    assert result == 0, f"an image that takes nothing is refused: {result}"
    small = cuda.function(owner, b"small", library)
    assert cuda.launch(small) == 0, "a kernel that takes nothing is refused"
    if way in {"functions", "kernels"}:
        call = "cuLibraryEnumerateKernels" if library else "cuModuleEnumerateFunctions"
        cuda.must(call, listed, c_uint(2), owner)
        return c_void_p(next(handle for handle in listed if handle != small.value))
    if way == "form":
        cuda.must("cuKernelGetFunction", byref(found), cuda.function(owner, b"stack", library))
        return found
    cuda.must(*(("cuLibraryGetModule", byref(found), owner) if library else ("cuFuncGetModule", byref(found), small)))
    return cuda.function(found, b"stack", library=False)


def obtained(cuda: Cuda, way: str, size: str) -> Iterator[Answer]:
    """Launch a kernel with so much local memory that was got in that way, after 300 launches of others."""
    for _time in range(100):
        others = images.kernel(cuda, images.stack(16, cuda.simulated), library=False)
        assert [cuda.launch(others) for _launch in range(3)] == [0] * 3, "a kernel that takes nothing is refused"
    function = obtain(cuda, way, size)
    for _time in range(3):
        yield "cuLaunchKernel", cuda.launch(function)


def limit(cuda: Cuda, kind: str, size: str) -> Iterator[Answer]:
    """Set a limit, and run a kernel that uses what it is for."""
    number = {"stack": STACK, "printf": PRINTF, "heap": HEAP}[kind]
    image = {"printf": images.printing, "heap": images.heap}.get(kind, lambda simulated: images.stack(0, simulated))
    yield f"cuCtxSetLimit({kind})", cuda.limit(number, int(size))
    if kind != "stack":
        yield "cuLaunchKernel", cuda.launch(images.kernel(cuda, image(cuda.simulated), library=False))


def launching(cuda: Cuda, pending: str, owner: str) -> Iterator[Answer]:
    """Allow so many pending launches, and run a kernel that launches another."""
    yield "cuCtxSetLimit(pending launches)", cuda.limit(PENDING, int(pending))
    library, image = owner == "library", images.launching(cuda.simulated)
    result, made = cuda.load(image[0], library)
    yield f"load of a {owner}", result
    yield from run(cuda, made, image[1], library)


def calling(cuda: Cuda, name: str, owner: str) -> Iterator[Answer]:
    """Run a kernel that calls that function of the driver's, when nothing else can be had."""
    library, image = owner == "library", images.CALLING[name](cuda.simulated)
    fill(cuda)
    result, made = cuda.load(image[0], library)
    if result != 0 or not library:  # a library takes nothing before it is used
        yield f"load of a {owner}", result
    if result == 0:
        yield from run(cuda, made, image[1], library)


def run(cuda: Cuda, made: c_void_p, name: bytes, library: bool) -> Iterator[Answer]:
    """Get a kernel, and launch it."""
    call, kernel = "cuLibraryGetKernel" if library else "cuModuleGetFunction", c_void_p()
    result = cuda.call(call, byref(kernel), made, name)
    yield call, result
    if result == 0:
        yield "cuLaunchKernel", cuda.launch(kernel)


def fill(cuda: Cuda, piece: int = 8 << 20) -> None:
    """Allocate until nothing more can be had."""
    while cuda.allocate(piece)[0] == 0:
        pass


def pinned(cuda: Cuda, count: str, stride: str) -> Iterator[Answer]:
    """Have a page registered at so many places of the program's memory, when nothing else can be had."""
    fill(cuda)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    area, result = mmap.mmap(-1, int(count) * int(stride), flags), 0
    begin = ctypes.addressof(c_ubyte.from_buffer(area))
    for number in range(int(count)):
        result = cuda.call("cuMemHostRegister_v2", c_void_p(begin + number * int(stride)), c_size_t(4096), 0)
        if result != 0:
            break
    yield "cuMemHostRegister", result


def mapped(cuda: Cuda, count: str, stride: str, where: str = str(DEVICE)) -> Iterator[Answer]:
    """Map one piece of memory, of the device or of the host, at so many addresses, when nothing else can be had."""
    handle, address, result = c_uint64(), c_uint64(), 0
    cuda.must("cuMemCreate", byref(handle), c_size_t(2 << 20), (c_int * 8)(PINNED, 0, int(where), 0), NONE)
    cuda.must("cuMemAddressReserve", byref(address), c_size_t(int(count) * int(stride)), c_size_t(0), NONE, NONE)
    fill(cuda)
    for place in range(address.value, address.value + int(count) * int(stride), int(stride)):
        result = cuda.call("cuMemMap", c_uint64(place), c_size_t(2 << 20), c_size_t(0), handle, NONE)
        if result != 0:
            break
        cuda.must("cuMemSetAccess", c_uint64(place), c_size_t(2 << 20), (c_int * 3)(DEVICE, 0, READ_WRITE), c_size_t(1))
    yield "cuMemMap", result


def pooled(cuda: Cuda, size: str) -> Iterator[Answer]:
    """Allocate so many bytes from a pool of the host's memory, when nothing else can be had."""
    pool, address = c_void_p(), c_uint64()
    cuda.must("cuMemPoolCreate", byref(pool), (c_int * 22)(PINNED, 0, HOST, 0))
    fill(cuda)
    yield (
        "cuMemAllocFromPoolAsync",
        cuda.call("cuMemAllocFromPoolAsync", byref(address), c_size_t(int(size)), pool, None),
    )


def sparse(cuda: Cuda, count: str) -> Iterator[Answer]:
    """Make so many sparse arrays of 16 GiB, when nothing else can be had."""
    array, result = c_void_p(), 0
    fill(cuda)
    for _number in range(int(count)):
        result = cuda.call("cuArray3DCreate_v2", byref(array), sparse_shape(1 << 15))
        if result != 0:
            break
    yield "cuArray3DCreate", result


def variables(cuda: Cuda, form: str, size: str, owner: str) -> Iterator[Answer]:
    """Load an image with a variable of that size, and launch its kernel."""
    library = owner == "library"
    name = "cuLibraryLoadData" if library else "cuModuleLoadData"
    image = images.cubin(int(size), cuda) if form == "cubin" else images.variables(int(size), cuda.simulated)
    result, made = cuda.load(image[0], library)
    yield f"{name}({form})", result
    if result == 0:
        yield "cuLaunchKernel", cuda.launch(cuda.function(made, image[1], library))


def eager(cuda: Cuda, size: str) -> Iterator[Answer]:
    """Load a library whose variables come to both contexts at once, and launch its kernel in both."""
    here, there = c_void_p(), c_void_p()
    cuda.must("cuCtxGetCurrent", byref(here))
    cuda.must("cuCtxCreate_v2", byref(there), 0, 0)
    image = images.cubin(int(size), cuda)
    result, library = cuda.load(image[0], library=True)
    yield "cuLibraryLoadData", result
    if result == 0:
        kernel = cuda.function(library, image[1], library=True)
        for context in (here, there):
            cuda.must("cuCtxSetCurrent", context)
            cuda.must("cuMemAlloc_v2", byref(cuda.out), c_size_t(4096))  # where the kernel writes
            yield "cuLaunchKernel", cuda.launch(kernel)


def exported(cuda: Cuda, size: int) -> Answer:
    """Make memory, export it, and release it."""
    handle, descriptor = c_uint64(), c_int()
    result = cuda.call("cuMemCreate", byref(handle), c_size_t(size), (c_int * 8)(PINNED, DESCRIPTOR, DEVICE, 0), NONE)
    if result == 0:
        cuda.must("cuMemExportToShareableHandle", byref(descriptor), handle, DESCRIPTOR, NONE)
        cuda.must("cuMemRelease", handle)
    return "cuMemCreate", result


def imported(cuda: Cuda, size: int, descriptor: c_int | None = None) -> Answer:
    """Make memory, export, import and map it, let go of all else, take a dma-buf of a part, and let go of the rest."""
    handle, other, address, first = c_uint64(), c_uint64(), c_uint64(), c_int()
    result = cuda.call("cuMemCreate", byref(handle), c_size_t(size), (c_int * 8)(PINNED, DESCRIPTOR, DEVICE, 0), NONE)
    if result != 0:
        return "cuMemCreate", result
    cuda.must("cuMemExportToShareableHandle", byref(first), handle, DESCRIPTOR, NONE)
    cuda.must("cuMemImportFromShareableHandle", byref(other), c_void_p(first.value), DESCRIPTOR)
    cuda.must("cuMemAddressReserve", byref(address), c_size_t(size), c_size_t(0), NONE, NONE)
    cuda.must("cuMemMap", address, c_size_t(size), c_size_t(0), other, NONE)
    cuda.must("cuMemSetAccess", address, c_size_t(size), (c_int * 3)(DEVICE, 0, READ_WRITE), c_size_t(1))
    os.close(first.value)
    cuda.must("cuMemRelease", handle)
    into = byref(c_int() if descriptor is None else descriptor)
    result = cuda.call("cuMemGetHandleForAddressRange", into, address, c_size_t(2 << 20), DMA_BUF, NONE)
    cuda.must("cuMemUnmap", address, c_size_t(size))
    cuda.must("cuMemRelease", other)
    return "cuMemGetHandleForAddressRange", result


def dma_buf(cuda: Cuda, size: int) -> Answer:
    """Allocate memory, take a dma-buf of it, and free it."""
    address, descriptor = c_uint64(), c_int()
    result = cuda.call("cuMemAlloc_v2", byref(address), c_size_t(size))
    if result == 0:
        cuda.must("cuMemGetHandleForAddressRange", byref(descriptor), address, c_size_t(size), DMA_BUF, NONE)
        cuda.must("cuMemFree_v2", address)
    return "cuMemAlloc", result


def pool(cuda: Cuda, size: int) -> Answer:
    """Allocate from a pool that is exported, export the pointer, and free."""
    made, address, descriptor = c_void_p(), c_uint64(), c_int()
    cuda.must("cuMemPoolCreate", byref(made), (c_int * 22)(PINNED, DESCRIPTOR, DEVICE, 0))
    cuda.must("cuMemPoolExportToShareableHandle", byref(descriptor), made, DESCRIPTOR, NONE)
    result = cuda.call("cuMemAllocFromPoolAsync", byref(address), c_size_t(size), made, None)
    if result == 0:
        cuda.must("cuMemPoolExportPointer", (c_ubyte * 64)(), address)
        cuda.must("cuMemFreeAsync", address, None)
        cuda.must("cuStreamSynchronize", None)
    return "cuMemAllocFromPoolAsync", result


def pool_dma_buf(cuda: Cuda, size: int) -> Answer:
    """Allocate from the default pool, take a dma-buf, free, and have the pool give up what it can."""
    made, address, descriptor = c_void_p(), c_uint64(), c_int()
    cuda.must("cuDeviceGetDefaultMemPool", byref(made), 0)
    result = cuda.call("cuMemAllocAsync", byref(address), c_size_t(size), None)
    call = "cuMemAllocAsync"
    if result == 0:
        call, arguments = "cuMemGetHandleForAddressRange", (address, c_size_t(size), DMA_BUF, NONE)
        result = cuda.call(call, byref(descriptor), *arguments)
        cuda.must("cuMemFreeAsync", address, None)
        cuda.must("cuStreamSynchronize", None)
        cuda.must("cuMemPoolTrimTo", made, c_size_t(0))
    return call, result


def kept(cuda: Cuda, way: str, size: str) -> Iterator[Answer]:
    """Take so much memory that way, and let go of it but for a descriptor, until that is refused or 6 GiB are kept."""
    ways = {"exported": exported, "imported": imported, "dmabuf": dma_buf, "pool": pool, "pool-dmabuf": pool_dma_buf}
    take, left = ways[way], 6 << 30
    call, result = take(cuda, int(size))
    while result == 0 and (left := left - int(size)) > 0:
        call, result = take(cuda, int(size))
    yield call, result


def leave(cuda: Cuda, way: str, size: str, channel: str) -> Iterator[Answer]:
    """Take so much memory, and hand its descriptor on."""
    handle, address, descriptor, last = c_uint64(), c_uint64(), c_int(), tuple[object, ...]()
    if way == "imported":
        call, result = imported(cuda, int(size), descriptor)
        yield call, result
    elif way == "exported":
        properties = (c_int * 8)(PINNED, DESCRIPTOR, DEVICE, 0)
        yield "cuMemCreate", (result := cuda.call("cuMemCreate", byref(handle), c_size_t(int(size)), properties, NONE))
        call, last = "cuMemExportToShareableHandle", (handle, DESCRIPTOR, NONE)
    else:
        yield "cuMemAlloc", (result := cuda.call("cuMemAlloc_v2", byref(address), c_size_t(int(size))))
        call, last = "cuMemGetHandleForAddressRange", (address, c_size_t(int(size)), DMA_BUF, NONE)
    if result == 0:
        if last:
            cuda.must(call, byref(descriptor), *last)
        with socket.socket(fileno=int(channel)) as ours:
            socket.send_fds(ours, [b"x"], [descriptor.value])


def left(_cuda: Cuda, way: str, size: str, most: str = f"{6 << 30}") -> Iterator[Answer]:
    """Have one worker after another take so much memory, and keep its descriptor, until that is refused, or so much."""
    result, rest, received = 0, int(most), []
    while result == 0 and rest > 0:
        ours, theirs = socket.socketpair()
        command = [sys.executable, __file__, "leave", way, size, str(theirs.fileno())]
        worker = subprocess.run(command, pass_fds=[theirs.fileno()], input=b"", stdout=subprocess.PIPE, check=True)
        [[call, result]] = json.loads(worker.stdout)
        if result == 0:
            received += socket.recv_fds(ours, 1, 1)[1]
            rest -= int(size)
    yield call, result


WAYS: dict[str, Callable[..., Iterator[Answer]]] = {
    "launches": launches,
    "obtained": obtained,
    "graph": graphs.graph,
    "capture": graphs.capture,
    "executables": graphs.executables,
    "abandoned": graphs.abandoned,
    "bodies": graphs.bodies,
    "elsewhere": graphs.elsewhere,
    "green": graphs.green,
    "greens": graphs.greens,
    "widened": graphs.widened,
    "streams": graphs.streams,
    "threads": graphs.threads,
    "limit": limit,
    "launching": launching,
    "calling": calling,
    "mapped": mapped,
    "pinned": pinned,
    "pooled": pooled,
    "sparse": sparse,
    "variables": variables,
    "eager": eager,
    "kept": kept,
    "leave": leave,
    "left": left,
}


def main() -> None:
    """Go that way, and stay."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # where kernels print
        if sys.argv[1] == "eager":
            os.environ["CUDA_MODULE_LOADING"] = "EAGER"  # the driver reads it in cuInit
        cuda = Cuda()
        print(json.dumps(list(WAYS[sys.argv[1]](cuda, *sys.argv[2:]))), file=answers, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
