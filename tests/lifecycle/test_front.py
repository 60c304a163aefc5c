"""What people look at and plug in, from the managed plugin as it is installed, found by asking the Engine."""

import json
import re
import subprocess
import sys

import pytest
import requests

pytestmark = pytest.mark.engine

GIB = 1 << 30


def test_page_metrics_and_description_of_an_installed_plugin(engine, plugin, hold):
    holder = hold(plugin, "2g", "1g")
    holder.wait_until_holding(GIB)
    assert engine.administration(plugin, "/v1/openapi.json")["info"]["title"] == "ConvGPU"

    command = [sys.executable, "-m", "convgpu.cli", "--host", engine.host]
    told = subprocess.run([*command, "metrics"], capture_output=True, text=True, check=True, timeout=300).stdout
    assert "convgpu_scheduler_up 1.0\n" in told
    used = re.findall(r"^convgpu_container_used_bytes\{.*\} (\S+)$", told, re.MULTILINE)
    assert max(map(float, used)) >= GIB

    page = subprocess.Popen([*command, "dashboard"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert page.stdout is not None
        url = page.stdout.readline().strip()
        assert "<title>ConvGPU</title>" in requests.get(url, timeout=120).text
        with requests.get(f"{url}stream", timeout=120, stream=True) as stream:
            lines = iter(stream.iter_lines())
            while next(lines) != b"event: state":
                pass
            state = json.loads(next(lines).removeprefix(b"data: "))
        assert max(share["usage"] for one in state["containers"] for share in one["devices"]) >= GIB
    finally:
        page.terminate()
        page.wait(120)
        page.stdout.close()
