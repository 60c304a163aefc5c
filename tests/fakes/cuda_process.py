"""A process that calls the simulated driver as it is told, started by gpu_host.py.

Each line on stdin is a JSON list `[call, argument...]`; the answer is a JSON list `[result, output...]`. Besides
the CUDA calls below there are
- `fork`: the calls given, in a forked child; `exec`: another program in the place of this one;
- `many`: as many allocations as given, answered by their addresses;
- `threads`: as many threads as given, each allocating and freeing so many times, while another asks NVML;
- `give` a descriptor to a process that will `take` it at the path;
- `launch`: a function with arguments of 64 bits, in a stream;
- `thread`: a call in another thread, with the given capture mode;
- `begin`: a call in another thread, that may last: `pending` says whether it does, `finish` gives its answer;
- `share`: a file, mapped; `host_function`: one that sets a word, its address;
- `peek` and `poke`: 32 bits of the host's memory;
- `read` and `write`: bytes at a device address, in hex;
- `churn`: allocates and frees for ever; `address` of an exported symbol; `open` a file; `reload` the library;
- `nvml`: use of a device, and that of its processes by pid.
"""

import _ctypes
import ctypes
import json
import mmap
import os
import socket
import sys
import threading
from pathlib import Path

from cuda_signatures import INPUTS, OUTPUTS, SIGNATURES, in_and_out


class Process:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cuda = ctypes.CDLL(str(directory / "libcuda.so.1"))

    def call(self, name: str, *arguments: object) -> list[object]:
        if hasattr(self, f"_{name}"):
            return getattr(self, f"_{name}")(*arguments)
        left, given, outputs = list(arguments), [], []
        for letter in SIGNATURES[name]:
            if letter in INPUTS:
                given.append(INPUTS[letter](left.pop(0)))
                continue
            outputs.append(in_and_out(left.pop(0)) if letter == "X" else OUTPUTS[letter]())
            given.append(ctypes.byref(outputs[-1]))
            if letter == "T":
                given.append(ctypes.c_int(64))
        result = getattr(self.cuda, name)(*given)
        return [result, *(self._plain(output) for output in outputs)]

    @staticmethod
    def _plain(output: object) -> object:
        if isinstance(output, ctypes.Array):
            return output.value.decode() if output._type_ is ctypes.c_char else bytes(output).hex()
        return output.value

    def _fork(self, *calls: list[object]) -> list[object]:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, json.dumps([self.call(*call) for call in calls]).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answers:
            text = answers.read()
        os.waitpid(child, 0)
        return json.loads(text)

    def _many(self, size: int, count: int) -> list[object]:
        return [self.call("cuMemAlloc_v2", size)[1] for _ in range(count)]

    def _churn_once(self, size: int) -> None:
        address = ctypes.c_uint64()
        if self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0:
            self.cuda.cuMemFree_v2(address)

    def _churn(self, size: int) -> list[object]:
        while True:
            self._churn_once(size)

    def _threads(self, count: int, rounds: int, size: int) -> list[object]:
        context = ctypes.c_uint64(self.call("cuCtxGetCurrent")[1])

        def work() -> None:
            self.cuda.cuCtxSetCurrent(context)
            for _ in range(rounds):
                self._churn_once(size)

        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self._nvml(0)
        return [0]

    def _exec(self) -> list[object]:
        os.execvp("cat", ["cat"])  # noqa: S606 - exec is what is tried

    def _open(self, path: str) -> list[object]:
        return [0, os.open(path, os.O_RDWR)]

    def _give(self, path: str, descriptor: int) -> list[object]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen()
            with listener.accept()[0] as taker:
                socket.send_fds(taker, [b"-"], [descriptor])
        Path(path).unlink()
        return [0]

    def _take(self, path: str) -> list[object]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as giver:
            while giver.connect_ex(path) != 0:
                os.sched_yield()
            return [0, socket.recv_fds(giver, 1, 1)[1][0]]

    def _close(self, descriptor: int) -> list[object]:
        os.close(descriptor)
        return [0]

    def _read(self, address: int, size: int) -> list[object]:
        buffer = ctypes.create_string_buffer(size)
        result = self.cuda.cuMemcpyDtoH_v2(buffer, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return [result, buffer.raw.hex()]

    def _write(self, address: int, text: str) -> list[object]:
        content = bytes.fromhex(text)
        return [self.cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address), content, ctypes.c_size_t(len(content)))]

    def _launch(self, function: int, stream: int, *arguments: int) -> list[object]:
        values = [ctypes.c_uint64(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        shape = [ctypes.c_uint(1)] * 6
        launch = self.cuda.cuLaunchKernel
        return [launch(ctypes.c_uint64(function), *shape, 0, ctypes.c_uint64(stream), pointers, None)]

    def _thread(self, mode: int, *call: object) -> list[object]:
        context = ctypes.c_uint64(self.call("cuCtxGetCurrent")[1])
        answers: list[list[object]] = []

        def work() -> None:
            self.cuda.cuCtxSetCurrent(context)
            self.cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(mode)))
            answers.append(self.call(*call))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return answers[0]

    def _begin(self, *call: object) -> list[object]:
        context = ctypes.c_uint64(self.call("cuCtxGetCurrent")[1])
        self.answers: list[list[object]] = []

        def work() -> None:
            self.cuda.cuCtxSetCurrent(context)
            self.answers.append(self.call(*call))

        self.begun = threading.Thread(target=work)
        self.begun.start()
        return [0]

    def _pending(self) -> list[object]:
        return [0, int(self.begun.is_alive())]

    def _finish(self) -> list[object]:
        self.begun.join()
        return self.answers[0]

    def _share(self, path: str) -> list[object]:
        with Path(path).open("r+b") as file:
            self.shared = mmap.mmap(file.fileno(), 0)
        return [0, ctypes.addressof(ctypes.c_char.from_buffer(self.shared))]

    def _host_function(self, stream: int) -> list[object]:
        word = ctypes.c_uint32()
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda at: setattr(ctypes.c_uint32.from_address(at), "value", 1))
        self.kept = (word, call)
        result = self.cuda.cuLaunchHostFunc(ctypes.c_uint64(stream), call, ctypes.byref(word))
        return [result, ctypes.addressof(word)]

    def _peek(self, address: int) -> list[object]:
        return [0, ctypes.c_uint32.from_address(address).value]

    def _poke(self, address: int, value: int) -> list[object]:
        ctypes.c_uint32.from_address(address).value = value
        return [0]

    def _reload(self) -> list[object]:
        _ctypes.dlclose(self.cuda._handle)
        self.cuda = ctypes.CDLL(str(self.directory / "libcuda.so.1"))
        return [0]

    def _address(self, symbol: str) -> list[object]:
        return [0, ctypes.cast(getattr(self.cuda, symbol), ctypes.c_void_p).value]

    def _nvml(self, index: int) -> list[object]:
        import pynvml  # noqa: PLC0415 - loads the library, which most processes should not

        ctypes.CDLL(str(self.directory / "libnvidia-ml.so.1"), ctypes.RTLD_GLOBAL)
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        used = pynvml.nvmlDeviceGetMemoryInfo(device).used
        pynvml.nvmlShutdown()
        return [0, used, {process.pid: process.usedGpuMemory for process in processes}]


def main() -> None:
    process = Process(Path(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(process.call(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
