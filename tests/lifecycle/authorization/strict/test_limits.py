"""Limits that the runtime injects: no second one beside a volume's, which no quota counts; and each has its end."""

import os
import signal

import pytest
from raw_engine import RawEngine
from strict_run import API, body, logs

pytestmark = pytest.mark.engine


def with_volume(target: str, *variables: str) -> dict[str, object]:
    options = {"DriverConfig": {"Name": "convgpu", "Options": {"memory": "600m"}}}
    mount = {"Type": "volume", "Source": "", "Target": target, "VolumeOptions": options}
    return body({"Mounts": [mount]}, "sh", "-c", "env; exec sleep 600") | {"Env": list(variables)}


def test_a_second_limit_is_refused_and_not_given(raw: RawEngine, site) -> None:
    """A container had 15 GiB of a quota of 6, and asked for no GPU, which another one could have handed it."""
    create = f"{API}/containers/create"
    refused = raw.post(create, with_volume("/vol", "CONVGPU_MEMORY=16g"))
    assert (refused.denied, b"hook-shadowed" in refused.raw) == (True, True), refused
    # As a restart policy starts one that was made before.
    site.configure({"authorization-plugins": []})
    folders = ("/vol", "/run/convgpu")
    made = [raw.post(create, with_volume(folder, "CONVGPU_MEMORY=16g")).json["Id"] for folder in folders]
    try:
        assert [raw.post(f"{API}/containers/{each}/start").status for each in made] == [204, 204]
        limits = [device["limit"] for row in site.containers("convgpu") for device in row["devices"]]
        assert limits == [600 << 20] * 2
        assert ["LD_PRELOAD" in logs(raw, each) for each in made] == [False, False]
    finally:
        for each in made:
            raw.remove(each)
        site.configure({"authorization-plugins": ["convgpu"]})


def test_an_end_that_was_not_registered_is_learned_from_the_engine(raw: RawEngine, site) -> None:
    """Where all limits are injected, no volume is ConvGPU's: its list was taken for that of another driver's."""
    asked = body({}, "sleep", "600") | {"Env": ["CONVGPU_MEMORY=1g", "NVIDIA_VISIBLE_DEVICES=all"]}
    made = raw.post(f"{API}/containers/create", asked).json["Id"]
    scheduler = site.processes("convgpu")["daemon"]

    def state() -> list[object]:
        return [row["state"] for row in site.containers("convgpu") if row["name"] == made]

    try:
        assert raw.post(f"{API}/containers/{made}/start").status == 204
        assert state() == ["running"]
        assert site("volume", "ls", "-q", "-f", "driver=convgpu:latest") == ""
        os.kill(scheduler, signal.SIGSTOP)  # the runtime waits two seconds for it
        assert raw.post(f"{API}/containers/{made}/kill").status == 204
        site.wait_for("it has ended", lambda: raw.get(f"{API}/containers/{made}/json")["State"]["Status"] == "exited")
        os.kill(scheduler, signal.SIGCONT)
        site.wait_for("the scheduler knows", lambda: state() == ["ended"])
        assert raw.post(f"{API}/containers/{made}/start").status == 204
        assert state() == ["running"]
    finally:
        os.kill(scheduler, signal.SIGCONT)
        raw.remove(made)
    site.wait_for("it is gone", lambda: state() == [])
