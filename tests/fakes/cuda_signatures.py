"""How cuda_process.py passes the arguments of each call.

One letter per parameter. In: i int, s size, p pointer or handle, t text, b address of bytes (given in hex; an empty
text is NULL), h 64 bytes by value (in hex), q address of a 64-bit number. Out: I int, S size, P pointer, U UUID, B 64
bytes (both in hex), R 144 bytes (in hex), T text of up to 64 bytes (followed by its length). Both:
X address of bytes (in hex).
"""

import ctypes

SIGNATURES = {
    "cuInit": "i",
    "cuDriverGetVersion": "I",
    "cuGetProcAddress": "tPis",
    "cuGetProcAddress_v2": "tPisI",
    "cuDeviceGetCount": "I",
    "cuDeviceGet": "Ii",
    "cuDeviceGetName": "Ti",
    "cuDeviceGetUuid": "Ui",
    "cuDeviceGetUuid_v2": "Ui",
    "cuDeviceGetAttribute": "Iii",
    "cuDeviceTotalMem": "Ii",
    "cuDeviceTotalMem_v2": "Si",
    "cuDevicePrimaryCtxRetain": "Pi",
    "cuDevicePrimaryCtxRelease_v2": "i",
    "cuDevicePrimaryCtxReset_v2": "i",
    "cuDevicePrimaryCtxGetState": "iII",
    "cuDevicePrimaryCtxSetFlags": "ii",
    "cuDevicePrimaryCtxSetFlags_v2": "ii",
    "cuCtxCreate_v2": "Pii",
    "cuCtxCreate_v3": "Ppiii",
    "cuCtxCreate_v4": "Ppii",
    "cuCtxDestroy_v2": "p",
    "cuCtxGetCurrent": "P",
    "cuCtxSetCurrent": "p",
    "cuCtxPushCurrent_v2": "p",
    "cuCtxPopCurrent_v2": "P",
    "cuCtxGetDevice": "I",
    "cuCtxSynchronize": "",
    "cuMemGetInfo_v2": "SS",
    "cuMemAlloc_v2": "Ps",
    "cuMemAllocPitch_v2": "PSssi",
    "cuMemAllocManaged": "Psi",
    "cuMemFree_v2": "p",
    "cuMemsetD8_v2": "pis",
    "cuStreamCreate": "Pi",
    "cuStreamDestroy_v2": "p",
    "cuStreamSynchronize": "p",
    "cuStreamSynchronize_ptsz": "p",
    "cuStreamQuery": "p",
    "cuMemAllocAsync": "Psp",
    "cuMemAllocAsync_ptsz": "Psp",
    "cuMemAllocFromPoolAsync": "Pspp",
    "cuMemAllocFromPoolAsync_ptsz": "Pspp",
    "cuMemFreeAsync": "pp",
    "cuMemFreeAsync_ptsz": "pp",
    "cuMemPoolCreate": "Pb",
    "cuMemPoolDestroy": "p",
    "cuMemPoolTrimTo": "ps",
    "cuMemPoolSetAttribute": "piq",
    "cuMemPoolGetAttribute": "piS",
    "cuDeviceGetDefaultMemPool": "Pi",
    "cuDeviceGetMemPool": "Pi",
    "cuDeviceSetMemPool": "ip",
    "cuMemGetDefaultMemPool": "Pbi",
    "cuMemGetMemPool": "Pbi",
    "cuMemSetMemPool": "bip",
    "cuMemGetAllocationGranularity": "Sbi",
    "cuMemCreate": "Psbs",
    "cuMemRelease": "p",
    "cuMemRetainAllocationHandle": "Pp",
    "cuMemExportToShareableHandle": "Ipis",
    "cuMemImportFromShareableHandle": "Ppi",
    "cuMemAddressReserve": "Pssps",
    "cuMemAddressFree": "ps",
    "cuMemMap": "pssps",
    "cuMemUnmap": "ps",
    "cuMemSetAccess": "psbs",
    "cuMemGetAccess": "Sbp",
    "cuArrayCreate": "Pb",
    "cuArrayCreate_v2": "Pb",
    "cuArray3DCreate": "Pb",
    "cuArray3DCreate_v2": "Pb",
    "cuArray3DGetDescriptor_v2": "Bp",
    "cuArrayDestroy": "p",
    "cuArrayGetMemoryRequirements": "Bpi",
    "cuMipmappedArrayCreate": "Pbi",
    "cuMipmappedArrayDestroy": "p",
    "cuMipmappedArrayGetLevel": "Ppi",
    "cuMipmappedArrayGetMemoryRequirements": "Bpi",
    "cuIpcGetMemHandle": "Bp",
    "cuIpcOpenMemHandle": "Phi",
    "cuIpcOpenMemHandle_v2": "Phi",
    "cuIpcCloseMemHandle": "p",
    "cuGraphCreate": "Pi",
    "cuGraphDestroy": "p",
    "cuGraphAddEmptyNode": "Pppi",
    "cuGraphAddMemAllocNode": "PppiX",
    "cuGraphAddMemFreeNode": "Pppip",
    "cuGraphMemFreeNodeGetParams": "pP",
    "cuGraphAddNode": "PppiX",
    "cuGraphAddNode_v2": "PpppiX",
    "cuGraphInstantiate": "Ppppi",
    "cuGraphInstantiate_v2": "Ppppi",
    "cuGraphInstantiateWithFlags": "Pps",
    "cuGraphInstantiateWithParams": "PpX",
    "cuGraphUpload": "pp",
    "cuGraphLaunch": "pp",
    "cuGraphLaunch_ptsz": "pp",
    "cuGraphExecDestroy": "p",
    "cuDeviceGetGraphMemAttribute": "iiS",
    "cuDeviceSetGraphMemAttribute": "iiq",
    "cuDeviceGraphMemTrim": "i",
    "cuStreamBeginCapture_v2": "pi",
    "cuStreamEndCapture": "pP",
    "cuStreamIsCapturing": "pI",
    "cuDeviceGetDevResource": "iRi",
    "cuDevResourceGenerateDesc": "Pbi",
    "cuGreenCtxCreate": "Ppii",
    "cuGreenCtxDestroy": "p",
    "cuCtxFromGreenCtx": "Pp",
    "cuGreenCtxStreamCreate": "Ppii",
    "cuStreamGetCtx": "pP",
    "cuStreamGetCtx_v2": "pPP",
    "cuStreamGetDevice": "pI",
    "cuMemAlloc": "Ii",
    "cuMemAllocPitch": "IIiii",
    "cuMemFree": "i",
    "cuMemGetInfo": "II",
    "cuMemGetAddressRange": "IIi",
    "cuMemGetAddressRange_v2": "PSp",
    "cuImportExternalMemory": "Pb",
    "cuDestroyExternalMemory": "p",
}


class Handle(ctypes.Structure):
    """A CUipcMemHandle, which is passed by value."""

    _fields_ = (("bytes", ctypes.c_char * 64),)


def _bytes(text: str) -> object:
    content = bytes.fromhex(text)
    return ctypes.create_string_buffer(content, len(content)) if content else None


def in_and_out(text: str) -> ctypes.Array:
    """Bytes that the call may change."""
    content = bytes.fromhex(text)
    return (ctypes.c_ubyte * len(content)).from_buffer_copy(content)


INPUTS = {
    "i": ctypes.c_int,
    "s": ctypes.c_size_t,
    "p": ctypes.c_uint64,
    "t": lambda text: text.encode(),
    "b": _bytes,
    "h": lambda text: Handle.from_buffer_copy(bytes.fromhex(text)),
    "q": lambda number: ctypes.byref(ctypes.c_uint64(number)),
}
OUTPUTS = {
    "I": ctypes.c_int,
    "S": ctypes.c_size_t,
    "P": ctypes.c_uint64,
    "U": ctypes.c_ubyte * 16,
    "B": ctypes.c_ubyte * 64,
    "R": ctypes.c_ubyte * 144,
    "T": ctypes.c_char * 64,
}
