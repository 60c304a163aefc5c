"""Ways of `step.py` that go by graphs, green contexts, and streams."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from ctypes import byref, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p

import images
from calls import AllocationNode, Answer, ConditionalNode, Cuda, KernelNode, PoolProperties

SMALL = 4 << 10
MULTIPROCESSORS = 1  # CU_DEV_RESOURCE_TYPE_SM
CONDITIONAL, IF = 13, 0  # CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_GRAPH_COND_TYPE_IF
PINNED, DEVICE = 1, 1  # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE
OWN = c_void_p(2)  # CU_STREAM_PER_THREAD
SMALL_STACK = 256 << 10


def node_of(function: c_void_p, parameters: c_void_p) -> KernelNode:
    """Return a node of one thread."""
    return KernelNode(function, (c_uint * 6)(1, 1, 1, 1, 1, 1), 0, parameters)


def add(cuda: Cuda, graph: c_void_p, function: c_void_p, before: c_void_p | None = None) -> tuple[int, c_void_p]:
    """Put a kernel into a graph, which runs after another one; return the result and the node."""
    node, one = c_void_p(), node_of(function, ctypes.cast(cuda.parameters, c_void_p))
    waits = byref(before) if before else None
    count = c_size_t(1 if before else 0)
    return cuda.call("cuGraphAddKernelNode_v2", byref(node), graph, waits, count, byref(one)), node


def made_of(cuda: Cuda, function: c_void_p, count: int, chained: bool) -> tuple[c_void_p, list[c_void_p]]:
    """Return a graph of so many kernels, beside each other or one after the other, and its nodes."""
    graph, nodes = c_void_p(), []
    cuda.must("cuGraphCreate", byref(graph), 0)
    for _kernel in range(count):
        result, node = add(cuda, graph, function, nodes[-1] if chained and nodes else None)
        assert result == 0, f"a kernel that takes nothing is refused: {result}"
        nodes.append(node)
    return graph, nodes


def graph(cuda: Cuda, size: str) -> Iterator[Answer]:
    """Put such a kernel into a graph, and launch that."""
    function = images.kernel(cuda, images.stack(int(size), cuda.simulated), library=False)
    made, instance = c_void_p(), c_void_p()
    cuda.must("cuGraphCreate", byref(made), 0)
    result, _node = add(cuda, made, function)
    yield "cuGraphAddKernelNode", result
    if result == 0:
        cuda.must("cuGraphInstantiateWithFlags", byref(instance), made, c_size_t(0))
        yield "cuGraphLaunch", cuda.call("cuGraphLaunch", instance, None)
        yield "cuCtxSynchronize", cuda.call("cuCtxSynchronize")


def capture(cuda: Cuda, size: str) -> Iterator[Answer]:
    """Launch such a kernel into a stream that is captured, and launch the graph."""
    function = images.kernel(cuda, images.stack(int(size), cuda.simulated), library=False)
    stream, made, instance = cuda.stream(), c_void_p(), c_void_p()
    cuda.must("cuStreamBeginCapture_v2", stream, 2)
    yield "cuLaunchKernel, captured", cuda.launch(function, stream=stream)
    cuda.must("cuStreamEndCapture", stream, byref(made))
    cuda.must("cuGraphInstantiateWithFlags", byref(instance), made, c_size_t(0))
    yield "cuGraphLaunch", cuda.call("cuGraphLaunch", instance, None)
    yield "cuCtxSynchronize", cuda.call("cuCtxSynchronize")


def executables(cuda: Cuda, count: str, shape: str, times: str) -> Iterator[Answer]:
    """Make executable graphs of so many kernels, "beside" each other or "chained", and launch each; the last first."""
    function = images.kernel(cuda, images.stack(16, cuda.simulated), library=False)
    graph, _nodes = made_of(cuda, function, int(count), shape == "chained")
    answers = []
    for _time in range(int(times)):
        instance = c_void_p()
        result = cuda.call("cuGraphInstantiateWithFlags", byref(instance), graph, c_size_t(0))
        answers.append(("cuGraphInstantiate", result))
        if result == 0:
            cuda.must("cuGraphLaunch", instance, None)
            cuda.must("cuCtxSynchronize")
    return reversed(answers)


def bodies(cuda: Cuda, count: str) -> Iterator[Answer]:
    """Make an executable graph of one conditional node, whose body has so many kernels beside each other."""
    function = images.kernel(cuda, images.stack(16, cuda.simulated), library=False)
    graph, context, instance = c_void_p(), c_void_p(), c_void_p()
    cuda.must("cuGraphCreate", byref(graph), 0)
    cuda.must("cuCtxGetCurrent", byref(context))
    node = ConditionalNode(CONDITIONAL, condition=IF, count=1, context=context)
    handle = c_uint64()
    cuda.must("cuGraphConditionalHandleCreate", byref(handle), graph, context, 0, 0)
    node.handle = handle
    cuda.must("cuGraphAddNode_v2", byref(c_void_p()), graph, None, None, c_size_t(0), byref(node))
    for _kernel in range(int(count)):
        assert add(cuda, c_void_p(node.bodies[0]), function)[0] == 0, "a kernel that takes nothing is refused"
    result = cuda.call("cuGraphInstantiateWithFlags", byref(instance), graph, c_size_t(0))
    yield "cuGraphInstantiate", result
    if result == 0 and not cuda.simulated:
        yield "cuGraphLaunch", cuda.call("cuGraphLaunch", instance, None)
        yield "cuCtxSynchronize", cuda.call("cuCtxSynchronize")


def widened(cuda: Cuda, count: str, way: str) -> Iterator[Answer]:
    """Change the kernels of an executable graph to one of large parameters, "all" or "each"; the last answer first."""
    small = images.kernel(cuda, images.stack(16, cuda.simulated), library=False)
    graph, nodes = made_of(cuda, small, int(count), chained=True)
    instance, room = c_void_p(), ctypes.create_string_buffer(images.WIDE)
    cuda.must("cuGraphInstantiateWithFlags", byref(instance), graph, c_size_t(0))
    wide, parameters = images.kernel(cuda, images.wide(cuda.simulated), library=False), cuda.parameters
    cuda.parameters = (c_void_p * 2)(ctypes.addressof(room), 0)
    one, info = node_of(wide, ctypes.cast(cuda.parameters, c_void_p)), ctypes.create_string_buffer(64)
    if way == "all":
        other, _nodes = made_of(cuda, wide, int(count), chained=True)
        answers = [("cuGraphExecUpdate", cuda.call("cuGraphExecUpdate_v2", instance, other, info))]
    else:
        call = "cuGraphExecKernelNodeSetParams_v2"
        answers = [(call, cuda.call(call, instance, node, byref(one))) for node in nodes]
        answers.sort(key=lambda answer: -answer[1])
    cuda.parameters = parameters
    return iter(answers)


def abandoned(cuda: Cuda, count: str, size: str, way: str) -> Iterator[Answer]:
    """Launch and destroy graphs that allocate so many bytes each; they are freed in the graph, afterwards, or never."""
    for _ in range(int(count)):
        made, instance, node = c_void_p(), c_void_p(), c_void_p()
        wanted = AllocationNode(pool=PoolProperties(PINNED, 0, DEVICE, 0), size=int(size))
        cuda.must("cuGraphCreate", byref(made), 0)
        cuda.must("cuGraphAddMemAllocNode", byref(node), made, None, c_size_t(0), byref(wanted))
        address = c_uint64(wanted.address)
        if way == "freed":
            cuda.must("cuGraphAddMemFreeNode", byref(c_void_p()), made, byref(node), c_size_t(1), address)
        result = cuda.call("cuGraphInstantiateWithFlags", byref(instance), made, c_size_t(0))
        if result != 0:
            break
        cuda.must("cuGraphLaunch", instance, None)
        cuda.must("cuCtxSynchronize")
        cuda.must("cuGraphExecDestroy", instance)
        if way == "later":
            cuda.must("cuMemFree_v2", address)
    yield "cuGraphInstantiate", result


def elsewhere(cuda: Cuda) -> Iterator[Answer]:
    """Put a kernel of another context into a graph, where the current one has had such stacks already."""
    image, here, there = images.stack(SMALL, cuda.simulated), c_void_p(), c_void_p()
    cuda.must("cuCtxGetCurrent", byref(here))
    assert cuda.launch(images.kernel(cuda, image, library=False)) == 0, "the first stacks are refused"
    cuda.must("cuCtxCreate_v2", byref(there), 0, 0)
    function = images.kernel(cuda, image, library=False)
    cuda.must("cuCtxSetCurrent", here)
    made, instance = c_void_p(), c_void_p()
    cuda.must("cuGraphCreate", byref(made), 0)
    result, _node = add(cuda, made, function)
    yield "cuGraphAddKernelNode", result
    if result == 0:
        yield "cuGraphInstantiate", cuda.call("cuGraphInstantiateWithFlags", byref(instance), made, c_size_t(0))


def green(cuda: Cuda, size: str) -> Iterator[Answer]:
    """Launch a kernel with so much local memory in a green context's stream, and then in the primary context."""
    function = images.kernel(cuda, images.stack(int(size), cuda.simulated), library=False)
    made, stream = c_void_p(), c_void_p()
    cuda.must("cuGreenCtxCreate", byref(made), described(cuda), 0, 1)
    cuda.must("cuGreenCtxStreamCreate", byref(stream), made, 1, 0)
    yield "cuLaunchKernel, in a green context", cuda.launch(function, stream=stream)
    yield "cuCtxSynchronize", cuda.call("cuCtxSynchronize")
    yield "cuLaunchKernel", cuda.launch(function)


