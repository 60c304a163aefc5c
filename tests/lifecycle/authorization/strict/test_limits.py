"""A container has one limit: beside that of a ConvGPU volume the runtime gives it no other, which no quota counts."""

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
