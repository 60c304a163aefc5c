"""Requests of everyday tools that have nothing to do with GPUs; none of them may be refused.

The bodies are those of the tools as far as the authorization could look at them: compose, Portainer, dev containers,
monitoring, databases, and the Docker CLI itself.
"""

import io
import os
import tarfile
from collections.abc import Iterator
from typing import Any

from raw_engine import Call

IMAGE = "convgpu/demo"
CUDA_IMAGE = "cuda-like"
FOLDER = f"/tmp/convgpu-innocents-{os.getpid()}"
TAR = {"Content-Type": "application/x-tar"}


def compose(service: str, **host: Any) -> dict[str, Any]:
    """The requests of `docker compose up`."""
    labels = {
        "com.docker.compose.config-hash": "0" * 64,
        "com.docker.compose.container-number": "1",
        "com.docker.compose.oneoff": "False",
        "com.docker.compose.project": "shop",
        "com.docker.compose.service": service,
        "com.docker.compose.version": "2.26.1",
    }
    host = {
        "Binds": None,
        "NetworkMode": "none",
        "PortBindings": {},
        "RestartPolicy": {"Name": "", "MaximumRetryCount": 0},
        "IpcMode": "",
        "LogConfig": {"Type": "", "Config": None},
        "Privileged": False,
        "DeviceRequests": None,
        "Devices": [],
        "CapAdd": None,
        **host,
    }
    return {"Image": IMAGE, "Cmd": ["true"], "Labels": labels, "Env": ["PATH=/usr/bin:/bin"], "HostConfig": host}


def volume(name: str, target: str, **options: Any) -> dict[str, Any]:
    return {"Type": "volume", "Source": name, "Target": target, "VolumeOptions": options}


