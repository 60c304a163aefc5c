"""Swarm services whose tasks would get a GPU without a limit or the host, or bypass the hook; and harmless ones.

Tasks never pass the authorization, so a service is judged by what its tasks will be. Where a GPU is meant, the
Engine's default runtime is one that reads variables as NVIDIA's does.
"""

from collections.abc import Iterator
from typing import Any

from bypasses import CUDA_IMAGE, DISGUISED, HOOK, IMAGE, VISIBLE, Look, Way, covers, mounts, mounts_volume, without_hook

# What the node offers: Swarm hands out a number of some, and names of others.
RESOURCES = ["gpumem=65536", "NVIDIA-GPU=8", "gpu=GPU-a", "gpu=GPU-b"]


def bind(source: str, target: str = "/x") -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target}


def volume(source: str = "", driver: str = "", target: str = "/x", **options: str) -> dict[str, Any]:
    config = {"Name": driver, "Options": options}
    return {"Type": "volume", "Source": source, "Target": target, "VolumeOptions": {"DriverConfig": config}}


OURS = volume(driver="convgpu", target="/run/convgpu", memory="1g")
FILES = {"UID": "0", "GID": "0", "Mode": 0o444}


def specification(name: str, task: dict[str, Any], resources: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "Name": name,
        "Labels": {"folder": "etc"},
        "TaskTemplate": {
            "ContainerSpec": {"Image": IMAGE, "Command": ["true"], **task},
            "RestartPolicy": {"Condition": "none"},
            "Networks": [{"Target": "host"}],
            "Resources": {"Reservations": {"GenericResources": list(resources)}},
        },
        "Mode": {"Replicated": {"Replicas": 1}},
    }


def sees(variable: str) -> Look:
    """Tell whether NVIDIA's runtime would give a GPU for a variable."""
    return lambda seen: (
        seen["HostConfig"]["Runtime"] == "nvidia"
        and any(row.startswith(f"{variable}=") for row in seen["Config"]["Env"])
    )


def capable(seen: dict[str, Any]) -> bool:
    return "SYS_ADMIN" in "".join(seen["HostConfig"]["CapAdd"] or ()).upper()


def services(files: dict[str, str]) -> Iterator[tuple[Way, dict[str, Any]]]:
    """Return the attempts.

    Args:
        files: ids of the secret and the config that Swarm has, by `secret` and `config`.
    """
    for name, way, resources in (*_host_ways(), *_gpu_ways(), *_hook_ways(files)):
        yield Way(name, way[1]), specification(f"s-{abs(hash(name))}", way[0], resources)
    # By its own name a template becomes a path.
    yield (
        Way("bind by the service's name", mounts("/etc")),
        specification("etc", {"Mounts": [bind("/{{.Service.Name}}")]}),
    )


_Row = tuple[str, tuple[dict[str, Any], Look], tuple[dict[str, Any], ...]]


def _host_ways() -> Iterator[_Row]:
    for source in ("/", "/etc", "//etc/./", "/run/docker"):
        yield f"bind {source}", ({"Mounts": [bind(source)]}, _binds), ()
    for source in ('/{{"etc"}}', '/{{print "run/" "docker"}}', '/{{index .Service.Labels "folder"}}'):
        yield f"bind {source}", ({"Mounts": [bind(source)]}, _binds), ()
    disguises = {
        "bind": {"type": "none", "o": "bind", "device": "/"},
        "bind by template": {"type": "none", "o": "bind", "device": '/{{"etc"}}'},
        "bind by template in o": {"type": "none", "o": '{{"bind"}}', "device": "/etc"},
        "proc": {"type": "proc", "device": "proc"},
    }
    for name, options in disguises.items():
        yield (
            f"volume {name}",
            ({"Mounts": [volume(driver="local", **options)]}, lambda seen: len(seen["Mounts"]) == 1),
            (),
        )
    yield "existing volume", ({"Mounts": [volume(DISGUISED)]}, mounts_volume(DISGUISED)), ()
    template = "".join(("{{print ", f'"{DISGUISED}"', "}}"))
    yield "existing volume by template", ({"Mounts": [volume(template)]}, mounts_volume(DISGUISED)), ()
    for name in ("CAP_SYS_ADMIN", "SYS_ADMIN", "cap_sys_admin"):
        yield f"capability {name}", ({"CapabilityAdd": [name]}, capable), ()


