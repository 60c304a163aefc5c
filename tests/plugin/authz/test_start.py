"""What is judged when a container starts, from the Engine's own view, and what else can undo a limit."""

import pytest
import strict_site
from engine_says import GPU, HOOK, OURS, inspected

from convgpu.authz.site.rules import parse_rules


@pytest.fixture(autouse=True)
def volume(harness):
    harness.scheduler.limits["mine"] = 2 << 30


def test_a_container_with_its_limit_starts(harness):
    assert harness.start(inspected(GPU)).rule == "limited"


def test_a_container_without_gpu_starts(harness):
    assert harness.start(inspected(env=[], mounts=[])).rule == "no-gpu"


def test_the_start_of_an_unknown_container_is_left_to_the_engine(harness):
    assert harness.judge(b"", "/containers/nobody/start").rule == "no-such-container"


def test_nothing_starts_while_the_engine_does_not_answer(harness):
    harness.engine.down = True
    verdict = harness.start(inspected())
    assert (verdict.allow, verdict.rule) == (False, "engine-unavailable")
    assert verdict.message.count("\n") <= 1


@pytest.mark.parametrize("uri", ["/containers/c/restart", "/v1.41/containers/c/%73tart", "/containers%2Fc/restart?t=1"])
def test_a_restart_is_a_start(harness, uri):
    harness.engine.containers["c"] = inspected({"Privileged": True})
    assert harness.judge(b"", uri).rule == "privileged"


@pytest.mark.parametrize("version", ["v1.23", "v01.23", "v1.9", "v1.23.9", "v0", "v", "vx", "v1", "v1.x"])
def test_a_start_by_an_old_api_is_refused(harness, version):
    assert harness.start(inspected(GPU), version=version).rule == "start-old-api"


@pytest.mark.parametrize("version", ["v1.24", "v01.024", "v1.41", "v1.100", "v2.0", "v" + "9" * 5000])
def test_a_start_by_a_newer_api_is_judged(harness, version):
    assert harness.start(inspected(GPU), version=version).rule == "limited"


UNDOING = {
    "no hook": ({}, [], [OURS], "hook-not-loaded"),
    "other first": ({}, ["LD_PRELOAD=/x.so:/run/convgpu/libconvgpu.so"], [OURS], "hook-not-loaded"),
    "removed": ({}, ["LD_PRELOAD"], [OURS], "hook-not-loaded"),
    "audit": ({}, [HOOK, "LD_AUDIT=/x"], [OURS], "hook-environment"),
    "socket": ({}, [HOOK, "CONVGPU_SOCKET=/x"], [OURS], "hook-environment"),
    "socket kept": ({}, [HOOK, "CONVGPU_SOCKET=/x", "CONVGPU_SOCKET"], [OURS], "hook-environment"),
    "injected": (
        {},
        [HOOK],
        [OURS, {"Type": "bind", "Source": "/srv", "Destination": "/run/convgpu/a"}],
        "hook-shadowed",
    ),
    "preload file": (
        {},
        [HOOK],
        [OURS, {"Type": "bind", "Source": "/s", "Destination": "/etc/ld.so.preload"}],
        "hook-shadowed",
    ),
    "libraries": ({}, [HOOK], [OURS, {"Type": "volume", "Name": "x", "Destination": "/usr/lib"}], "hook-shadowed"),
    "tmpfs": ({"Tmpfs": {"/run/convgpu/b": ""}}, [HOOK], [OURS], "hook-shadowed"),
    "ipc": ({"IpcMode": "host"}, [HOOK], [OURS], "gpu-isolation"),
    "users": ({"UsernsMode": "host"}, [HOOK], [OURS], "gpu-isolation"),
    "ptrace": ({"CapAdd": ["CAP_SYS_PTRACE"]}, [HOOK], [OURS], "gpu-isolation"),
    "seccomp": ({"SecurityOpt": ["seccomp=unconfined"]}, [HOOK], [OURS], "gpu-isolation"),
    "pid of another": ({"PidMode": "container:web"}, [HOOK], [OURS], "gpu-isolation"),
    "cgroup of another": ({"CgroupParent": f"/docker/{'a' * 64}"}, [HOOK], [OURS], "gpu-isolation"),
    "old name of /run": ({}, [HOOK], [{**OURS, "Destination": "/var/run/convgpu"}], "hook-not-loaded"),
    "part of the volume": (
        {"Mounts": [{"Type": "volume", "Target": "/run/convgpu/", "VolumeOptions": {"Subpath": "driver"}}]},
        [HOOK],
        [OURS],
        "hook-not-loaded",
    ),
}


