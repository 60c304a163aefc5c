"""Docker Engines that tests start and stop themselves; nothing of the host's Engine changes."""

import functools
import http.client
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from host_state import CGROUP2, has_left_hosts_network

SPARING = {"GOGC": "400"}
"""Less collecting of garbage, which is a third of each start of dockerd; it starts itself anew for each container."""
STARTING = 120.0  # seconds that a daemon may take to answer, on a machine that others use too


@functools.cache
def version() -> tuple[int, int]:
    """Return the version of the Engine that is tested, (0, 0) without one."""
    if shutil.which("dockerd") is None:
        return (0, 0)
    told = subprocess.run(["dockerd", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+)\.(\d+)", told)
    assert found is not None, told
    return int(found[1]), int(found[2])


def wait_for(what: str, condition: Callable[[], object], deadline: float = STARTING, pause: float = 0.05) -> object:
    """Poll real processes until the condition is true; return its value.

    50 to 150 ms apart, as most questions are commands of Docker or Slurm, which take time of a core.
    """
    end = time.monotonic() + deadline
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {deadline:.0f} s: {what}"
        time.sleep(pause)
        pause = min(1.2 * pause, 0.15)
    return value


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def copy_data(data: Path, target: Path) -> None:
    """Copy the data root of an Engine that has ended; plugins get new IDs, which name their sockets in /run."""
    subprocess.run(["cp", "-a", data, target], check=True)
    for config in target.glob("plugins/*/config.json"):
        fresh = secrets.token_hex(32)
        config.write_text(config.read_text().replace(config.parent.name, fresh))
        config.parent.rename(config.parent.with_name(fresh))


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        # Set before it connects, so that `close` closes it when that fails.
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class PluginConnection(SocketConnection):
    """HTTP over the socket of a managed plugin, which lies where no option of the Engine can move it."""

    def __init__(self, plugin_id: str) -> None:
        super().__init__(f"/run/docker/plugins/{plugin_id}/convgpu.sock")


class Engine:
    """A `dockerd` with its own data root, exec root, containerd and socket, in the network of the tests.

    Args:
        hosts: where it listens beside its UNIX socket.
        settings: more of daemon.json.
        data: the data root of an Engine that has ended, of which this one gets a copy; none: it begins empty.
        cgroup2: it finds version 2 of cgroups alone.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        hosts: Sequence[str] = (),
        data: Path | None = None,
        cgroup2: bool = False,
    ) -> None:
        assert has_left_hosts_network(), "an Engine of the tests would delete docker0: use the fixture start_engine"
        # Short, because the path of a UNIX socket has at most 107 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="cg", dir="/tmp"))
        self.host = f"unix://{self.directory}/docker.sock"
        self.log = self.directory / "log"
        self._before = CGROUP2 if cgroup2 else ()
        self._hosts = [word for host in hosts for word in ("-H", host)]
        self.settings = self.directory / "daemon.json"
        self._settings: dict[str, object] = {"live-restore": False, **(settings or {})}
        self.settings.write_text(json.dumps(self._settings))
        if data is not None:
            copy_data(data, self.directory / "data")
        self.start()

    def start(self) -> None:
        """Start the daemon, or start it again after `kill`."""
        command = [*self._before, "setpriv", "--pdeathsig", "TERM", "dockerd", "-H", self.host, *self._hosts]
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
                cwd="/",  # as systemd starts it
                env={**os.environ, **SPARING},
            )
        wait_for("dockerd answers", self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"dockerd ended: {self.log.read_text()[-2000:]}"
        return self.run("version", check=False).returncode == 0

    def command(self, *arguments: str) -> list[str]:
        return ["docker", "-H", self.host, *arguments]

    def run(self, *arguments: str, check: bool = True, timeout: float = 300) -> subprocess.CompletedProcess[str]:
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

    def plugin_id(self, plugin: str) -> str:
        """Return a plugin's ID, by the Engine's socket: what is polled asks for it each time, and a command is dear.

        :raises ConnectionError: when the Engine refuses, as it does while an authorization plugin is started again.
        """
        with closing(SocketConnection(self.host.removeprefix("unix://"))) as connection:
            connection.request("GET", f"/plugins/{plugin}/json")
            response = connection.getresponse()
            body = response.read()
        if response.status != 200:
            raise ConnectionError(body.decode())
        return str(json.loads(body)["Id"])

    def inspect(self, kind: str, name: str, template: str) -> str:
        return self(kind, "inspect", "-f", template, name)

    def wait_for(self, what: str, condition: Callable[[], object], deadline: float = STARTING) -> object:
        """Poll until the condition is true; a failure shows the end of the Engine's log, which has the plugins' too."""

        def holds() -> object:
            try:
                return condition()
            except OSError:
                return None  # the plugin is just being started again

        try:
            return wait_for(what, holds, deadline)
        except AssertionError as error:
            error.add_note(self.log.read_text(errors="replace")[-4000:])
            raise

    def limits_cpus(self) -> bool:
        """Tell whether it can limit CPUs: version 2 of cgroups cannot beside version 1, which has the controller."""
        return self("info", "-f", "{{.CPUCfsQuota}}") == "true"

    def load(self, image: str) -> None:
        """Copy an image from the host's Engine."""
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
            load = self.command("load", "-q")
            subprocess.run(load, stdin=saved.stdout, check=True, stdout=subprocess.DEVNULL)

    def configure(self, settings: dict[str, object]) -> None:
        """Change daemon.json and have it read again; only what the Engine can change while it runs."""
        self._settings.update(settings)
        self.settings.write_text(json.dumps(self._settings))
        # Newer Engines set the authorization plugins after that line; the second time, the first is over.
        for _ in range(2):
            before = self.log.stat().st_size
            self.process.send_signal(signal.SIGHUP)
            self._wait_until_logged(b"Reloaded configuration", before)

    def _wait_until_logged(self, text: bytes, since: int) -> None:
        """Wait for a line behind a place in the log, with short pauses: to read a file costs little."""

        def logged() -> bool:
            with self.log.open("rb") as log:
                log.seek(since)
                return text in log.read()

        wait_for(f"the Engine logs {text.decode()!r}", logged, pause=0.005)

    def settings_of_plugins(self) -> tuple[str, ...]:
        """Return the settings with which a plugin works on this Engine: one simulated device, volumes as on a card."""
        return ("CONVGPU_DEVICES=simulated:16GiB", "CONVGPU_READ_ONLY=yes", f"run.source={self.directory}")

    def directory_of(self, plugin: str) -> Path:
        """Return the plugin's directory, /var/lib/convgpu in it, as the host has it."""
        return self.directory / "data/plugins" / self.plugin_id(plugin) / "propagated-mount"

    def started(self, plugin: str) -> int:
        """Return what is another number once the Engine has started the plugin again, and connected to it.

        It disables a plugin that ends a second time before. Then only it writes its file anew (moby,
        `plugin/manager_linux.go`, `pluginPostStart`).
        """
        plugin_id = self.plugin_id(plugin)
        return (self.directory / "data/plugins" / plugin_id / "config.json").stat().st_mtime_ns

    def processes(self, plugin: str) -> dict[str, int]:
        """Return the host's pids of the plugin's processes: `plugin` (the first), `daemon` and `gunicorn`."""
        plugin_id = self.plugin_id(plugin)
        found: dict[str, int] = {}
        for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
            try:
                command = (process / "cmdline").read_bytes().split(b"\0")
                if plugin_id in (process / "cgroup").read_text() and command[1:2] == [b"-m"]:
                    found.setdefault(command[2].decode().rpartition(".")[2], int(process.name))
            except OSError:
                continue  # it ended meanwhile
        return found

    def answers_for(self, plugin: str) -> bool:
        """Tell whether the plugin and its scheduler answer."""
        try:
            return self.containers(plugin) is not None
        except (OSError, AssertionError):
            return False

    def wait_for_plugin(self, plugin: str, deadline: float = STARTING) -> None:
        self.wait_for("the plugin answers", lambda: self.answers_for(plugin), deadline)

    def administration(self, plugin: str, path: str, method: str = "GET") -> object:
        """Ask a path of the plugin's administration, through the plugin's own socket."""
        plugin_id = self.plugin_id(plugin)
        with closing(PluginConnection(plugin_id)) as connection:
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read()
        assert response.status == 200, body
        return json.loads(body)

    def containers(self, plugin: str) -> list[dict[str, object]]:
        """Return the scheduler's containers (`Container` of docs/protocol.md)."""
        return self.administration(plugin, "/v1/containers")["containers"]

    def end(self) -> None:
        """End the daemon by SIGTERM, as an administrator does."""
        stop(self.process)

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
        if self.process.poll() is None:
            # They would live on with live-restore, and without it each could delay the end by ten seconds.
            left = self("ps", "-a", "-q").split()
            self.run("rm", "-f", "-v", *left, check=False)
            self.configure({"live-restore": False})
        stop(self.process)
        # A daemon leaves mounts of its namespaces and plugins; what lies behind one must not be removed.
        for point in reversed(self._mounts()):
            subprocess.run(["umount", "-l", point], check=False)
        assert self._mounts() == []
        shutil.rmtree(self.directory, ignore_errors=True)

    def _mounts(self) -> list[str]:
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return sorted(point for point in points if point.startswith(f"{self.directory}/"))


@contextmanager
def running_engine(
    *,
    settings: Mapping[str, object] | None = None,
    hosts: Sequence[str] = (),
    data: Path | None = None,
    cgroup2: bool = False,
) -> Iterator[Engine]:
    """Start an Engine; at the end nothing of it is left."""
    engine = Engine(settings=settings, hosts=hosts, data=data, cgroup2=cgroup2)
    try:
        yield engine
    finally:
        engine.close()


class Holder:
    """A container in which `gpu-hold` allocates, through the hook, and holds until its stdin says to go on."""

    def __init__(self, engine: Engine, plugin: str, memory: str, *sizes: str, options: Sequence[str] = ()) -> None:
        self.engine = engine
        self.plugin = plugin
        volume = f"type=volume,volume-driver={plugin},volume-opt=memory={memory},dst=/run/convgpu"
        self.id = engine(
            # It would ignore SIGTERM as process 1, and delay whatever stops it by ten seconds.
            *("run", "-d", "-i", "--network", "none", "--stop-signal", "KILL", *(options or ("--mount", volume))),
            # The simulated driver writes beside itself, which it cannot in the volume.
            *("-v", f"{engine.directory_of(plugin)}/driver:/driver", "-e", "LD_LIBRARY_PATH=/driver"),
            *("-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so"),
            *("convgpu/demo", "gpu-hold", "--wait-for-stdin", *sizes),
        )
        volumes = "{{range .Mounts}}{{if .Driver}}{{.Name}}{{end}}{{end}}"
        self.volume = engine.inspect("container", self.id, volumes)

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

    def wait_until_ended(self) -> None:
        """Wait until the scheduler knows the end: no process, no mount, no memory."""
        self.engine.wait_for(
            f"the end of {self.id[:12]} is known",
            lambda: self.state() in ("ended", "unknown") and (self.record() or {"mounts": 0})["mounts"] == 0,
        )
        assert self.usage() == 0

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
