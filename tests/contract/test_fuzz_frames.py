"""A fixed short part of what `make fuzz` does for long with the scheduler's readers of frames and pages."""

from fuzz_frames import FRAMES, fuzz
from rounds import rounds

from convgpu.protocol.messages import KIND_OF

COUNT = rounds(1_000_000, few=20_000)


def test_no_kind_of_frame_is_left_out() -> None:
    assert {type(frame) for frame in FRAMES} == set(KIND_OF)


def test_frames_and_pages_that_no_honest_process_makes() -> None:
    understood, refused = fuzz(COUNT, seed=1)
    assert understood > COUNT // 10
    assert refused > COUNT // 10