@pytest.mark.parametrize(("host", "env", "mounts", "rule"), UNDOING.values(), ids=UNDOING.keys())
def test_bypasses_of_the_hook_are_refused_beside_a_gpu(harness, host, env, mounts, rule):
    assert harness.start(inspected({**GPU, **host}, env, mounts)).rule == rule


@pytest.mark.parametrize(("host", "env", "mounts", "rule"), UNDOING.values(), ids=UNDOING.keys())
def test_the_same_settings_pass_without_a_gpu(harness, host, env, mounts, rule):  # noqa: ARG001
    harness.engine.containers["web"] = inspected(env=[], mounts=[])
    theirs = [mount for mount in mounts if mount.get("Driver") != OURS["Driver"]]
    assert harness.start(inspected(host, env, theirs)).rule == "no-gpu"


@pytest.mark.parametrize("query", ["path=/tmp;path=/run/convgpu", "x;path=%2Fetc", "path=/tmp&path=/x;path=/etc"])
def test_old_engines_split_queries_at_semicolons_as_well(harness, query):
    harness.engine.containers["c"] = inspected(GPU)
    assert harness.judge(b"", f"/containers/c/archive?{query}", "PUT").rule == "archive-path"
    assert harness.judge(b"", "/containers/c/archive?path=/tmp;x=/etc", "PUT").allow


def test_the_volume_may_be_mounted_elsewhere(harness):
    for target in ("/other", "/var/run/convgpu"):
        env = [f"LD_PRELOAD={target}/libconvgpu.so"]
        assert harness.start(inspected(GPU, env, [{**OURS, "Destination": target}])).rule == "limited"
        cover = {"Type": "bind", "Source": "/s", "Destination": "/run/convgpu/x"}
        covered = harness.start(inspected(GPU, env, [{**OURS, "Destination": target}, cover]))
        assert covered.rule == ("limited" if target == "/other" else "hook-shadowed")


def part(target, subpath):
    """Return a part of a ConvGPU volume, as a request asks for it and as the Engine lists it."""
    asked = {"Type": "volume", "Source": "mine", "Target": target, "VolumeOptions": {"Subpath": subpath}}
    return asked, {**OURS, "Destination": target}


@pytest.mark.parametrize(
    ("target", "subpath", "rule"),
    [
        ("/run/convgpu/libconvgpu.so", "ld.so.preload", "hook-shadowed"),
        ("/var/run/convgpu/scheduler.sock", "scheduler.sock", "hook-shadowed"),
        ("/usr/lib/x86_64-linux-gnu", "driver", "hook-shadowed"),
        ("/etc/ld.so.preload", "libconvgpu.so", "hook-shadowed"),
        ("/etc/ld.so.preload", "ld.so.preload", "limited"),
        ("/opt/library", "libconvgpu.so", "limited"),
    ],
)
def test_a_part_of_a_convgpu_volume_is_judged_by_its_target(harness, target, subpath, rule):
    asked, listed = part(target, subpath)
    assert harness.start(inspected({**GPU, "Mounts": [asked]}, [HOOK], [OURS, listed])).rule == rule
    whole = {"Type": "volume", "Source": "mine", "Target": "/run/convgpu"}
    harness.engine.volumes["mine"] = {"Driver": "convgpu"}
    body = {"Image": "i", "Env": [HOOK], "HostConfig": {**GPU, "Mounts": [whole, asked]}}
    assert harness.judge(body).rule == rule


