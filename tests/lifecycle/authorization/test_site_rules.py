"""The rules of a site on a real Engine: reloads, users (TLS), and totals of running containers."""

import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_engine import Engine
from forked_command import run_command
from raw_engine import RawEngine

from convgpu.plugin.supervisor import MIN_UPTIME

pytestmark = pytest.mark.engine

EXPORTER = Path(__file__).parents[2] / "hook/programs/standalone/exporter.c"
VOLUME = "type=volume,volume-driver=convgpu,volume-opt=memory={},dst=/run/convgpu"
HOOK = ("-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so")


def openssl(*words: str, directory: Path) -> None:
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)


def certificates(directory: Path, *names: str) -> None:
    """Create an authority, the Engine's certificate, and one for each user."""
    authority = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem"
    openssl(*authority.split(), directory=directory)
    (directory / "server.ext").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth")
    (directory / "client.ext").write_text("extendedKeyUsage=clientAuth")
    for name in ("server", *names):
        subject = "/O=somebody" if name == "nameless" else f"/CN={name}"
        request = f"req -newkey rsa:2048 -nodes -subj {subject} -keyout {name}.key -out {name}.csr"
        openssl(*request.split(), directory=directory)
        kind = "server" if name == "server" else "client"
        sign = f"x509 -req -days 2 -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile {kind}.ext"
        openssl(*sign.split(), "-out", f"{name}.pem", directory=directory)