def described(cuda: Cuda) -> c_void_p:
    """Return the description of a green context with all multiprocessors."""
    resource, description = (c_ubyte * 144)(), c_void_p()
    cuda.must("cuDeviceGetDevResource", 0, resource, MULTIPROCESSORS)
    cuda.must("cuDevResourceGenerateDesc", byref(description), resource, 1)
    return description


def streams(cuda: Cuda, count: str) -> Iterator[Answer]:
    """Make so many streams; the last answer first."""
    return reversed([("cuStreamCreate", cuda.call("cuStreamCreate", byref(c_void_p()), 1)) for _ in range(int(count))])


def greens(cuda: Cuda, count: str) -> Iterator[Answer]:
    """Make and end so many green contexts; the last answer first."""
    description, answers = described(cuda), []
    for _time in range(int(count)):
        made = c_void_p()
        answers.append(("cuGreenCtxCreate", cuda.call("cuGreenCtxCreate", byref(made), description, 0, 1)))
        if answers[-1][1] == 0:
            cuda.must("cuGreenCtxDestroy", made)
    return reversed(answers)


def fill(cuda: Cuda) -> int:
    """Write to the device."""
    return cuda.call("cuMemsetD8Async", cuda.out, c_ubyte(1), c_size_t(8), OWN)


