"""Builds: the Engine's default runtime decides whether their containers get a GPU."""

import io
import tarfile
from urllib.parse import quote

import bypasses
import pytest
from raw_engine import Call, RawEngine

pytestmark = pytest.mark.engine

VISIBLE = bypasses.VISIBLE
PARENT = f"FROM {bypasses.IMAGE}\nONBUILD ENV {VISIBLE}\n"
# What the containers of a build are told, by all means that a build has.
BUILDS = {
    "ENV": (f"FROM {bypasses.IMAGE}\nENV {VISIBLE}\nRUN true\n", ""),
    "ARG": (f"FROM {bypasses.IMAGE}\nARG NVIDIA_VISIBLE_DEVICES\nRUN true\n", '{"NVIDIA_VISIBLE_DEVICES": "all"}'),
    "ENV of ARG": (
        f"FROM {bypasses.IMAGE}\nARG G\nENV NVIDIA_VISIBLE_DEVICES=$G LD_PRELOAD=/x.so\nRUN true\n",
        '{"G": "all"}',
    ),
    "ONBUILD": ("FROM onbuild-parent\nRUN true\n", ""),
    "image": (f"FROM {bypasses.CUDA_IMAGE}\nRUN true\n", ""),
    "label": (f"FROM {bypasses.IMAGE}\nLABEL com.nvidia.volumes.needed=nvidia_driver\nENV {VISIBLE}\nRUN true\n", ""),
}
REFUSED = {
    "device": f"FROM {bypasses.IMAGE}\nRUN --device=nvidia.com/gpu=all true\n",
    "security": f"FROM {bypasses.IMAGE}\nRUN --security=insecure true\n",
}


def build(tag, dockerfile, arguments=""):
    """Return the call of the classic builder, which keeps its containers."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        row = tarfile.TarInfo("Dockerfile")
        row.size = len(dockerfile)
        tar.addfile(row, io.BytesIO(dockerfile.encode()))
    query = f"t={tag}&rm=0&nocache=1&networkmode=none" + (f"&buildargs={quote(arguments)}" if arguments else "")
    return Call("POST", f"/v1.41/build?{query}", out.getvalue(), {"Content-Type": "application/x-tar"})


def containers(raw):
    """Return the Engine's inspections of the containers of builds, and remove them."""
    rows = [raw.get(f"/containers/{row['Id']}/json") for row in raw.get("/containers/json?all=1")]
    for row in rows:
        raw.remove(row["Id"])
    return {(row["HostConfig"]["Runtime"], VISIBLE in row["Config"]["Env"]) for row in rows}


def has_image(raw, name):
    return raw.send(Call("GET", f"/images/{name}/json")).status == 200


@pytest.fixture(scope="module")
def raw(engine, plugin, runtimes):  # noqa: ARG001
    engine.configure({"authorization-plugins": [], "runtimes": runtimes})
    raw = RawEngine(f"{engine.directory}/docker.sock")
    raw.send(build("onbuild-parent", PARENT))
    raw.send(build(bypasses.CUDA_IMAGE, f"FROM {bypasses.IMAGE}\nENV {VISIBLE}\n"))
    containers(raw)
    yield raw
    engine.configure({"authorization-plugins": [], "default-runtime": "runc"})
    engine("image", "rm", "-f", "onbuild-parent", bypasses.CUDA_IMAGE)
    engine("image", "prune", "-f")
    engine.configure({"runtimes": {}})


def test_builds_by_a_plain_runtime_get_no_gpu(engine, plugin, raw):
    engine.configure({"authorization-plugins": [plugin], "default-runtime": "runc"})
    wait_until(engine, raw, "builds pass", denied=False)
    for name, (dockerfile, arguments) in BUILDS.items():
        assert raw.send(build("built", dockerfile, arguments)).status == 200, name
        assert {runtime for runtime, _ in containers(raw)} == {"runc"}, name
        # What came of it is judged when it runs, by what it says then.
        body = {"Image": "built", "HostConfig": {"Runtime": "nvidia", "NetworkMode": "none"}}
        assert raw.post("/containers/create", body).denied or name == "ARG"
        containers(raw)
        engine("image", "rm", "-f", "built")
    for dockerfile in REFUSED.values():
        # The classic builder has no such flags. BuildKit's are seen by nobody (docs/authorization.md).
        told = raw.send(build("built", dockerfile)).raw
        assert b"nknown flag" in told or b"requires BuildKit" in told, told  # the latter on Engine 28.5
        assert (containers(raw), has_image(raw, "built")) == (set(), False)


def test_no_build_gets_the_gpus_of_the_default_runtime(engine, plugin, raw):
    engine.configure({"authorization-plugins": [], "default-runtime": "nvidia"})
    for name, (dockerfile, arguments) in BUILDS.items():
        assert raw.send(build("built", dockerfile, arguments)).status == 200, name
        # An ARG is no variable of the container, but one of its command's line.
        assert {runtime for runtime, _ in containers(raw)} == {"nvidia"}, name
        engine("image", "rm", "-f", "built")
    engine.configure({"authorization-plugins": [plugin]})
    wait_until(engine, raw, "builds are refused", denied=True)
    for name, (dockerfile, arguments) in BUILDS.items():
        assert raw.send(build("built", dockerfile, arguments)).denied, name
        assert (containers(raw), has_image(raw, "built")) == (set(), False), name
    for uri in ("/session", "/v1.41/grpc", "/%62uild?t=x", "/v1.24/build?remote=x"):
        assert raw.post(uri).denied, uri


def wait_until(engine, raw, what, *, denied):
    """The plugin caches the Engine's settings for ten seconds."""
    engine.wait_for(what, lambda: raw.send(build("probe", "FROM nothing/at-all\n")).denied is denied)


def test_a_start_from_a_checkpoint_is_refused(engine, plugin, raw):
    engine.configure({"authorization-plugins": [], "default-runtime": "runc"})
    limited = {"Image": bypasses.IMAGE, "Cmd": ["true"], "Env": [bypasses.HOOK], "HostConfig": bypasses.LIMITED}
    plain = {"Image": bypasses.IMAGE, "Cmd": ["true"], "HostConfig": {"NetworkMode": "none"}}
    gpu, innocent = (raw.post("/containers/create", body).json["Id"] for body in (limited, plain))
    engine.configure({"authorization-plugins": [plugin]})
    for form in ("checkpoint=c", "checkpoint-dir=/x&checkpoint=c", "%63heckpoint=c", "checkpoint=", "x=1;checkpoint=c"):
        answer = raw.post(f"/v1.41/containers/{gpu}/start?{form}")
        assert answer.denied, form
        assert b"checkpoint: " in answer.raw
        assert raw.get(f"/containers/{gpu}/json")["State"]["Status"] == "created"
        # Without a GPU that is the Engine's affair. It has no checkpoint.
        assert not raw.post(f"/v1.41/containers/{innocent}/start?{form}").denied
    engine.configure({"authorization-plugins": []})
    containers(raw)
