"""Images for launches: PTX and the cubins that the driver makes of it; for the simulated driver, images of its kind.

A cubin is made by the driver's own linker, so no compiler is needed.
"""

import ctypes
import struct
from ctypes import byref, c_size_t, c_void_p

from calls import Cuda

INPUT_PTX = 1
GIB = 1 << 30
HEAD = ".version 7.0\n.target sm_70\n.address_size 64\n"
STACK = """
.visible .entry %s(.param .u64 out, .param .u32 at) {
    .local .align 16 .b8 room[%d];
    .reg .b64 %%rd<6>;
    .reg .b32 %%r<6>;
    ld.param.u64 %%rd1, [out];
    ld.param.u32 %%r1, [at];
    mov.u64 %%rd2, room;
    cvt.u64.u32 %%rd3, %%r1;
    add.u64 %%rd4, %%rd2, %%rd3;
    mov.u32 %%r2, %%tid.x;
    st.local.u32 [%%rd4], %%r2;
    ld.local.u32 %%r3, [%%rd4+64];
    st.global.u32 [%%rd1], %%r3;
    ret;
}
"""
HEAP = """
.extern .func (.param .b64 made) malloc (.param .b64 size);
.visible .entry heap(.param .u64 out, .param .u32 at) {
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    {
        .param .b64 size;
        .param .b64 made;
        st.param.b64 [size], 64;
        call (made), malloc, (size);
        ld.param.b64 %rd2, [made];
    }
    st.global.u64 [%rd1], %rd2;
    ret;
}
"""
PRINT = """
.extern .func (.param .b32 done) vprintf (.param .b64 format, .param .b64 values);
.global .align 1 .b8 text[2] = {10, 0};
.visible .entry print(.param .u64 out, .param .u32 at) {
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    mov.u64 %rd1, text;
    cvta.global.u64 %rd2, %rd1;
    {
        .param .b64 format;
        .param .b64 values;
        .param .b32 done;
        st.param.b64 [format], %rd2;
        st.param.b64 [values], 0;
        call (done), vprintf, (format, values);
        ld.param.b32 %r1, [done];
    }
    ret;
}
"""
ASSERT = """
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 text[2] = {65, 0};
.visible .entry asserts(.param .u64 out, .param .u32 at) {
    .reg .b64 %rd<3>;
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [at];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    mov.u64 %rd1, text;
    cvta.global.u64 %rd2, %rd1;
    {
        .param .b64 a;
        .param .b64 b;
        .param .b32 c;
        .param .b64 d;
        .param .b64 e;
        st.param.b64 [a], %rd2;
        st.param.b64 [b], %rd2;
        st.param.b32 [c], 1;
        st.param.b64 [d], %rd2;
        st.param.b64 [e], 1;
        call __assertfail, (a, b, c, d, e);
    }
DONE:
    ret;
}
"""
CALL = "__cuda_syscall_cnpv2"
"""What the driver gives to kernels that launch kernels begins so; cudadevrt calls it (CUDA 12 and later)."""
LAUNCH = """
.extern .func (.param .b64 made) %(call)sGetParameterBufferV2(
    .param .b64 kernel, .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared);
.extern .func (.param .b32 done) %(call)sLaunchDeviceV2(.param .b64 buffer, .param .b64 stream);
.visible .entry child(.param .u64 out) { ret; }
.visible .entry parent(.param .u64 out, .param .u32 at) {
    .reg .b64 %%rd<3>;
    .reg .b32 %%r<2>;
    mov.u64 %%rd1, child;
    {
        .param .b64 kernel;
        .param .align 4 .b8 grid[12];
        .param .align 4 .b8 block[12];
        .param .b32 shared;
        .param .b64 made;
        st.param.b64 [kernel], %%rd1;
        st.param.b32 [grid], 1;
        st.param.b32 [grid+4], 1;
        st.param.b32 [grid+8], 1;
        st.param.b32 [block], 1;
        st.param.b32 [block+4], 1;
        st.param.b32 [block+8], 1;
        st.param.b32 [shared], 0;
        call.uni (made), %(call)sGetParameterBufferV2, (kernel, grid, block, shared);
        ld.param.b64 %%rd2, [made];
    }
    {
        .param .b64 buffer;
        .param .b64 stream;
        .param .b32 done;
        st.param.b64 [buffer], %%rd2;
        st.param.b64 [stream], 4;
        call.uni (done), %(call)sLaunchDeviceV2, (buffer, stream);
        ld.param.b32 %%r1, [done];
    }
    ret;
}
"""
VARIABLE = ".visible .global .align 16 .b8 big%s[%d];\n"
FIRST = """
.visible .entry first(.param .u64 out, .param .u32 at) {
    .reg .b64 %rd<3>;
    mov.u64 %rd1, big;
    ld.param.u64 %rd2, [out];
    st.global.u64 [%rd2], %rd1;
    ret;
}
"""