def twin(cuda: Cuda) -> int:
    """Copy from the device by a call whose stream is the thread's own."""
    return cuda.call("cuMemcpyDtoH_v2_ptds", (c_ubyte * 8)(), cuda.out, c_size_t(8))


def record(cuda: Cuda) -> int:
    """Record an event."""
    event = c_void_p()
    return cuda.call("cuEventCreate", byref(event), 0) or cuda.call("cuEventRecord", event, OWN)


def question(cuda: Cuda) -> int:
    """Ask whether all is done there."""
    return cuda.call("cuStreamQuery", OWN)


def flags(cuda: Cuda) -> int:
    """Ask for what it is."""
    return cuda.call("cuStreamGetFlags", OWN, byref(c_uint()))


USES: dict[str, Callable[[Cuda], int]] = {
    "cuMemsetD8Async": fill,
    "cuMemcpyDtoH_ptds": twin,
    "cuEventRecord": record,
    "cuStreamQuery": question,
    "cuStreamGetFlags": flags,
}


def threads(cuda: Cuda, count: str, call: str, room: str) -> Iterator[Answer]:
    """Let so many threads, which stay, make that call, in `full` memory or not; the last answer first."""
    while room == "full" and cuda.allocate(8 << 20)[0] == 0:
        pass
    context, answers, end = c_void_p(), [], threading.Event()
    cuda.must("cuCtxGetCurrent", byref(context))

    def use(answered: threading.Event) -> None:
        cuda.must("cuCtxSetCurrent", context)
        answers.append((call, USES[call](cuda)))
        answered.set()
        end.wait()

    threading.stack_size(SMALL_STACK)
    started = []
    for _number in range(int(count)):
        answered = threading.Event()
        started.append(threading.Thread(target=use, args=(answered,), daemon=True))
        started[-1].start()
        answered.wait()
    yield from reversed(answers)
    end.set()
