#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One container with a limit of 2 GiB, by docker-py: examples/docker_py.py [IMAGE CMD...].

Without a card (CONVGPU_DEVICES=simulated:16GiB): SIMULATED=1 examples/docker_py.py
"""

import os
import sys

import docker
from docker.types import DeviceRequest, DriverConfig, Mount

image, *command = sys.argv[1:] or ["convgpu/demo", "gpu-hold", "1g"]
# An anonymous volume: it goes with the container, and its options are the limit.
limit = Mount(
    "/run/convgpu", None, type="volume", driver_config=DriverConfig("convgpu", {"memory": "2g", "wait": "5m"})
)
environment = {"LD_PRELOAD": "/run/convgpu/libconvgpu.so"}
gpus = [DeviceRequest(count=-1, capabilities=[["gpu"]])]
if os.environ.get("SIMULATED"):
    environment["LD_LIBRARY_PATH"], gpus = "/run/convgpu/driver", []

client = docker.from_env()
container = client.containers.run(
    image, command, detach=True, mounts=[limit], environment=environment, device_requests=gpus, network_mode="none"
)
try:
    status = container.wait()["StatusCode"]
    sys.stdout.write(container.logs(stderr=False).decode())
    sys.stderr.write(container.logs(stdout=False).decode())
finally:
    container.remove(v=True, force=True)  # `remove=True` above would leave the volume
sys.exit(status)