WIDE = 30000


def wide(simulated: bool) -> tuple[bytes, bytes]:
    """Return an image whose kernel has `WIDE` bytes of parameters, as CUDA 12.1 and later drivers take."""
    head = HEAD.replace("7.0", "8.1")
    text = (
        f"parameters={WIDE}" if simulated else head + f".visible .entry wide(.param .align 4 .b8 all[{WIDE}]) {{ret;}}"
    )
    return text.encode() + b"\0", b"wide"


def stack(size: int, simulated: bool) -> tuple[bytes, bytes]:
    """Return an image whose kernel needs `size` bytes of local memory a thread, and the kernel's name."""
    text = f"variables=0 code=0 local={size}" if simulated else HEAD + STACK % ("stack", size)
    return text.encode() + b"\0", b"stack"


def stacks(size: int) -> bytes:
    """Return PTX with such a kernel, and one named "small" that needs 16 bytes."""
    return (HEAD + STACK % ("stack", size) + STACK % ("small", 16)).encode() + b"\0"


def heap(simulated: bool) -> tuple[bytes, bytes]:
    """Return an image whose kernel calls malloc."""
    return ("// malloc variables=0 code=0 heap=1" if simulated else HEAD + HEAP).encode() + b"\0", b"heap"


def printing(simulated: bool) -> tuple[bytes, bytes]:
    """Return an image whose kernel prints."""
    return ("// vprintf variables=0 code=0 printf=1" if simulated else HEAD + PRINT).encode() + b"\0", b"print"


def asserting(simulated: bool) -> tuple[bytes, bytes]:
    """Return an image whose kernel asserts something, which is so."""
    return ("// __assertfail variables=0 code=0" if simulated else HEAD + ASSERT).encode() + b"\0", b"asserts"


def launching(simulated: bool) -> tuple[bytes, bytes]:
    """Return PTX whose kernel launches another."""
    head = HEAD.replace("7.0", "8.0")
    text = f"// {CALL} variables=0 code=0" if simulated else head + LAUNCH % {"call": CALL}
    return text.encode() + b"\0", b"parent"


CALLING = {"malloc": heap, "vprintf": printing, "__assertfail": asserting, CALL: launching}
"""Images by what their kernels call of the driver's own code."""


def variables(size: int, simulated: bool) -> tuple[bytes, bytes]:
    """Return PTX with variables of `size` bytes: below 4 GiB, where ptxas begins again at 0 (12.9 and 13.5)."""
    if simulated:
        return f".global .b8 big[{size}]; // variables={size}".encode() + b"\0", b"first"
    sizes = [min(GIB, size - begin) for begin in range(0, size, GIB)]
    text = HEAD + "".join(VARIABLE % (row or "", part) for row, part in enumerate(sizes)) + FIRST
    return text.encode() + b"\0", b"first"


def cubin(size: int, cuda: Cuda) -> tuple[bytes, bytes]:
    """Return the same as a cubin."""
    if cuda.simulated:
        return _made_up(size), b"first"
    text, name = variables(size, simulated=False)
    state, made, length = c_void_p(), c_void_p(), c_size_t()
    cuda.must("cuLinkCreate_v2", 0, None, None, byref(state))
    cuda.must("cuLinkAddData_v2", state, INPUT_PTX, text, c_size_t(len(text)), b"variables", 0, None, None)
    cuda.must("cuLinkComplete", state, byref(made), byref(length))
    image = ctypes.string_at(made.value or 0, length.value)
    cuda.must("cuLinkDestroy", state)
    return image, name


def _made_up(size: int) -> bytes:
    """Return an ELF file with a section of variables, as the simulated driver reads it."""
    names = b"\0.nv.global\0.shstrtab\0"
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 190, 1, 0, 0, 64, 0, 64, 0, 0, 64, 3, 2)
    sections = struct.pack("<64x")
    sections += struct.pack("<IIQQQQIIQQ", 1, 8, 3, 0, 256, size, 0, 0, 16, 0)
    sections += struct.pack("<IIQQQQIIQQ", 12, 3, 0, 0, 256, len(names), 0, 0, 1, 0)
    return header + sections + names


def kernel(cuda: Cuda, image: tuple[bytes, bytes], library: bool) -> c_void_p:
    """Load an image, and return its kernel."""
    result, owner = cuda.load(image[0], library)
    assert result == 0, f"an image that takes nothing is refused: {result}"
    return cuda.function(owner, image[1], library)
