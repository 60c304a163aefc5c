"""The runtime's edits of a bundle, and the CDI specification."""

import copy
from pathlib import Path
from typing import Any

import pytest

from convgpu.runtime.__main__ import _may_need_limit, bundle_of, is_plugin, split
from convgpu.runtime.cdi import names, specification
from convgpu.runtime.devices import GpuNumbers, Source
from convgpu.runtime.edits import Host, NoLimit, inject_limit, injected_hooks, injected_mounts, uses_gpu, volume_options
from convgpu.runtime.scheduler_client import NoScheduler, find_directory

CARD = Host("/bin/convgpu-runtime", "/d", simulated=False)
FAKE = Host("/bin/convgpu-runtime", "/d", simulated=True)
PLAIN: dict[str, Any] = {
    "process": {"args": ["true"], "env": ["PATH=/bin", "LD_PRELOAD=/mine.so"]},
    "root": {"path": "/r"},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
    "hooks": {"prestart": [{"path": "/bin/libnetwork-setkey"}]},
}


def container(*environment: str, **changes: Any) -> dict[str, Any]:
    config = copy.deepcopy(PLAIN) | changes
    config["process"]["env"] += environment
    return config


def test_a_container_without_gpu_and_limit_is_left_alone() -> None:
    for config in (container(), container("NVIDIA_VISIBLE_DEVICES=void"), container("CONVGPU_MEMORY="), {}):
        assert inject_limit(config, CARD, "2g") is None


def test_a_container_with_a_volume_is_left_alone() -> None:
    volume = {"destination": "/run/convgpu/", "type": "bind", "source": "/d/volumes/0123456789abcdef"}
    assert inject_limit(container("CONVGPU_MEMORY=1g", mounts=[volume]), CARD, "2g") is None


def test_a_volume_elsewhere_has_the_only_limit_of_a_container_without_a_gpu() -> None:
    """Nobody counts a second one; with a GPU authorization refuses it."""
    for source in ("/d/volumes/0123456789abcdef", "/d/containers/0123456789abcdef", "/d/volumes/0123456789abcdef/x"):
        mounts = [{"destination": "/vol", "type": "bind", "source": source}]
        assert inject_limit(container("CONVGPU_MEMORY=1g", mounts=mounts), CARD, "2g") is None
        named = container("CONVGPU_MEMORY=1g", "NVIDIA_VISIBLE_DEVICES=all", mounts=mounts)
        assert inject_limit(named, CARD, "2g") is not None
    for source in ("/d/volumes/0123456789abcdef0", "/e/volumes/0123456789abcdef", "/d/driver"):
        mounts = [{"destination": "/vol", "type": "bind", "source": source}]
        assert inject_limit(container("CONVGPU_MEMORY=1g", mounts=mounts), CARD, "2g") is not None


def test_a_container_with_something_else_in_the_volumes_place_is_refused() -> None:
    for place in ({"type": "tmpfs", "source": "tmpfs"}, {"type": "bind", "source": "/data"}, {"type": "tmpfs"}):
        mounted = [{"destination": "/run/convgpu", **place}]
        with pytest.raises(NoLimit, match="mount it elsewhere"):
            inject_limit(container("NVIDIA_VISIBLE_DEVICES=all", mounts=mounted), CARD, "2g")
        assert inject_limit(container(mounts=mounted), CARD, "2g") is None


def test_a_container_with_a_limit_gets_all_and_loses_nothing() -> None:
    config = container("CONVGPU_MEMORY=1g")
    before = copy.deepcopy(config)
    assert inject_limit(config, CARD, None) == before | {
        "process": {
            "args": ["true"],
            "env": ["PATH=/bin", "CONVGPU_MEMORY=1g", "LD_PRELOAD=/run/convgpu/libconvgpu.so:/mine.so"],
        },
        "mounts": [*before["mounts"], *injected_mounts(CARD)],
        "hooks": before["hooks"] | {stage: [hook] for stage, hook in injected_hooks(CARD).items()},
    }
    assert config == before


def test_a_container_with_a_gpu_gets_the_default_and_without_one_is_refused() -> None:
    config = container("NVIDIA_VISIBLE_DEVICES=all")
    edited = inject_limit(config, FAKE, "2g")
    assert edited is not None
    assert edited["process"]["env"][-3:] == [
        "CONVGPU_MEMORY=2g",
        "LD_PRELOAD=/run/convgpu/libconvgpu.so:/mine.so",
        "LD_LIBRARY_PATH=/run/convgpu/driver",
    ]
    with pytest.raises(NoLimit, match=r"-e CONVGPU_MEMORY=2g.*--convgpu-memory=2g"):
        inject_limit(config, CARD, None)


