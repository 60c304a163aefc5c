"""What the doctor makes of a CDI specification on the host."""

import json
from pathlib import Path

from convgpu.cli.setup.cdi_file import NAME, judge, read, wanted
from convgpu.cli.terminal.findings import Finding
from convgpu.protocol.records import Device, Devices
from convgpu.runtime.edits import Host

HOST = Host("/bin/convgpu-runtime", "/d", simulated=False)
AGAIN = "Write it again: sudo convgpu install cdi"


def devices(gib: int) -> Devices:
    size = gib << 30
    card = Device(uuid="GPU-a", index=0, name="card", total=size, capacity=size, granted=0, used=0, settling=0)
    return Devices(devices=(card,), policy="fifo")


def test_without_a_file_nothing_is_said(tmp_path: Path) -> None:
    assert judge([str(tmp_path), str(tmp_path / "none")], wanted(HOST, devices(16))) == []


def test_a_file_is_compared_with_plugin_and_gpus(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_text(json.dumps(wanted(HOST, devices(16))))

    def found(expected: dict[str, object]) -> list[Finding]:
        return judge([str(tmp_path)], expected)

    assert found(wanted(HOST, devices(16))) == [Finding("CDI", "ok", "--device convgpu.io/memory=SIZE: up to 16g")]
    other = f"{file} lists other sizes than these GPUs have"
    assert found(wanted(HOST, devices(24))) == [Finding("CDI", "warn", other, AGAIN)]
    moved = Host("/bin/convgpu-runtime", "/elsewhere", simulated=False)
    stale = f"{file} is that of another plugin or program: containers of its devices do not start"
    assert found(wanted(moved, devices(16))) == [Finding("CDI", "fail", stale, AGAIN)]


def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / NAME
    for content in ("", "[]", '{"kind": "nvidia.com/gpu"}', "\0"):
        file.write_text(content)
        assert read(file) is None
    assert judge([str(tmp_path)], wanted(HOST, devices(16))) == []