# What a container may have beside nothing.
HOSTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "nulls": {"Binds": None, "Mounts": None, "Devices": None, "CapAdd": None, "SecurityOpt": None},
    "postgres": {"Mounts": [volume("shop_db", "/var/lib/postgresql/data", NoCopy=False)], "ShmSize": 1 << 27},
    "mysql by bind": {"Binds": ["shop_mysql:/var/lib/mysql:rw", f"{FOLDER}:/etc/mysql/conf.d:ro"]},
    "nginx": {"Binds": [f"{FOLDER}:/usr/share/nginx/html:ro", f"{FOLDER}/file:/etc/nginx/nginx.conf:ro"]},
    "redis": {"Tmpfs": {"/data": "size=64m"}, "Sysctls": {"net.core.somaxconn": "511"}},
    "read-only": {"ReadonlyRootfs": True, "Tmpfs": {"/tmp": "", "/run": "", "/var/run": ""}},
    "portainer": {"Binds": ["/var/run/docker.sock:/var/run/docker.sock", "portainer_data:/data"]},
    "portainer by mounts": {
        "Mounts": [{"Type": "bind", "Source": "/var/run/docker.sock", "Target": "/var/run/docker.sock"}]
    },
    "portainer agent": {
        "Binds": ["/var/run/docker.sock:/var/run/docker.sock", "/var/lib/docker/volumes:/var/lib/docker/volumes"]
    },
    "traefik": {"Binds": ["/var/run/docker.sock:/var/run/docker.sock:ro", f"{FOLDER}:/letsencrypt"]},
    "watchtower": {"Binds": ["/run/docker.sock:/var/run/docker.sock"]},
    "promtail": {"Binds": ["/var/log:/var/log:ro", "/var/lib/docker/containers:/var/lib/docker/containers:ro"]},
    "node-exporter": {"Binds": ["/proc:/host/proc:ro", "/sys:/host/sys:ro"], "NetworkMode": "host"},
    "datadog": {
        "Binds": [
            "/var/run/docker.sock:/var/run/docker.sock:ro",
            "/proc/:/host/proc/:ro",
            "/sys/fs/cgroup/:/host/sys/fs/cgroup:ro",
        ]
    },
    "netdata": {
        "Binds": [
            "/etc/passwd:/host/etc/passwd:ro",
            "/etc/group:/host/etc/group:ro",
            "/etc/os-release:/h/os-release:ro",
        ],
        "CapAdd": ["SYS_PTRACE"],
        "SecurityOpt": ["apparmor=unconfined"],
    },
    "dev container": {
        "Mounts": [
            {"Type": "bind", "Source": FOLDER, "Target": "/workspaces/shop", "Consistency": "cached"},
            volume("vscode", "/vscode"),
        ],
        "Init": True,
        "CapAdd": ["SYS_PTRACE"],
        "SecurityOpt": ["seccomp=unconfined"],
    },
    "dev container, docker outside": {
        "Mounts": [{"Type": "bind", "Source": "/var/run/docker.sock", "Target": "/var/run/docker-host.sock"}]
    },
    "home": {"Binds": ["/root:/root", "/home:/home:ro", f"{FOLDER}/..{FOLDER.removeprefix('/tmp')}:/x"]},
    "time": {"Binds": ["/etc/localtime:/etc/localtime:ro", "/etc/timezone:/etc/timezone:ro"]},
    "certificates": {"Binds": ["/etc/ssl/certs:/etc/ssl/certs:ro", "/usr/share/ca-certificates:/x:ro"]},
    "passwd": {"Binds": ["/etc/passwd:/etc/passwd:ro", "/etc/group:/etc/group:ro"]},
    "modules": {"Binds": ["/lib/modules:/lib/modules:ro"], "CapAdd": ["NET_ADMIN"]},
    "X11": {"Binds": ["/tmp/.X11-unix:/tmp/.X11-unix"], "IpcMode": "host"},
    "D-Bus": {"Binds": ["/run/dbus:/run/dbus:ro"]},
    "systemd": {"Binds": ["/sys/fs/cgroup:/sys/fs/cgroup:ro"], "Tmpfs": {"/run": "", "/run/lock": ""}},
    "VPN": {"Devices": [{"PathOnHost": "/dev/net/tun", "PathInContainer": "/dev/net/tun"}], "CapAdd": ["NET_ADMIN"]},
    "FUSE": {"Devices": [{"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "rwm"}]},
    "KVM": {"Devices": [{"PathOnHost": "/dev/kvm", "PathInContainer": "/dev/kvm"}]},
    "folder of devices": {"Devices": [{"PathOnHost": "/dev/pts", "PathInContainer": "/dev/x"}]},
    "large folder of devices": {"Devices": [{"PathOnHost": f"{FOLDER}/devices", "PathInContainer": "/dev/y"}]},
    "serial line": {"DeviceCgroupRules": ["c 188:* rmw", "b 8:* r"]},
    "capabilities": {"CapAdd": ["NET_RAW", "SYS_TIME", "SYS_NICE", "IPC_LOCK", "CAP_CHOWN"], "CapDrop": ["ALL"]},
    "capability as text": {"CapAdd": "NET_ADMIN", "CapDrop": "MKNOD"},
    "no new privileges": {"SecurityOpt": ["no-new-privileges:true", "label=disable"]},
    "shared IPC": {"IpcMode": "shareable"},
    "host network": {"NetworkMode": "host", "UTSMode": "host"},
    "plain runtime": {"Runtime": "runc"},
    "user namespace": {"UsernsMode": "host"},
    "cgroup": {"CgroupnsMode": "host", "CgroupParent": ""},
    "cgroup of a team": {"CgroupParent": "/teams-vision"},
    "slow disk": {"BlkioDeviceReadBps": [{"Path": "/dev/vda", "Rate": 1 << 20}]},
    "processes of a neighbour": {"PidMode": "container:innocent"},
    "limits": {
        "Memory": 1 << 28,
        "NanoCpus": 10**9,
        "PidsLimit": 100,
        "Ulimits": [{"Name": "nofile", "Soft": 9, "Hard": 9}],
    },
    "logging": {"LogConfig": {"Type": "json-file", "Config": {"max-size": "10m"}}},
    "hosts": {"ExtraHosts": ["host.docker.internal:127.0.0.1"], "Dns": ["1.1.1.1"]},
    "restart": {"RestartPolicy": {"Name": "no"}, "AutoRemove": False},
    "anonymous bind": {"Binds": ["/data"]},
    "empty lists": {"Binds": [], "Mounts": [], "Devices": [], "DeviceRequests": [], "VolumesFrom": []},
    "NFS": {
        "Mounts": [
            volume(
                "",
                "/x",
                DriverConfig={"Name": "local", "Options": {"type": "tmpfs", "device": "tmpfs", "o": "size=1m"}},
            )
        ]
    },
    "tmpfs mount": {"Mounts": [{"Type": "tmpfs", "Target": "/x", "TmpfsOptions": {"SizeBytes": 1 << 20}}]},
    "bind volume of a project": {
        "Mounts": [
            volume("", "/x", DriverConfig={"Name": "local", "Options": {"type": "none", "o": "bind", "device": FOLDER}})
        ]
    },
    "our paths without a GPU": {"Binds": [f"{FOLDER}:/run/convgpu", f"{FOLDER}/file:/etc/ld.so.preload"]},
}

# What a container's process may have beside nothing.
CONFIGS: dict[str, dict[str, Any]] = {
    "variables": {"Env": ["A=b", "A=c", "B", "EMPTY=", "PATH=/bin"]},
    "preload": {"Env": ["LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"]},
    "library path": {"Env": ["LD_LIBRARY_PATH=/usr/local/lib"]},
    "CUDA image": {"Image": CUDA_IMAGE},
    "CUDA variables": {"Env": ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all", "CUDA_VERSION=12"]},
    "no GPU wanted": {"Env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    "labels": {
        "Labels": {"a": "", "A": "x", "traefik.http.routers.x.rule": "Host(`x`)", "devcontainer.metadata": "[{}]"}
    },
    "user": {"User": "1000:1000", "WorkingDir": "/tmp", "Tty": True, "OpenStdin": True},
    "volumes": {"Volumes": {"/data": {}, "/var/lib/x": {}}},
    "ports": {"ExposedPorts": {"80/tcp": {}}},
    "health check": {"Healthcheck": {"Test": ["CMD", "true"], "Interval": 10**9}},
    "entrypoint": {"Entrypoint": ["sh", "-c"], "Cmd": ["true"], "StopSignal": "SIGINT", "StopTimeout": 3},
    "entrypoint as text": {"Entrypoint": "sh", "Cmd": ["-c", "true"]},
    "host name": {"Hostname": "web", "Domainname": "example.org"},
    "networks": {"NetworkingConfig": {"EndpointsConfig": {}}},
    "unknown fields": {"Whatever": {"x": [1, 2, {"Privileged": True}]}, "privileged": None},
    "large": {"Labels": {"x": "y" * 500_000}},
    "unicode": {"Labels": {"größe": "\U0001f40b", "\u2028": "\u017f"}},
}


def creates() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the bodies of harmless containers."""
    for name, host in HOSTS.items():
        yield f"compose {name}", compose(name, **host)
    for name, config in CONFIGS.items():
        yield f"run {name}", {"Image": IMAGE, "Cmd": ["true"], "HostConfig": {"NetworkMode": "none"}, **config}


def context() -> bytes:
    """Return the requests of `docker build`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        text = b"FROM scratch\nLABEL a=b\n"
        row = tarfile.TarInfo("Dockerfile")
        row.size = len(text)
        tar.addfile(row, io.BytesIO(text))
    return out.getvalue()


def calls(container: str) -> Iterator[Call]:
    """Return calls with and without a running container."""
    one = f"/v1.41/containers/{container}"
    for path in (
        *("/_ping", "/version", "/info", "/v1.41/images/json?all=1", "/v1.41/containers/json?all=1", "/v1.41/networks"),
        *("/v1.41/volumes", "/v1.41/plugins", "/v1.41/system/df", "/v1.41/events?since=1&until=2", "/v1.41/swarm"),
        *(f"{one}/json", f"{one}/top", f"{one}/logs?stdout=1", f"{one}/changes", f"{one}/stats?stream=0&one-shot=1"),
        *(f"{one}/archive?path=/etc/hostname", f"/v1.41/images/{IMAGE}/json", f"/v1.41/images/{IMAGE}/history"),
        *("/v1.41/distribution/x/json", "/v1.41/images/search?term=x", "/nothing"),
    ):
        yield Call("GET", path)
    yield Call("HEAD", "/_ping")
    yield Call("HEAD", f"{one}/archive?path=/etc")
    yield Call("OPTIONS", "/v1.41/containers/create")
    yield Call(
        "POST", f"{one}/exec", {"Cmd": ["true"], "AttachStdout": True, "Env": ["A=b"], "User": "root", "Tty": True}
    )
    yield Call("POST", f"{one}/exec", {"Cmd": ["true"], "Env": ["LD_PRELOAD=/x.so"]})
    yield Call("POST", f"{one}/update", {"Memory": 1 << 29, "RestartPolicy": {"Name": "no"}})
    yield Call("POST", f"{one}/rename?name=renamed")
    for action in (
        "pause",
        "unpause",
        "resize?h=1&w=1",
        "kill?signal=CONT",
        "stop?t=0",
        "start",
        "restart?t=0",
        "stop?t=0",
    ):
        yield Call("POST", f"{one}/{action}")
    yield Call("PUT", f"{one}/archive?path=/", context(), TAR)
    yield Call("PUT", f"{one}/archive?path=/etc&noOverwriteDirNonDir=true", context(), TAR)
    yield Call("POST", f"/v1.41/commit?container={container}&repo=kept&changes=ENV+A%3Db", {})
    yield Call("POST", f"/v1.41/commit?container={container}&repo=kept")
    yield Call("POST", "/v1.41/images/kept/tag?repo=kept&tag=2")
    yield Call("DELETE", "/v1.41/images/kept:2")
    yield Call("DELETE", "/v1.41/images/kept")
    yield Call("POST", "/v1.41/build?t=built&rm=1", context(), TAR)
    yield Call("DELETE", "/v1.41/images/built")
    yield Call("POST", "/v1.41/volumes/create", {"Name": "mine", "Driver": "local", "DriverOpts": {}, "Labels": {}})
    nfs = {"type": "nfs", "o": "addr=127.0.0.1,rw", "device": ":/export"}
    yield Call("POST", "/v1.41/volumes/create", {"Name": "nfs", "Driver": "local", "DriverOpts": nfs})
    yield Call("DELETE", "/v1.41/volumes/mine")
    yield Call("DELETE", "/v1.41/volumes/nfs")
    yield Call("POST", "/v1.41/networks/create", {"Name": "mine", "Driver": "null"})
    yield Call("POST", "/v1.41/networks/mine/connect", {"Container": container})
    yield Call("DELETE", "/v1.41/networks/mine")
    yield Call("POST", "/v1.41/containers/prune?filters=%7B%22label%22%3A%5B%22nobody%22%5D%7D")
    yield Call("POST", "/v1.41/images/prune?filters=%7B%22label%22%3A%5B%22nobody%22%5D%7D")
    yield Call("POST", "/v1.41/volumes/prune?filters=%7B%22label%22%3A%5B%22nobody%22%5D%7D")
    yield Call("POST", "/v1.41/build/prune?filters=%7B%22id%22%3A%5B%22nobody%22%5D%7D")
    yield Call("POST", "/v1.41/containers/nobody/start")
    yield Call("POST", "/v1.41/containers/nobody/exec", {"Cmd": ["true"]})
    yield Call("POST", "/v1.41/images/create?fromImage=localhost:1/x&tag=y")
    yield Call("POST", "/v1.41/auth", {"username": "a", "password": "b", "serveraddress": "http://localhost:1"})
    yield Call("POST", "/v1.41/plugins/nobody/push")