def test_a_part_of_a_convgpu_volume_does_not_load_the_hook(harness):
    asked, listed = part("/run/convgpu", "driver")
    assert harness.start(inspected({**GPU, "Mounts": [asked]}, [HOOK], [listed])).rule == "hook-not-loaded"
    # The Engine does not tell of which parts another container's mounts are.
    from_another = inspected({**GPU, "VolumesFrom": ["other"]}, [HOOK], [OURS])
    assert harness.start(from_another).rule == "hook-not-loaded"
    for own in ({"Binds": ["mine:/run/convgpu"]}, {"Mounts": [{**asked, "VolumeOptions": {}}]}):
        named = inspected({**GPU, "VolumesFrom": ["other"], **own}, [HOOK], [OURS])
        assert harness.start(named).rule == "limited"


@pytest.mark.parametrize(
    ("options", "rule"),
    [({}, "no-gpu"), ({"NonRecursive": True}, "no-gpu"), ({"ReadOnlyNonRecursive": True}, "host-path")],
)
def test_mounts_below_a_read_only_mount_may_be_writable(harness, options, rule):
    asked = {"Type": "bind", "Source": "/sys", "Target": "/x", "ReadOnly": True, "BindOptions": options}
    listed = {"Type": "bind", "Source": "/sys", "Destination": "/x", "RW": False}
    assert harness.start(inspected({"Mounts": [asked]}, [], [listed])).rule == rule


@pytest.mark.parametrize(("o", "rule"), [("bind,ro", "no-gpu"), ("rbind,ro", "host-path"), ("bind", "host-path")])
def test_a_volume_that_is_a_bind_is_read_only_at_its_top(harness, o, rule):
    harness.engine.volumes["v"] = {"Driver": "local", "Options": {"type": "none", "o": o, "device": "/sys"}}
    mount = {"Type": "volume", "Name": "v", "Destination": "/x", "Driver": "local"}
    assert harness.start(inspected(env=[], mounts=[mount])).rule == rule


def test_harmless_settings_pass_beside_a_gpu(harness):
    host = {
        **GPU,
        "CgroupParent": "/teams/vision",
        "Tmpfs": {"/run": "", "/tmp": ""},
        "SecurityOpt": ["label=disable"],
        "CapAdd": ["IPC_LOCK"],
    }
    env = [HOOK + ":/usr/lib/libjemalloc.so", "LD_LIBRARY_PATH=/usr/local/nvidia/lib", "CONVGPU_DEBUG=1"]
    assert harness.start(inspected(host, env)).rule == "limited"


def test_the_images_environment_counts_with_nvidias_runtime(harness):
    visible = inspected({"Runtime": "nvidia"}, ["NVIDIA_VISIBLE_DEVICES=all"], [])
    assert harness.start(visible).rule == "gpu-needs-limit"
    assert harness.start(inspected({"Runtime": "nvidia"}, [], [])).rule == "no-gpu"


def test_a_bare_name_removes_no_earlier_variable(harness):
    rows = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES"]
    assert harness.start(inspected({"Runtime": "nvidia"}, rows, [])).rule == "gpu-needs-limit"
    assert harness.start(inspected({"Runtime": "nvidia"}, rows[1:], [])).rule == "no-gpu"


def test_a_volume_that_is_a_bind_mount_is_judged_as_one(harness):
    harness.engine.volumes["v"] = {"Driver": "local", "Options": {"type": "none", "o": "bind", "device": "/run"}}
    mount = {"Type": "volume", "Name": "v", "Destination": "/x", "Driver": "local"}
    assert harness.start(inspected(env=[], mounts=[mount])).rule == "host-path"


def test_links_of_the_host_are_resolved(harness):
    harness.devices.links["/srv/link"] = "/"
    mount = {"Type": "bind", "Source": "/srv/link", "Destination": "/x", "RW": False}
    verdict = harness.start(inspected(env=[], mounts=[mount]))
    assert "/srv/link (which is /)" in verdict.message


def test_the_engines_socket_is_for_local_callers(harness):
    mount = {"Type": "bind", "Source": "/var/run/docker.sock", "Destination": "/var/run/docker.sock"}
    assert harness.start(inspected(env=[], mounts=[mount])).rule == "no-gpu"
    assert harness.start(inspected(env=[], mounts=[mount]), user="alice").rule == "host-path"


PRELOAD = {
    "Type": "bind",
    "Source": f"/var/lib/docker/plugins/{'a' * 64}/propagated-mount/ld.so.preload",
    "Destination": "/etc/ld.so.preload",
    "RW": False,
}


