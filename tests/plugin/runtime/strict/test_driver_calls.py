"""The filter of calls of a container without a GPU: which requests of ioctl(2) it may make."""

import pytest
from seccomp_rules import ALLOW, ERRNO, passes

from convgpu.runtime.strict.driver_calls import without_driver_calls

ENGINES = {"defaultAction": ERRNO, "syscalls": [{"names": ["read", "ioctl"], "action": ALLOW}]}
# Of each container, by the Engine's default: to make nodes of all devices, to use some.
DEFAULTS = [
    {"allow": False, "access": "rwm"},
    {"allow": True, "type": "c", "access": "m"},
    {"allow": True, "type": "b", "access": "m"},
    {"allow": True, "type": "c", "major": 136, "minor": -1, "access": "rwm"},
]
# NV_ESC_RM_ALLOC, NV_ESC_RM_FREE, NV_ESC_REGISTER_FD, NV_ESC_CARD_INFO; the second one with more digits in front.
DRIVER = [0xC030462B, 0xC0104629, 1 << 32 | 0xC0104629, 0xC00446C9, 0xC00046C8]
# UVM_INITIALIZE, UVM_DEINITIALIZE, UVM_REGISTER_GPU, UVM_MIGRATE, UVM_MM_INITIALIZE.
MANAGED = [0x30000001, 0x30000002, 37, 51, 75]
SCREEN = [0x4600, 0x4601]  # FBIOGET_VSCREENINFO, FBIOPUT_VSCREENINFO
# DRM_IOCTL_VERSION, DRM_IOCTL_MODE_CREATE_DUMB, DRM_IOCTL_NVIDIA_GEM_ALLOC_NVKMS_MEMORY.
DRAWING = [0xC0406400, 0xC02064B2, 0xC018644B]
# TCGETS, FIONREAD, FIONBIO, SIOCGIFCONF, BLKGETSIZE64, FS_IOC_GETFLAGS, RTC_RD_TIME, TUNSETIFF, FIBMAP, FIGETBSZ,
# KVM_RUN, LOOP_SET_FD, FICLONE, USBDEVFS_RESET, two requests of type 0 with a direction, RNDGETENTCNT.
OTHERS = [
    *(0x5401, 0x541B, 0x5421, 0x8912, 0x80081272, 0x80086601, 0x80247009, 0x400454CA, 1, 2, 0xAE80, 0x4C00),
    *(0x40049409, 0x5514, 0x80080004, 0x40080004, 0x80045200),
]


def refused(rules, requests):
    config = {"linux": {"seccomp": ENGINES, "resources": {"devices": [*DEFAULTS, *rules]}}}
    found = without_driver_calls(config)["linux"]["seccomp"]
    assert passes(found, "read")
    return [request for request in requests if not passes(found, "ioctl", 3, request, 0)]


def test_a_container_without_a_gpu_calls_no_gpus_driver():
    everything = [*DRIVER, *MANAGED, *SCREEN, *DRAWING]
    assert refused([], [*everything, *OTHERS]) == everything


def test_every_other_type_of_request_passes():
    requests = [direction << 30 | 8 << 16 | kind << 8 | 7 for kind in range(256) for direction in range(4)]
    told = {(request >> 8 & 0xFF, request >> 30) for request in refused([], requests)}
    assert told == {(ord(kind), direction) for kind in "Fd" for direction in range(4)} | {(0, 0)}


@pytest.mark.parametrize(
    ("rule", "passed"),
    [
        ({"type": "c", "major": 29, "access": "rw"}, [*DRIVER, *SCREEN]),
        ({"type": "c", "major": 226, "minor": 128}, DRAWING),
        ({"type": "c", "major": 226, "access": "m"}, []),
        ({"type": "b", "major": 226}, []),
    ],
)
def test_who_may_open_a_screen_or_a_gpu_of_others_keeps_its_requests(rule, passed):
    everything = [*DRIVER, *MANAGED, *SCREEN, *DRAWING]
    assert refused([{"allow": True, **rule}], everything) == [each for each in everything if each not in passed]


@pytest.mark.parametrize("seccomp", [None, {"defaultAction": ALLOW}])
def test_a_container_without_a_filter_stays_as_it_is(seccomp):
    assert without_driver_calls({"linux": {"seccomp": seccomp}}) == {"linux": {"seccomp": seccomp}}


def test_a_filter_permits_no_more_than_before():
    narrow = {"defaultAction": ERRNO, "syscalls": [{"names": ["ioctl"], "action": ALLOW, "args": [{"index": 1}]}]}
    found = without_driver_calls({"linux": {"seccomp": narrow}})["linux"]["seccomp"]
    assert found == {"defaultAction": ERRNO, "syscalls": []}
