"""Docker Engines and a registry that the tests start and stop themselves; nothing of the host's Engine changes."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build/plugin"
STARTING = 30.0  # seconds that a daemon may take to answer


def wait_for(what: str, condition: Callable[[], object], deadline: float = STARTING) -> object:
    """Poll real processes, 50 ms apart, until the condition is true; return its value."""
    end = time.monotonic() + deadline
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {deadline:.0f} s: {what}"
        time.sleep(0.05)
    return value


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class PluginConnection(http.client.HTTPConnection):
    """HTTP over the socket of a managed plugin, which lies where no option of the Engine can move it."""

    def __init__(self, plugin_id: str) -> None:
        super().__init__("plugin", timeout=10)
        self.path = f"/run/docker/plugins/{plugin_id}/convgpu.sock"

    def connect(self) -> None:
        # Set before it connects, so that `close` closes it when that fails.
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Engine:
    """A `dockerd` with its own data root, exec root, containerd and socket, without any network."""

    def __init__(self) -> None:
        # Short, because the path of a UNIX socket has at most 107 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="cg", dir="/tmp"))
        self.host = f"unix://{self.directory}/docker.sock"
        self.log = self.directory / "log"
        self.settings = self.directory / "daemon.json"
        self.settings.write_text("{}")
        self.start()

    def start(self) -> None:
        """Start the daemon, or start it again after `kill`."""
        command = ["setpriv", "--pdeathsig", "TERM", "dockerd", "-H", self.host]
        command += ["--data-root", f"{self.directory}/data", "--exec-root", f"{self.directory}/exec"]
        command += ["--pidfile", f"{self.directory}/pid", "--config-file", str(self.settings)]
        command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"]
        with self.log.open("ab") as log:
            # setpriv: it does not outlive a pytest that is killed.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_for("dockerd answers", self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"dockerd ended: {self.log.read_text()[-2000:]}"
        return self.run("version", check=False).returncode == 0

    def command(self, *arguments: str) -> list[str]:
        return ["docker", "-H", self.host, *arguments]

    def run(self, *arguments: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run the docker client; a failure shows what it said."""
        done = subprocess.run(
            self.command(*arguments),
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
        return done

    def __call__(self, *arguments: str) -> str:
        """Run the docker client; return what it printed."""
        return self.run(*arguments).stdout.strip()

    def inspect(self, kind: str, name: str, template: str) -> str:
        return self(kind, "inspect", "-f", template, name)

    def wait_for(self, what: str, condition: Callable[[], object]) -> object:
        """Poll until the condition is true; a failure shows the end of the Engine's log, which has the plugins' too."""
        try:
            return wait_for(what, condition)
        except AssertionError as error:
            error.add_note(self.log.read_text(errors="replace")[-4000:])
            raise

    def load(self, image: str) -> None:
        """Copy an image from the host's Engine."""
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
            subprocess.run(self.command("load", "-q"), stdin=saved.stdout, check=True, stdout=subprocess.DEVNULL)

    def configure(self, settings: dict[str, object]) -> None:
        """Write daemon.json and have it read again; only what the Engine can change while it runs."""
        before = self.log.stat().st_size
        self.settings.write_text(json.dumps(settings))
        self.process.send_signal(signal.SIGHUP)
        wait_for("daemon.json is read again", lambda: b"Reloaded configuration" in self.log.read_bytes()[before:])

    def administration(self, plugin: str, path: str) -> object:
        """GET a path of the plugin's administration, through the plugin's own socket."""
        plugin_id = self.inspect("plugin", plugin, "{{.Id}}")
        with closing(PluginConnection(plugin_id)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        assert response.status == 200, body
        return json.loads(body)

    def containers(self, plugin: str) -> list[dict[str, object]]:
        """Return the scheduler's containers (`Container` of docs/protocol.md)."""
        return self.administration(plugin, "/v1/containers")["containers"]

    def kill(self) -> None:
        """Kill the daemon, as a host's failure does; the kernel kills its containerd with it."""
        pid_file = self.directory / "exec/containerd/containerd.pid"
        containerd = Path("/proc", pid_file.read_text())
        self.process.kill()
        self.process.wait()
        # A process that has ended has no command line, reaped or not.
        wait_for("containerd ends", lambda: not containerd.exists() or not (containerd / "cmdline").read_bytes())
        # The next daemon would take a zombie, which nobody may have reaped yet, for a containerd that runs.
        pid_file.unlink()

    def close(self) -> None:
        stop(self.process)
        # A daemon leaves mounts of its namespaces and plugins; what lies behind one must not be removed.
        for point in reversed(self._mounts()):
            subprocess.run(["umount", "-l", point], check=False)
        assert self._mounts() == []
        shutil.rmtree(self.directory, ignore_errors=True)

    def _mounts(self) -> list[str]:
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return sorted(point for point in points if point.startswith(f"{self.directory}/"))


class Holder:
    """A container in which `gpu-hold` allocates, through the hook, and holds until its stdin says to go on."""

    def __init__(self, engine: Engine, plugin: str, memory: str, *sizes: str, options: Sequence[str] = ()) -> None:
        self.engine = engine
        self.plugin = plugin
        volume = f"type=volume,volume-driver={plugin},volume-opt=memory={memory},dst=/run/convgpu"
        self.id = engine(
            *("run", "-d", "-i", "--network", "none", *(options or ("--mount", volume))),
            *("-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so", "-e", "LD_LIBRARY_PATH=/run/convgpu/driver"),
            *("convgpu/demo", "gpu-hold", "--wait-for-stdin", *sizes),
        )
        self.volume = engine.inspect("container", self.id, "{{(index .Mounts 0).Name}}")

    def record(self) -> dict[str, object] | None:
        """Return what the scheduler says about it; None when it knows nothing."""
        rows = self.engine.containers(self.plugin)
        return next((row for row in rows if row["name"] == self.volume), None)

    def state(self) -> str:
        record = self.record()
        return "unknown" if record is None else str(record["state"])

    def usage(self) -> int:
        """Return the bytes that it uses by the scheduler's count."""
        record = self.record()
        return 0 if record is None else sum(device["usage"] for device in record["devices"])

    def wait_until_holding(self, size: int) -> None:
        self.engine.wait_for(f"{self.id[:12]} uses {size} bytes", lambda: self.usage() >= size)

    def running(self) -> bool:
        return self.engine.inspect("container", self.id, "{{.State.Running}}") == "true"

    def output(self) -> str:
        done = self.engine.run("logs", self.id)
        return done.stdout + done.stderr

    def go_on(self) -> None:
        """Send the line that `gpu-hold` waits for."""
        command = self.engine.command("attach", self.id)
        subprocess.run(command, input=b"\n", check=False, capture_output=True, timeout=60)

    def exit_code(self) -> int:
        """Wait for its end."""
        return int(self.engine("wait", self.id))

    def remove(self) -> None:
        """Remove it and its volume, whatever state it is in."""
        self.engine("rm", "-f", "-v", self.id)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    started = Engine()
    try:
        started.load("convgpu/demo")
        yield started
    finally:
        started.close()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's docker-registry on loopback, plain HTTP; the value is its HOST:PORT."""
    directory = tmp_path_factory.mktemp("registry")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    # JSON is YAML.
    (directory / "config.yml").write_text(json.dumps(settings))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "docker-registry", "serve", str(directory / "config.yml")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def listens() -> bool:
        assert process.poll() is None, (directory / "log").read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for("the registry listens", listens)
        yield f"localhost:{port}"
    finally:
        stop(process)


@pytest.fixture
def plugin_version() -> Iterator[Callable[[str], Path]]:
    """A maker of plugin directories that differ in one file, as an Engine demands of two plugins."""
    # Beside what was built: hard links do not cross file systems. NAME is written anew, never through a link.
    with tempfile.TemporaryDirectory(prefix="versions-", dir=BUILT.parent) as versions:

        def make(version: str) -> Path:
            directory = Path(versions) / version
            leave_out = shutil.ignore_patterns("NAME")
            shutil.copytree(BUILT, directory, symlinks=True, copy_function=os.link, ignore=leave_out)
            (directory / "rootfs/usr/lib/convgpu/NAME").write_text(version)
            return directory

        yield make


@pytest.fixture(scope="session")
def plugin(engine: Engine) -> Iterator[str]:
    """The plugin `convgpu`, enabled, with one simulated device of 16 GiB."""
    engine("plugin", "create", "convgpu", str(BUILT))
    engine("plugin", "set", "convgpu", "CONVGPU_DEVICES=simulated:16GiB")
    engine("plugin", "enable", "convgpu")
    yield "convgpu"
    engine("plugin", "disable", "-f", "convgpu")
    engine("plugin", "rm", "convgpu")


@pytest.fixture
def hold(engine: Engine) -> Iterator[Callable[..., Holder]]:
    """Return a starter of holders; they are gone after the test."""
    started: list[Holder] = []

    def start(plugin: str, memory: str, *sizes: str, options: Sequence[str] = ()) -> Holder:
        started.append(Holder(engine, plugin, memory, *sizes, options=options))
        return started[-1]

    yield start
    for holder in started:
        if engine.run("container", "inspect", holder.id, check=False).returncode == 0:
            holder.remove()