class Site:
    """An Engine with users, and the file with its rules."""

    def __init__(self, engine: Engine, port: int, directory: Path) -> None:
        self.engine, self.port, self.directory = engine, port, directory
        self.file = engine.directory / "etc/convgpu/rules.toml"

    def rules(self, text: str) -> None:
        new = self.file.with_name("new")
        new.write_text(text)
        new.replace(self.file)

    def run(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the docker client as a user: by a certificate, or `local` over the UNIX socket."""
        if user == "local":
            return self.engine.run(*words, check=False)
        tls = ["--tlsverify", "--tlscacert", "ca.pem", "--tlscert", f"{user}.pem", "--tlskey", f"{user}.key"]
        command = ["docker", "-H", f"tcp://127.0.0.1:{self.port}", *tls, *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=self.directory)

    def rule(self, user: str, *words: str) -> str:
        """Return the rule that refuses, or `passed`."""
        done = self.run(user, *words)
        _, denied, text = done.stderr.partition("authorization denied by plugin convgpu:latest: ")
        assert denied or done.returncode == 0, done.stderr
        return text.partition(":")[0] if denied else "passed"

    def status(self) -> dict[str, object]:
        return self.engine.administration("convgpu", "/v1/authorization")


@pytest.fixture(scope="module")
def site(tmp_path_factory, start_engine) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("certificates")
    certificates(directory, "alice", "bob", "local", "nameless")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    tls = {"tlsverify": True, "tlscacert": "ca.pem", "tlscert": "server.pem", "tlskey": "server.key"}
    settings = {key: str(directory / value) if isinstance(value, str) else value for key, value in tls.items()}
    with start_engine(hosts=[f"tcp://127.0.0.1:{port}"], settings=settings) as engine:
        (engine.directory / "etc/convgpu").mkdir(parents=True)
        engine("plugin", "set", "convgpu", *engine.settings_of_plugins(), f"etc.source={engine.directory}/etc")
        engine("plugin", "enable", "convgpu")
        engine.configure({"authorization-plugins": ["convgpu"]})
        yield Site(engine, port, directory)
        engine.configure({"authorization-plugins": []})


PRIVILEGED = ("create", "--privileged", "convgpu/demo", "true")


def test_the_common_name_is_the_user(site):
    site.rules('administrators = ["alice"]')
    assert site.rule("alice", *PRIVILEGED) == "passed"
    assert site.rule("bob", *PRIVILEGED) == "privileged"
    assert site.rule("local", *PRIVILEGED) == "privileged"
    # Nobody becomes the caller of the UNIX socket by a certificate.
    site.rules('administrators = ["local"]')
    assert site.rule("local", *PRIVILEGED) == "passed"
    assert site.run("local", "version").returncode == 0
    assert site.rule("nameless", *PRIVILEGED) == "privileged"
    tls = ["--tlsverify", "--tlscacert", "ca.pem", "--tlscert", "local.pem", "--tlskey", "local.key"]
    command = ["docker", "-H", f"tcp://127.0.0.1:{site.port}", *tls, *PRIVILEGED]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=site.directory)
    assert "privileged: " in done.stderr


def test_a_user_of_the_network_does_not_get_the_engines_socket(site):
    site.rules("")
    socket_mount = ("create", "-v", "/var/run/docker.sock:/var/run/docker.sock", "convgpu/demo", "true")
    assert site.rule("local", *socket_mount) == "passed"
    assert site.rule("bob", *socket_mount) == "host-path"


def test_rules_are_read_again(site):
    site.rules('mode = "audit"')
    assert site.rule("bob", *PRIVILEGED) == "passed"
    assert site.status()["mode"] == "audit"
    assert "would be denied: " in site.engine.log.read_text(errors="replace")
    site.rules('mode = "off"')
    assert site.rule("bob", *PRIVILEGED) == "passed"
    site.rules('mode = "enforce"')
    assert site.rule("bob", *PRIVILEGED) == "privileged"
    site.rules('mode = "enforce"\n[users.bob]\nlargest_limit = "much"')
    assert site.rule("bob", *PRIVILEGED) == "privileged"
    assert site.status()["error"].startswith("line 3: users.bob.largest_limit: 'much' is not a size")
    site.rules('[[exempt]]\nimage = "convgpu/demo"\nrules = ["privileged"]')
    assert (site.rule("bob", *PRIVILEGED), site.status()["error"]) == ("passed", None)


def test_rules_in_force_stay_while_the_file_has_a_mistake_and_the_plugin_is_killed(site):
    site.rules('[users.bob]\nlargest_limit = "1g"')
    assert held(site, "bob", "2g") == "limit-too-large"
    site.rules('[users.bob]\nlargest_limit = "much"')
    assert held(site, "bob", "2g") == "limit-too-large"
    site.engine.wait_for("it has run for a while", lambda: min(map(_age, _servers(site))) > MIN_UPTIME)
    started = site.engine.started("convgpu")
    subprocess.run(["kill", "-KILL", str(site.engine.processes("convgpu")["plugin"])], check=True)
    site.engine.wait_for("it is started again", lambda: site.engine.started("convgpu") != started)
    site.engine.wait_for_plugin("convgpu")
    assert held(site, "bob", "2g") == "limit-too-large"
    assert site.status()["instead"] == "the rules from before stay"


def held(site, user, memory, *options):
    words = (
        "run",
        "-d",
        "--network",
        "none",
        "--stop-signal",
        "KILL",
        "--mount",
        VOLUME.format(memory),
        *HOOK,
        *options,
    )
    return site.rule(user, *words, *options, "convgpu/demo", "sleep", "600")


def states(site):
    return {row["state"] for row in site.engine.containers("convgpu")}


def test_largest_limit_and_total_quota(site):
    site.rules('[users.bob]\nlargest_limit = "3g"\ntotal_quota = "4g"\n[labels."team=vision"]\ntotal_quota = "1g"')
    assert held(site, "bob", "4g") == "limit-too-large"
    assert held(site, "bob", "2g") == "passed"
    assert held(site, "bob", "2g") == "passed"
    assert held(site, "bob", "1g") == "total-quota-exceeded"
    assert held(site, "alice", "1g", "--label", "team=vision") == "passed"
    assert held(site, "alice", "1g", "--label", "team=vision") == "total-quota-exceeded"
    assert held(site, "alice", "8g") == "passed"
    site.engine("stop", *site.engine("ps", "-q").split())
    site.engine.wait_for(
        "they ended", lambda: {row["state"] for row in site.engine.containers("convgpu")} <= {"created", "ended"}
    )
    assert held(site, "bob", "3g") == "passed"
    site.engine("rm", "-f", "-v", *site.engine("ps", "-a", "-q").split())


def test_who_waits_for_a_start_by_its_restart_policy_counts(site):
    """The scheduler has it as ended, and nobody is asked about the start."""
    site.rules('[users.bob]\ntotal_quota = "4g"')
    words = ("run", "-d", "--network", "none", "--restart", "always", "--mount", VOLUME.format("3g"), *HOOK)
    done = site.run("bob", *words, "convgpu/demo", "false")
    assert done.returncode == 0, done.stderr
    name = done.stdout.strip()

    def waits() -> bool:
        return site.engine("inspect", "-f", "{{.State.Status}}", name).strip() == "restarting"

    site.engine.wait_for("it waits", lambda: waits() and states(site) == {"ended"})
    assert held(site, "bob", "2g") == "total-quota-exceeded"
    site.engine("rm", "-f", "-v", name)
    assert held(site, "bob", "2g") == "passed"
    site.engine("rm", "-f", "-v", *site.engine("ps", "-a", "-q").split())


def test_the_use_of_a_quota_is_shown_also_when_the_engine_started_containers_itself(site):
    """When the Engine starts, it starts stopped containers with `--restart always`, and asks nobody."""
    site.rules('[users.bob]\ntotal_quota = "4g"')
    options = ["--network", "none", "--restart", "always", "--mount", VOLUME.format("3g"), *HOOK]

    def running() -> list[int]:
        return [use["running"] >> 30 for use in site.status()["quotas"]]

    def status() -> tuple[list[int], int, str]:
        settings = ("--daemon-json", str(site.engine.settings), "--gpu-volume-driver", "convgpu")
        shown = run_command("-H", site.engine.host, "authz", "status", *settings)
        return running(), shown.returncode, shown.stdout

    for _ in range(2):
        assert site.rule("bob", "run", "-d", *options, "convgpu/demo", "sleep", "600") == "passed"
        used, code, text = status()
        assert (used, code) == ([3], 0)
        assert "user bob: containers have 3GiB of 4GiB on GPU-" in text
        site.engine("stop", *site.engine("ps", "-q").split())
        site.engine.wait_for("it has ended", lambda: running() == [])
    site.engine.end()
    site.engine.start()
    site.engine.wait_for_plugin("convgpu")
    site.engine.wait_for("both run", lambda: running() == [6])
    assert held(site, "bob", "1g") == "total-quota-exceeded"
    _, code, text = status()
    assert code == 1
    assert "have 6GiB of 4GiB on GPU-" in text
    assert "above the quota: the Engine started some without asking" in text
    site.engine("rm", "-f", "-v", *site.engine("ps", "-a", "-q").split())


def taken(pid: int, descriptor: int) -> int:
    """Take a copy of a process's descriptor, as who was sent it."""
    process = os.pidfd_open(pid)
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(438, process, descriptor, 0)  # pidfd_getfd(2)
        assert copy >= 0, os.strerror(ctypes.get_errno())
        return copy
    finally:
        os.close(process)


def test_what_a_removed_container_left_counts_into_the_quota(site, tmp_path):
    """One container after the other exports memory, within its limit, and ends; somebody keeps all of it."""
    program = tmp_path / "exporter"
    subprocess.run(["gcc", "-O2", EXPORTER, "-o", program, "-ldl"], check=True)
    site.rules('[users.bob]\ntotal_quota = "4g"\n[[exempt]]\nimage = "convgpu/demo"\nrules = ["host-path"]')
    driver = ("-v", f"{site.engine.directory_of('convgpu')}/driver:/driver", "-e", "LD_LIBRARY_PATH=/driver")
    words = ("run", "-d", "--rm", "--network", "none", "--mount", VOLUME.format("3g"), *HOOK, *driver)
    export = ("-v", f"{program}:/exporter", "--name", "one", "convgpu/demo", "/exporter", str(2 << 30))
    assert site.rule("bob", *words, *export) == "passed"
    number = site.engine.wait_for("it has exported", lambda: site.engine("logs", "one").strip())
    copy = taken(int(site.engine("inspect", "-f", "{{.State.Pid}}", "one")), int(number))
    assert site.rule("bob", "kill", "one") == "passed"
    site.engine.wait_for("its volume is removed", lambda: not site.engine.containers("convgpu"))
    refused = site.run("bob", *words, "convgpu/demo", "true").stderr
    assert "total-quota-exceeded: containers of user bob that run or are being started have 0B on GPU-" in refused
    assert "ended ones left 2GiB behind there" in refused
    assert held(site, "alice", "3g") == "passed"
    assert held(site, "bob", "2g") == "passed"
    site.engine("rm", "-f", "-v", *site.engine("ps", "-a", "-q").split())
    os.close(copy)
    site.engine.wait_for("nobody has it", lambda: held(site, "bob", "4g") == "passed")
    site.engine("rm", "-f", "-v", *site.engine("ps", "-a", "-q").split())


@pytest.fixture
def runtime(site):
    """The runtime `convgpu`, which injects a limit; 1 GiB into a container that names none."""
    words = [f"--convgpu-directory={site.engine.directory_of('convgpu')}", "--convgpu-memory=1g"]
    program = str(Path(sys.executable).with_name("convgpu-runtime"))
    site.engine.configure({"runtimes": {"convgpu": {"path": program, "runtimeArgs": words}}})
    site.rules('[users.bob]\nlargest_limit = "512m"')
    create = ("create", "--runtime", "convgpu", "-e", "NVIDIA_VISIBLE_DEVICES=all", "convgpu/demo", "true")
    # The plugin caches the Engine's runtimes for ten seconds.
    site.engine.wait_for("the plugin knows the limit", lambda: site.rule("bob", *create) == "limit-too-large")
    yield
    site.engine("rm", "-f", "-v", *site.engine("ps", "-a", "-q").split())
    site.engine.configure({"runtimes": {}})


@pytest.mark.usefixtures("runtime")
def test_the_total_includes_injected_limits(site):
    site.rules('[users.bob]\nlargest_limit = "3g"\ntotal_quota = "4g"')

    def start(user, *options):
        words = ("run", "-d", "--network", "none", "--stop-signal", "KILL", "--runtime", "convgpu", *options)
        return site.rule(user, *words, "convgpu/demo", "sleep", "600")

    assert start("bob", "-e", "CONVGPU_MEMORY=4g") == "limit-too-large"
    assert start("bob", "--name", "one", "-e", "CONVGPU_MEMORY=3g", "-e", "NVIDIA_VISIBLE_DEVICES=all") == "passed"
    assert start("bob", "-e", "CONVGPU_MEMORY=2g") == "total-quota-exceeded"
    assert held(site, "bob", "2g") == "total-quota-exceeded"
    assert start("bob", "-e", "NVIDIA_VISIBLE_DEVICES=all") == "passed"  # with the runtime's own limit
    assert start("bob", "-e", "NVIDIA_VISIBLE_DEVICES=all") == "total-quota-exceeded"
    assert start("alice", "-e", "CONVGPU_MEMORY=2g") == "passed"
    assert sorted(
        device["limit"] >> 30
        for row in site.engine.containers("convgpu")
        if row["state"] == "running"
        for device in row["devices"]
    ) == [1, 2, 3]
    site.engine("kill", "one")
    assert held(site, "bob", "2g") == "passed"
    assert site.rule("bob", "start", "one") == "total-quota-exceeded"


@pytest.mark.usefixtures("runtime")
def test_an_injected_limit_counts_while_its_container_waits_for_its_next_start(site):
    """The scheduler knows it only while it has programs, and it had some when it was started by a call."""
    site.rules('[users.bob]\ntotal_quota = "4g"')
    words = ("run", "-d", "--network", "none", "--restart", "always", "--runtime", "convgpu", "--name", "one")
    limit = ("-e", "NVIDIA_VISIBLE_DEVICES=all", "-e", "CONVGPU_MEMORY=3g", "convgpu/demo")
    first = "[ -e /second ] && exit 1; [ -e /first ] && touch /second || touch /first; exec sleep 600"
    assert site.rule("bob", *words, *limit, "sh", "-c", first) == "passed"
    assert site.rule("bob", "restart", "-t", "0", "one") == "passed"
    # An end by `docker kill` would be the last one.
    subprocess.run(["kill", "-KILL", site.engine("inspect", "-f", "{{.State.Pid}}", "one").strip()], check=True)

    def waits() -> bool:
        return site.engine("inspect", "-f", "{{.State.Status}}", "one").strip() == "restarting" and not states(site)

    site.engine.wait_for("it waits", waits)
    assert held(site, "bob", "2g") == "total-quota-exceeded"
    assert site.rule("alice", "start", "one") == "gpu-isolation"
    site.engine("rm", "-f", "one")
    assert held(site, "bob", "2g") == "passed"


def test_a_volume_without_limit_gets_the_default(site):
    site.rules('default_limit = "3g"')
    words = ("run", "-d", "--network", "none", "--volume-driver", "convgpu", "-v", "/run/convgpu", *HOOK)
    assert site.rule("bob", *words, "convgpu/demo", "sleep", "600") == "passed"
    (row,) = [row for row in site.engine.containers("convgpu") if row["state"] == "running"]
    assert [device["limit"] for device in row["devices"]] == [3 << 30]
    site.engine("rm", "-f", "-v", *site.engine("ps", "-a", "-q").split())


def test_many_starts_at_once_do_not_block(site):
    """Each start queries the Engine, which queries the plugin: more starts than the plugin has threads."""
    site.rules("")
    raw = RawEngine(f"{site.engine.directory}/docker.sock")
    body = {"Image": "convgpu/demo", "Cmd": ["true"], "HostConfig": {"Privileged": True}}
    site.rules('mode = "off"')
    container = raw.post("/containers/create", body).json["Id"]
    site.rules("")
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}\\n", "--unix-socket", raw.path, "-X", "POST"]
    url = f"http://docker/v1.41/containers/{container}/start"
    many = [subprocess.Popen([*command, url], stdout=subprocess.PIPE, text=True) for _ in range(100)]
    assert {process.communicate(timeout=300)[0] for process in many} == {"403\n"}
    raw.remove(container)


def test_the_plugin_is_killed_between_two_calls(site):
    """The Engine keeps connections to the plugin; when it is killed, the next call finds the new one.

    At first it is started again in place; killed soon after that, the Engine starts the whole plugin again. Once more
    within seconds, and the Engine would disable it.
    """
    site.engine.wait_for("it has run for a while", lambda: min(map(_age, _servers(site))) > MIN_UPTIME)
    for _ in range(2):
        assert site.engine.run("ps", check=False).returncode == 0
        for pid in _servers(site):
            subprocess.run(["kill", "-KILL", str(pid)], check=False)
        done = site.engine.run("ps", check=False)
        assert done.returncode == 0, done.stderr
    assert json.dumps(site.status())


def _servers(site: Site) -> list[int]:
    plugin_id = site.engine.inspect("plugin", "convgpu", "{{.Id}}")
    found = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cgroup")
        if plugin_id in _read(path) and "convgpu.plugin.server.wsgi" in _read(path.with_name("cmdline"))
    ]
    assert found
    return found


def _age(pid: int) -> float:
    """Return the seconds since a process was started: the 22nd field of its row, in ticks since the boot."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