def test_the_plugins_own_preload_file_loads_the_hook(harness):
    assert harness.start(inspected(GPU, [], [OURS, PRELOAD])).rule == "limited"
    assert harness.start(inspected(GPU, [], [{**OURS, "Destination": "/x"}, PRELOAD])).rule == "hook-not-loaded"
    for other in ({"RW": True}, {"Destination": "/x"}, {"Source": PRELOAD["Source"] + "/../admin.sock"}):
        assert harness.start(inspected(GPU, [HOOK], [OURS, {**PRELOAD, **other}])).rule == "host-path"


def cdi(*names):
    return {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": list(names)}]}


@pytest.mark.parametrize(
    ("host", "env", "rule"),
    [
        ({"Runtime": "convgpu"}, ["CONVGPU_MEMORY=2g"], "no-gpu"),
        ({"Runtime": "convgpu", **GPU}, ["CONVGPU_MEMORY=2g"], "injected"),
        ({"Runtime": "convgpu", **GPU}, ["CONVGPU_MEMORY=9g"], "limit-too-large"),
        ({"Runtime": "convgpu", **GPU}, ["CONVGPU_MEMORY=1%"], "limit-too-large"),
        ({"Runtime": "convgpu", **GPU}, ["CONVGPU_SOCKET=/x"], "hook-environment"),
        ({"Runtime": "convgpu", **GPU, "Tmpfs": {"/run/convgpu": ""}}, [], "hook-shadowed"),
        ({"Runtime": "convgpu2", **GPU}, [], "gpu-needs-limit"),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["convgpu.io/memory=2g"]}]}, [], "no-gpu"),
        ({"DeviceRequests": [*GPU["DeviceRequests"], *cdi("convgpu.io/memory=2g")["DeviceRequests"]]}, [], "injected"),
        (cdi("convgpu.io/memory=9g", "nvidia.com/gpu=0"), [], "limit-too-large"),
        # What only reads like our CDI device injects nothing: the Engine does not look for it.
        ({"DeviceRequests": [*GPU["DeviceRequests"], {"DeviceIDs": ["convgpu.io/memory=2g"]}]}, [], "gpu-needs-limit"),
        ({"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ["convgpu.io/memory=2g"]}]}, [], "gpu-needs-limit"),
        ({**GPU, "Devices": [{"PathOnHost": "convgpu.io/memory=2g"}]}, [], "gpu-needs-limit"),
        ({"Devices": [{"PathOnHost": "convgpu.io/memory=/../../dev/nvidia0"}]}, [], "gpu-needs-limit"),
        ({"Runtime": "convgpu", **GPU}, ["CONVGPU_MEMORY=9g "], "limit-too-large"),
        ({"Runtime": "convgpu", **GPU}, ["CONVGPU_MEMORY=GPU-1:2g, GPU-2:9g "], "limit-too-large"),
        # The Engine lets the last of several hold, whatever -e says.
        (cdi("nvidia.com/gpu=0", "convgpu.io/memory=2g", "convgpu.io/memory=9g"), [], "limit-too-large"),
        (cdi("nvidia.com/gpu=0", *["convgpu.io/memory=10240MiB"] * 500), [], "limit-too-large"),
        (cdi("nvidia.com/gpu=0", "convgpu.io/memory=2g"), ["CONVGPU_MEMORY=9g"], "injected"),
        # Another container may hand such a one its GPU.
        ({"Runtime": "convgpu"}, ["CONVGPU_MEMORY=9g"], "limit-too-large"),
        ({"Runtime": "convgpu"}, ["CONVGPU_MEMORY=1g", "CONVGPU_BACKING=unified"], "limit-too-large"),
        (cdi("convgpu.io/memory=9g"), [], "limit-too-large"),
        ({"Runtime": "convgpu"}, ["CONVGPU_BACKING=unified"], "no-gpu"),
    ],
)
def test_injected_limits(harness, host, env, rule):
    harness.rules = parse_rules('[users."*"]\nlargest_limit = "4g"')
    assert harness.start(inspected(host, env, [])).rule == rule