def test_a_preload_file_of_the_user_stands() -> None:
    theirs = {"destination": "/etc/ld.so.preload", "type": "bind", "source": "/mine"}
    edited = inject_limit(container("CONVGPU_MEMORY=1g", mounts=[theirs]), CARD, None)
    assert edited is not None
    assert [mount["destination"] for mount in edited["mounts"]] == ["/etc/ld.so.preload", "/run/convgpu"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"linux": {"devices": [{"path": "/dev/nvidia0"}]}}, True),
        ({"linux": {"devices": [{"path": "/dev/nvidiactl"}]}}, True),
        ({"linux": {"devices": [{"path": "/dev/x", "type": "c", "major": 195, "minor": 0}]}}, True),
        ({"linux": {"devices": [{"path": "/dev/x", "type": "b", "major": 195, "minor": 0}]}}, False),
        ({"linux": {"resources": {"devices": [{"allow": True, "type": "c", "major": 195, "access": "rwm"}]}}}, True),
        ({"linux": {"resources": {"devices": [{"allow": False, "type": "c", "major": 195}]}}}, False),
        ({"linux": {"devices": [{"path": "/dev/fuse"}, {"path": "/dev/nvme0"}]}}, False),
        # Authorization takes each of NVIDIA's nodes for a GPU, and relies on the injected limit.
        ({"linux": {"devices": [{"path": "/dev/fuse"}, {"path": "/dev/nvidia-caps"}]}}, True),
        ({"hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}}, True),
        ({"linux": None, "hooks": {"prestart": None}}, False),
    ],
)
def test_a_gpu_is_seen_by_its_device_or_its_hook(changes: dict[str, Any], expected: bool) -> None:
    assert uses_gpu(container(**changes), CARD) is expected


def rule(**fields: Any) -> dict[str, Any]:
    return {"linux": {"resources": {"devices": [{"allow": False, "access": "rwm"}, {"allow": True, **fields}]}}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (rule(type="c", major=-1, minor=-1, access="rwm"), True),
        (rule(type="c", access="r"), True),
        (rule(type="a", access="rwm"), True),
        (rule(access="rwm"), True),
        (rule(), True),
        (rule(type="c", major=195, minor=-1, access="w"), True),
        (rule(type="c", major=510, minor=0, access="rwm"), True),
        (rule(type="c", major=226, minor=128, access="rwm"), True),
        (rule(type="c", major=226, access="rwm"), True),
        (rule(type="c", major=226, minor=129, access="rwm"), False),
        (rule(type="c", access="m"), False),
        (rule(type="b", access="rwm"), False),
        (rule(type="c", major=1, minor=3, access="rwm"), False),
        ({"linux": {"devices": [{"path": "/dev/x", "type": "c", "major": 510, "minor": 0}]}}, True),
        ({"linux": {"devices": [{"path": "/dev/x", "type": "c", "major": 226, "minor": 128}]}}, True),
        ({"linux": {"devices": [{"path": "/dev/dri/renderD129", "type": "c", "major": 226, "minor": 129}]}}, False),
        ({"linux": {"devices": [{"path": "/dev/nvidia-uvm", "type": "c", "major": 7, "minor": 0}]}}, True),
        ({"mounts": [{"destination": "/var/run/nvidia-container-devices/all"}]}, True),
        ({"annotations": {"nvidia.cdi.k8s.io/x": "nvidia.com/gpu=0"}}, True),
    ],
)
def test_a_gpu_is_seen_by_its_numbers(tmp_path: Path, changes: dict[str, Any], expected: bool) -> None:
    (tmp_path / "devices").write_text("Character devices:\n  1 mem\n195 nvidia\n510 nvidia-uvm\n226 drm\n")
    for minor, vendor in ((128, "0x10de"), (129, "0x8086")):
        for link in (f"class/drm/renderD{minor}", f"dev/char/226:{minor}"):
            (tmp_path / link / "device").mkdir(parents=True)
            (tmp_path / link / "device/vendor").write_text(f"{vendor}\n")
    host = Host("", "", simulated=False, is_gpu=GpuNumbers(tmp_path, tmp_path / "devices").has)
    assert uses_gpu(container(**changes), host) is expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (["DOCKER_RESOURCE_GPU=GPU-1"], True),
        (["DOCKER_RESOURCE_NVIDIA-GPU=1"], True),
        (["DOCKER_RESOURCE_GPUMEM=2048"], False),
        (["CUDA_VERSION=7"], True),
        (["CUDA_VERSION=12", "NVIDIA_REQUIRE_CUDA=x"], False),
        (["CUDA_VERSION=7", "NVIDIA_VISIBLE_DEVICES=void"], False),
    ],
)
def test_a_gpu_is_asked_for_by_other_variables(environment: list[str], expected: bool) -> None:
    assert uses_gpu(container(*environment), CARD) is expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (["CONVGPU_MEMORY=2g"], {"memory": "2g"}),
        (["CONVGPU_MEMORY=1g", "CONVGPU_MEMORY=2g", "CONVGPU_WAIT=30s"], {"memory": "2g", "wait": "30s"}),
        (["CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=0,1"], {"memory": "2g", "gpus": "0,1"}),
        (["CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=all", "CONVGPU_PRIORITY=3"], {"memory": "2g", "priority": "3"}),
        (["CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=0", "CONVGPU_GPUS=1"], {"memory": "2g", "gpus": "1"}),
        (["CONVGPU_MEMORY=GPU-a:2g", "NVIDIA_VISIBLE_DEVICES=0"], {"memory": "GPU-a:2g"}),
        (["CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=GPU-a, 1"], {"memory": "2g", "gpus": "GPU-a, 1"}),
        (["CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0"], {"memory": "2g"}),
        (["CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices"], {"memory": "2g"}),
    ],
)
def test_variables_stand_for_the_options_of_a_volume(environment: list[str], expected: dict[str, str]) -> None:
    assert volume_options(container(*environment)) == expected