def _binds(seen: dict[str, Any]) -> bool:
    return any(row["Type"] == "bind" and row["Destination"] == "/x" for row in seen["Mounts"])


def _gpu_ways() -> Iterator[_Row]:
    yield "variable", ({"Env": [VISIBLE]}, sees("NVIDIA_VISIBLE_DEVICES")), ()
    yield "value by template", ({"Env": ['NVIDIA_VISIBLE_DEVICES={{"all"}}']}, sees("NVIDIA_VISIBLE_DEVICES")), ()
    yield "image", ({"Image": CUDA_IMAGE}, sees("NVIDIA_VISIBLE_DEVICES")), ()
    kinds = {
        "a number": {"DiscreteResourceSpec": {"Kind": "NVIDIA-GPU", "Value": 1}},
        "a name": {"DiscreteResourceSpec": {"Kind": "gpu", "Value": 1}},
    }
    for name, resource in kinds.items():
        variable = f"DOCKER_RESOURCE_{resource['DiscreteResourceSpec']['Kind']}".upper()
        yield f"resource by {name}", ({}, sees(variable)), (resource,)


def _hook_ways(files: dict[str, str]) -> Iterator[_Row]:
    limited = {"Env": [VISIBLE, HOOK], "Mounts": [OURS]}
    environments = {
        "no preload": [VISIBLE],
        "another first": [VISIBLE, "LD_PRELOAD=/x.so:/run/convgpu/libconvgpu.so"],
        "audit": [VISIBLE, HOOK, "LD_AUDIT=/x.so"],
        "another by template": [VISIBLE, 'LD_PRELOAD={{"/x.so"}}:/run/convgpu/libconvgpu.so'],
    }
    for name, rows in environments.items():
        yield name, ({**limited, "Env": rows}, without_hook), ()
    for target in ("/run/convgpu/x", "/usr/lib"):
        mount = bind("/tmp", target)
        yield f"bind over {target}", ({**limited, "Mounts": [OURS, mount]}, covers(target)), ()
    tmpfs = {"Type": "tmpfs", "Target": "/run/convgpu/driver"}
    yield "tmpfs over", ({**limited, "Mounts": [OURS, tmpfs]}, lambda seen: len(seen["HostConfig"]["Mounts"]) == 2), ()
    yield (
        "bind over by template",
        ({**limited, "Mounts": [OURS, bind("/tmp", '/usr/{{"lib"}}')]}, covers("/usr/lib")),
        (),
    )
    for kind, target in (
        ("secret", "/run/convgpu/libconvgpu.so"),
        ("secret", "../convgpu/libconvgpu.so"),
        ("config", "/etc/ld.so.preload"),
        ("config", "etc/ld.so.preload"),
    ):
        row = {f"{kind.title()}ID": files[kind], f"{kind.title()}Name": kind, "File": {"Name": target, **FILES}}
        # The Engine shows such files nowhere; that it made the container is all that can be seen.
        yield f"{kind} over {target}", ({**limited, f"{kind.title()}s": [row]}, sees("NVIDIA_VISIBLE_DEVICES")), ()


def innocents(files: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Return services that have nothing to do with GPUs."""
    secret = {"SecretID": files["secret"], "SecretName": "secret", "File": {"Name": "password", **FILES}}
    config = {"ConfigID": files["config"], "ConfigName": "config", "File": {"Name": "/etc/nginx.conf", **FILES}}
    memory = {"DiscreteResourceSpec": {"Kind": "gpumem", "Value": 1024}}
    tasks: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
        "web": ({"Secrets": [secret], "Configs": [config], "Env": ["SLOT={{.Task.Slot}}"]}, ()),
        "data": ({"Mounts": [volume("data-{{.Task.Slot}}"), bind("/srv", "/srv")]}, ()),
        "void": ({"Image": CUDA_IMAGE, "Env": ["NVIDIA_VISIBLE_DEVICES=void"]}, ()),
        "trained": ({"Env": [VISIBLE, HOOK], "Mounts": [OURS]}, ()),
        "reserved": ({"Env": [VISIBLE, HOOK], "Mounts": [volume(driver="convgpu", target="/run/convgpu")]}, (memory,)),
        "labelled": ({"Labels": {"com.docker.stack.namespace": "shop"}, "CapabilityAdd": ["CAP_NET_ADMIN"]}, ()),
    }
    for name, (task, resources) in tasks.items():
        yield specification(name, task, resources)