@pytest.mark.parametrize(
    ("host", "env"),
    [
        ({"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ["nvidia.com/gpu=0", "convgpu.io/memory=9g"]}]}, []),
        ({"DeviceRequests": [{"Capabilities": [["gpu"]], "DeviceIDs": ["0", "convgpu.io/memory=9g"]}]}, []),
        ({"Annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=0,convgpu.io/memory=9g"}}, []),
        ({}, ["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0,convgpu.io/memory=9g"]),
        ({}, ["DOCKER_RESOURCE_GPU=nvidia.com/gpu=0, convgpu.io/memory=9g"]),
    ],
)
def test_a_limit_that_others_than_the_engine_find_is_refused(harness, host, env):
    """NVIDIA's runtime takes CDI devices of any vendor from a variable, after ours has set the limit that counts."""
    container = inspected({"Runtime": "convgpu", **host}, ["CONVGPU_MEMORY=1g", *env], [])
    assert harness.start(container).rule == "hook-shadowed"
    assert harness.judge(
        {"Image": "i", "Env": container["Config"]["Env"], "HostConfig": container["HostConfig"]}
    ).rule == ("hook-shadowed")


def test_the_default_limit_of_the_runtime_is_judged(harness):
    harness.rules = parse_rules('[users."*"]\nlargest_limit = "4g"')
    harness.engine.runtime_memory = "9g"
    assert harness.start(inspected({"Runtime": "convgpu", **GPU}, [], [])).rule == "limit-too-large"
    assert harness.start(inspected({"Runtime": "convgpu", **GPU}, ["CONVGPU_MEMORY=2g"], [])).rule == "injected"
    harness.engine.runtime = "convgpu"
    assert harness.start(inspected({**GPU, "Runtime": ""}, [], [])).rule == "limit-too-large"


def test_a_second_limit_beside_a_volume_is_refused(harness):
    device = cdi("nvidia.com/gpu=0", "convgpu.io/memory=2g")
    assert harness.start(inspected(device)).rule == "hook-shadowed"
    runtime = {**GPU, "Runtime": "convgpu"}
    assert harness.start(inspected(runtime, [HOOK, "CONVGPU_MEMORY=2g"])).rule == "limited"  # which takes the volume
    elsewhere = inspected(runtime, ["LD_PRELOAD=/x/libconvgpu.so"], [{**OURS, "Destination": "/x"}])
    assert harness.start(elsewhere).rule == "hook-shadowed"


def test_a_second_limit_is_refused_also_without_a_gpu(harness):
    """A container had 15 GiB of a quota of 6: the volume's limit counted alone."""
    elsewhere = [{**OURS, "Destination": "/x"}]
    assert harness.start(inspected(cdi("convgpu.io/memory=2g"))).rule == "hook-shadowed"
    assert harness.start(inspected({"Runtime": "convgpu"}, ["CONVGPU_MEMORY=9g"], elsewhere)).rule == "hook-shadowed"
    # Of these the runtime gives none another limit.
    assert harness.start(inspected({"Runtime": "convgpu"}, ["CONVGPU_MEMORY=9g"])).rule == "limited"
    assert harness.start(inspected({"Runtime": "convgpu"}, [], elsewhere)).rule == "limited"
    assert harness.start(inspected({}, ["CONVGPU_MEMORY=9g"], elsewhere)).rule == "limited"


def test_exec_and_archive_are_judged_for_injected_limits(harness):
    harness.engine.containers["c"] = inspected({"Runtime": "convgpu", **GPU}, [], [])
    exec_ = "/containers/c/exec"
    assert harness.judge({"Env": ["CONVGPU_SOCKET=/x"]}, exec_).rule == "hook-environment"
    assert harness.judge({"Env": ["LD_AUDIT=/x"]}, exec_).rule == "hook-environment"
    assert harness.judge(b"", "/containers/c/archive?path=/etc", "PUT").rule == "archive-path"
    assert harness.judge(b"", "/containers/c/archive?path=/tmp", "PUT").allow
    harness.engine.containers["c"] = inspected({"Runtime": "convgpu"}, [], [])
    assert harness.judge({"Env": ["LD_AUDIT=/x"]}, exec_).allow


def test_exec_may_preload_other_libraries_beside_our_preload_file(harness):
    for mine in (inspected(GPU, [], [OURS, PRELOAD]), inspected({"Runtime": "convgpu", **GPU}, [], [])):
        harness.engine.containers["c"] = mine
        assert harness.judge({"Env": ["LD_PRELOAD=/usr/lib/libjemalloc.so"]}, "/containers/c/exec").allow
    harness.engine.containers["c"] = inspected(GPU, [HOOK], [OURS])
    assert harness.judge({"Env": ["LD_PRELOAD=/x.so"]}, "/containers/c/exec").rule == "hook-not-loaded"


def test_a_checkpoint_would_not_load_the_hook(harness):
    assert harness.start(inspected(GPU), query="?checkpoint=x").rule == "checkpoint"
    assert harness.start(inspected({"Runtime": "convgpu", **GPU}, [], []), query="?checkpoint=x").rule == "checkpoint"
    assert harness.start(inspected(env=[], mounts=[]), query="?checkpoint=x").rule == "no-gpu"


def test_the_processes_of_a_container_with_a_hook_cannot_be_joined(harness):
    harness.engine.containers["gpu"] = inspected(GPU)
    harness.engine.containers["injected"] = inspected({"Runtime": "convgpu", **GPU}, [], [])
    harness.engine.containers["web"] = inspected(env=[], mounts=[])
    assert harness.start(inspected({"PidMode": "container:gpu"}, [], [])).rule == "gpu-isolation"
    assert harness.start(inspected({"PidMode": "container:injected"}, [], [])).rule == "gpu-isolation"
    assert harness.start(inspected({"PidMode": "container:web"}, [], [])).rule == "no-gpu"


def test_builds_are_refused_where_the_default_runtime_gives_gpus(harness):
    for uri in ("/build?t=x", "/v1.41/session", "/grpc"):
        harness.engine.runtime = "runc"
        assert harness.judge(b"", uri).allow
        harness.engine.runtime = "nvidia"
        assert harness.judge(b"", uri).rule == "build-gpu"
        harness.engine.runtime = "convgpu"
        assert harness.judge(b"", uri).allow


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("POST", "/plugins/convgpu/disable"),
        ("POST", "/v1.41/plugins/other/enable"),
        ("POST", "/plugins/pull?remote=x"),
        ("POST", "/plugins/create"),
        ("POST", "/plugins/a/b/c:1/set"),
        ("DELETE", "/plugins/%63onvgpu?force=1"),
    ],
)
def test_changes_of_plugins_are_refused(harness, method, uri):
    assert harness.judge(b"", uri, method).rule == "plugin-management"