def test_the_words_of_a_runtime_are_passed_on_but_ours() -> None:
    words = ["--convgpu-memory=2g", "--root", "/run/runc", "create", "--bundle", "/b", "--pid-file", "/p", "id"]
    own, rest = split(words)
    assert (own, rest) == ({"memory": "2g"}, words[1:])
    assert bundle_of(rest) == "/b"
    assert bundle_of(["create", "--bundle=/b", "id"]) == "/b"
    assert bundle_of(["run", "-b", "/b", "id"]) == "/b"
    assert bundle_of(["create", "id"]) == str(Path.cwd())
    assert bundle_of(["--root", "/r", "delete", "id"]) is None


def test_sizes_of_cdi_go_up_to_the_largest_device() -> None:
    assert names(300 << 20) == ("128MiB", "128m", "256MiB", "256m")
    assert names(1 << 30)[-4:] == ("1024MiB", "1024m", "1GiB", "1g")
    assert [name for name in names((10 << 30) + 1) if name.endswith("g")] == [f"{gib}g" for gib in range(1, 11)]
    assert {"1536m", "7680MiB"} < set(names(16 << 30))
    assert not {"8704m", "17g"} & set(names(16 << 30))
    assert names(1 << 20) == ()


def test_a_cdi_device_is_its_limit_and_all_have_the_rest_in_common() -> None:
    place, file = injected_mounts(CARD)
    assert specification(CARD, 128 << 20) == {
        "cdiVersion": "0.6.0",
        "kind": "convgpu.io/memory",
        "devices": [
            {"name": name, "containerEdits": {"env": [f"CONVGPU_MEMORY={name}"]}} for name in ("128MiB", "128m")
        ],
        "containerEdits": {
            "env": ["LD_PRELOAD=/run/convgpu/libconvgpu.so"],
            "mounts": [
                {"hostPath": "tmpfs", "containerPath": "/run/convgpu", "type": "tmpfs", "options": place["options"]},
                {
                    "hostPath": "/d/ld.so.preload",
                    "containerPath": "/etc/ld.so.preload",
                    "type": "bind",
                    "options": file["options"],
                },
            ],
            "hooks": [
                {
                    "hookName": name,
                    "path": "/bin/convgpu-runtime",
                    "args": ["convgpu-runtime", "hook", what, "--convgpu-directory=/d"],
                    "timeout": timeout,
                }
                for name, what, timeout in (("createRuntime", "begin", 30), ("poststop", "end", 15))
            ],
        },
    }


def test_a_bundle_that_a_cdi_device_of_ours_edited_stays_as_it_is() -> None:
    """Strict rules prescribe the runtime; it took the device's own mount for a stranger's, and nothing started."""
    edited = container("CONVGPU_MEMORY=2g", mounts=injected_mounts(CARD))
    hooks = {stage: [hook] for stage, hook in injected_hooks(CARD).items()}
    assert inject_limit(edited | {"hooks": hooks}, CARD, None) is None
    assert _may_need_limit(edited | {"hooks": hooks}, Source)  # so where its folders lead is judged
    with pytest.raises(NoLimit, match="something else is mounted"):
        inject_limit(edited | {"hooks": {"createRuntime": [{"path": "/x", "args": ["x", "hook"]}]}}, CARD, None)


def test_the_one_plugin_of_the_host_is_found(tmp_path: Path) -> None:
    with pytest.raises(NoScheduler, match="no ConvGPU plugin below"):
        find_directory(tmp_path)
    for name in ("a", "b"):
        assert len(list(tmp_path.iterdir())) == (name == "b")
        (folder := tmp_path / name / "propagated-mount").mkdir(parents=True)
        (folder / "admin.sock").touch()
        if name == "a":
            assert find_directory(tmp_path) == folder
    with pytest.raises(NoScheduler, match="more than one ConvGPU plugin"):
        find_directory(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--root", "/run/docker/runtime-runc/plugins.moby", "--log", "l", "create", "--bundle", "/b", "id"], True),
        (
            ["--root", "/run/docker/runtime-runc/moby", "--log", "l", "create", "--bundle", "/b/plugins.moby", "id"],
            False,
        ),
        (["--root", "/plugins.moby/x", "create", "--root", "/plugins.moby", "id"], False),
        (["create", "plugins.moby"], False),
        (["--root"], False),
    ],
)
def test_the_engines_plugins_are_known_by_the_directory_of_their_states(arguments, expected):
    assert is_plugin(arguments) is expected
