"""What an Engine says of itself and of a container, as far as authorization reads it."""

GPU = {"DeviceRequests": [{"Count": -1}]}
HOOK = "LD_PRELOAD=/run/convgpu/libconvgpu.so"
# Beside what a host has: an Engine that is new enough for strict rules (`HostFacts`).
NEW_ENGINE = {"engine": (28, 5), "go": "go1.24.9", "cgroupns": "private", "log_driver": "json-file"}
OURS = {"Type": "volume", "Name": "mine", "Source": "/x", "Destination": "/run/convgpu", "Driver": "convgpu:latest"}


def inspected(host=None, env=(HOOK,), mounts=(OURS,), **config):
    """Return the Engine's inspection of a container; fields that it always sends are never missing."""
    return {
        "Id": "c" * 64,
        "Image": "sha256:1",
        "Config": {"Image": "i", "Env": list(env), "Labels": {}, **config},
        "HostConfig": {"Runtime": "runc", "NetworkMode": "none", **(host or {})},
        "Mounts": list(mounts),
    }