@pytest.mark.parametrize("action", ["start", "restart"])
@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", ""])
def test_a_start_whose_body_may_come_later_is_refused(harness, action, kind):
    """The Engine waits for a form before it holds the container. Of two types it reads the first and shows the last."""
    harness.engine.containers["c"] = inspected(GPU)
    uri = f"/v1.41/containers/c/{action}"
    verdict = harness.judge(b"", uri, headers={"content-type": kind, "content-length": "5"})
    assert (verdict.rule, verdict.message.count("\n")) == ("body-withheld", 1)
    assert harness.owners.starts._calls == {}
    assert harness.judge(b"", uri, headers={"content-type": kind}).allow  # as docker-java sends its starts
    assert harness.judge(b"", uri, headers={"content-type": kind, "content-length": "0"}).allow
    assert harness.judge(b"", uri, headers={"content-length": "5"}).allow  # without a type it is no form
    assert harness.judge(b"{}", uri, headers={"content-type": "application/json", "content-length": "2"}).allow


@pytest.mark.parametrize("action", ["start", "restart"])
@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "application/json", ""])
def test_where_rules_are_strict_so_is_one_that_says_no_length(strict, action, kind):
    """Where the list lets forms pass, too; other types are refused of every call."""
    strict.rules = parse_rules(strict_site.RULES.replace('"commit"', '"commit", "forms"'))
    uri = f"/v1.41/containers/c/{action}"
    assert strict.judge(b"", uri, headers={"content-type": kind}).rule == "body-withheld"
    assert strict.owners.starts._calls == {}
    assert strict.judge(b"", uri, headers={"content-type": kind, "content-length": "0"}).allow
