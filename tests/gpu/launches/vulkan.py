"""Takes so many bytes by Vulkan, in a process that has a CUDA context behind the hook; stays until it is ended.

    vulkan.py BYTES

Uses Vulkan's loader (libvulkan.so.1), or NVIDIA's part alone, which its library for EGL is, too, and needs no X. Exit
status 77 without both, or where they show no GPU of NVIDIA. Numbers and structures are those of vulkan_core.h 1.0, the
part's interface that of vk_icd.h.
"""

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_char_p, c_float, c_uint32, c_uint64, c_void_p, pointer

from calls import Cuda

ABSENT = 77
LIBRARIES = {"libvulkan.so.1": "vkGetInstanceProcAddr", "libEGL_nvidia.so.0": "vk_icdGetInstanceProcAddr"}
VERSION = 5  # of the interface between loader and part
NVIDIA = 0x10DE
DEVICE_LOCAL = 1  # VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
PART = 1 << 29
INSTANCE, QUEUE, DEVICE, MEMORY = 1, 2, 3, 5  # VK_STRUCTURE_TYPE_..._CREATE_INFO, and _MEMORY_ALLOCATE_INFO


# What the structures begin with. (No base class: its padding would stay between it and the next field.)
HEAD = [("type", c_uint32), ("next", c_void_p), ("flags", c_uint32)]


class InstanceCreateInfo(ctypes.Structure):
    """VkInstanceCreateInfo."""

    _fields_ = [*HEAD, ("application", c_void_p), ("layers", c_uint32), ("layer_names", c_char_p)]
    _fields_ += [("extensions", c_uint32), ("extension_names", c_char_p)]


class QueueCreateInfo(ctypes.Structure):
    """VkDeviceQueueCreateInfo."""

    _fields_ = [*HEAD, ("family", c_uint32), ("count", c_uint32), ("priorities", ctypes.POINTER(c_float))]


class DeviceCreateInfo(ctypes.Structure):
    """VkDeviceCreateInfo."""

    _fields_ = [*HEAD, ("queue_count", c_uint32), ("queues", ctypes.POINTER(QueueCreateInfo))]
    _fields_ += [("layers", c_uint32), ("layer_names", c_char_p), ("extensions", c_uint32)]
    _fields_ += [("extension_names", c_char_p), ("features", c_void_p)]


class MemoryAllocateInfo(ctypes.Structure):
    """VkMemoryAllocateInfo."""

    _fields_ = [("type", c_uint32), ("next", c_void_p), ("size", c_uint64), ("memory_type", c_uint32)]


class MemoryType(ctypes.Structure):
    """VkMemoryType."""

    _fields_ = [("flags", c_uint32), ("heap", c_uint32)]


class MemoryHeap(ctypes.Structure):
    """VkMemoryHeap."""

    _fields_ = [("size", c_uint64), ("flags", c_uint32)]


class MemoryProperties(ctypes.Structure):
    """VkPhysicalDeviceMemoryProperties."""

    _fields_ = [("types", c_uint32), ("type", MemoryType * 32), ("heaps", c_uint32), ("heap", MemoryHeap * 16)]


class Vulkan:
    """The functions of a library; OSError if it is not there, or gives none."""

    def __init__(self, name: str) -> None:
        self.name, library = name, ctypes.CDLL(name)
        self._look_up = library[LIBRARIES[name]]
        self._look_up.restype = c_void_p
        self.instance = c_void_p()
        with suppress(AttributeError):
            library.vk_icdNegotiateLoaderICDInterfaceVersion(byref(c_uint32(VERSION)))
        if not self._look_up(None, b"vkCreateInstance"):
            raise OSError(name)

    def call(self, name: str, *arguments: object) -> int:
        """Return what a function returned."""
        address = self._look_up(self.instance, name.encode())
        function: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_int)(address)
        return function(*arguments)


def open_vulkan() -> Vulkan:
    """Return the first that has an instance."""
    for name in LIBRARIES:
        with suppress(OSError):
            vulkan, made = Vulkan(name), c_void_p()
            if vulkan.call("vkCreateInstance", byref(InstanceCreateInfo(INSTANCE)), None, byref(made)) == 0:
                vulkan.instance = made
                return vulkan
    sys.exit(ABSENT)


def physical_device(vulkan: Vulkan) -> c_void_p:
    """Return the first GPU of NVIDIA."""
    count = c_uint32(0)
    assert vulkan.call("vkEnumeratePhysicalDevices", vulkan.instance, byref(count), None) == 0
    handles = (c_void_p * max(count.value, 1))()
    assert vulkan.call("vkEnumeratePhysicalDevices", vulkan.instance, byref(count), handles) == 0
    for handle in handles[: count.value]:
        properties = (c_uint32 * 512)()  # VkPhysicalDeviceProperties: versions of API and driver, vendor, ...
        vulkan.call("vkGetPhysicalDeviceProperties", c_void_p(handle), properties)
        if properties[2] == NVIDIA:
            return c_void_p(handle)
    sys.exit(ABSENT)


def local_memory(vulkan: Vulkan, gpu: c_void_p) -> int:
    """Return the index of the type of memory that lies on the card, in its largest heap."""
    memory = MemoryProperties()
    vulkan.call("vkGetPhysicalDeviceMemoryProperties", gpu, byref(memory))
    local = [index for index in range(memory.types) if memory.type[index].flags & DEVICE_LOCAL]
    return max(local, key=lambda index: (memory.heap[memory.type[index].heap].size, -index))


def take(vulkan: Vulkan, size: int) -> None:
    """Make a device with a queue, and allocate memory on the card."""
    device, gpu = c_void_p(), physical_device(vulkan)
    queue = QueueCreateInfo(QUEUE, None, 0, 0, 1, pointer(c_float(1.0)))
    wanted = DeviceCreateInfo(DEVICE, None, 0, 1, pointer(queue))
    assert vulkan.call("vkCreateDevice", gpu, byref(wanted), None, byref(device)) == 0
    part = MemoryAllocateInfo(MEMORY, None, PART, local_memory(vulkan, gpu))
    for _part in range(size // PART):
        handle = c_uint64()
        status = vulkan.call("vkAllocateMemory", device, byref(part), None, byref(handle))
        assert status == 0, status


def main() -> None:
    """Take it, say so, and stay."""
    Cuda()
    vulkan = open_vulkan()
    take(vulkan, int(sys.argv[1]))
    print(vulkan.name, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
