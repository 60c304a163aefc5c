"""What a user or a label may have: by container, and by the sum of what runs."""

import pytest
from engine_says import GPU, HOOK, OURS, inspected

from convgpu.authz.facts.owners import Owners
from convgpu.authz.site.rules import parse_rules

CREATE = "/v1.41/containers/create"


def asked(memory=None, env=(HOOK,), **config):
    options = {} if memory is None else {"memory": memory}
    mount = {"Type": "volume", "Target": "/run/convgpu"}
    mount["VolumeOptions"] = {"DriverConfig": {"Name": "convgpu", "Options": options}}
    return {"Image": "i", "Env": list(env), "HostConfig": {**GPU, "Mounts": [mount]}, **config}


@pytest.fixture
def start(world):
    """Start a container with the volume `name`, whose limit is 2 GiB, as the fake scheduler says."""

    def started(name, user="bob", **config):
        world.ledger.limits.setdefault(name, 2 << 30)
        return world.start(inspected(GPU, mounts=[{**OURS, "Name": name}], **config), user=user)

    return started


@pytest.mark.parametrize(
    ("memory", "env", "rule"),
    [
        ("2g", [HOOK], "limited"),
        ("4g", [HOOK], "limited"),
        ("4097m", [HOOK], "limit-too-large"),
        ("GPU-1:1g,GPU-2:5g", [HOOK], "limit-too-large"),
        (None, [HOOK, "CONVGPU_MEMORY=5g"], "limit-too-large"),
        (None, [HOOK, "CONVGPU_MEMORY=1g"], "limited"),
        (None, [HOOK], "limit-missing"),
        ("nonsense", [HOOK], "limited"),  # the volume says it better
    ],
)
def test_the_largest_limit_at_create(world, memory, env, rule):
    world.rules = parse_rules('[users."*"]\nlargest_limit = "4g"')
    assert world.judge(asked(memory, env)).rule == rule


def test_a_default_is_a_limit(world):
    world.rules = parse_rules('default_limit = "1g"')
    assert world.judge(asked()).rule == "limited"


def test_a_volume_of_its_own_is_judged_too(world):
    world.rules = parse_rules('[users.bob]\nlargest_limit = "4g"')
    body = {"Name": "v", "Driver": "convgpu:latest", "DriverOpts": {"memory": "5g"}}
    assert world.judge(body, "/volumes/create", user="bob").rule == "limit-too-large"
    assert world.judge(body, "/volumes/create", user="carol").allow


def test_a_label_has_bounds_as_well(world):
    world.rules = parse_rules('[labels."team=vision"]\nlargest_limit = "1g"')
    assert world.judge(asked("2g", Labels={"team": "vision"})).rule == "limit-too-large"
    assert world.judge(asked("2g", Labels={"team": "speech"})).rule == "limited"


def test_the_message_says_what_would_do(world):
    world.rules = parse_rules('[users.local]\nlargest_limit = "1500m"')
    assert world.judge(asked("2g")).message == (
        "limit-too-large: 2GiB on one GPU is more than user local may have, 1.46GiB.\n"
        "Type: volume-opt=memory=1500m, or less"
    )


def test_the_sum_of_a_user(world, start):
    world.rules = parse_rules('[users.bob]\nlargest_sum = "4g"')
    assert start("one").rule == "limited"
    assert start("two").rule == "limited"
    verdict = start("three")
    assert verdict.rule == "sum-too-large"
    assert verdict.message.startswith("sum-too-large: the running containers of user bob have 4GiB on GPU-")
    assert start("four", user="carol").rule == "limited"
    # One of them starts again: it does not count twice.
    assert start("two").rule == "limited"


def test_what_ended_counts_no_more(world, start):
    world.rules = parse_rules('[users.bob]\nlargest_sum = "2g"')
    assert start("one").allow
    assert start("two").rule == "sum-too-large"
    world.now += 60  # never mounted, so it did not start
    assert start("two").allow
    world.ledger.running.add("two")
    world.now += 60
    assert start("one").rule == "sum-too-large"
    world.ledger.running.clear()
    assert start("one").allow


def test_what_ran_and_ended_at_once_counts_no_more(world, start):
    world.rules = parse_rules('[users.bob]\nlargest_sum = "2g"')
    assert start("one").allow
    world.ledger.since["one"] = world.now + 1
    assert start("two").allow
    world.ledger.since["two"] = world.now - 1  # it ended before it was let in again
    assert start("one").rule == "sum-too-large"


def test_the_sum_of_a_label(world, start):
    world.rules = parse_rules('[labels."team=vision"]\nlargest_sum = "2g"')
    labels = {"team": "vision"}
    assert start("one", Labels=labels).allow
    assert start("two", user="carol", Labels=labels).rule == "sum-too-large"
    assert start("three").allow


def covered(world, name, *env, user="bob", status="created", **host):
    """Start a container that the runtime `convgpu` covers; the scheduler never hears of it, the Engine does."""
    host = {"Runtime": "convgpu", **GPU, **host}
    seen = {**inspected(host, env or ("CONVGPU_MEMORY=2g",), []), "Id": name, "State": {"Status": status}}
    world.view.containers[name] = seen
    return world.judge(b"", f"/containers/{name}/start", user=user).rule


def test_the_sum_has_containers_without_a_volume(world, start):
    world.rules = parse_rules('[users.bob]\nlargest_sum = "4g"')
    assert covered(world, "a") == "covered"
    assert covered(world, "b", "CONVGPU_MEMORY=3g") == "sum-too-large"
    assert start("one").rule == "limited"
    assert start("two").rule == "sum-too-large"
    assert covered(world, "c", user="carol") == "covered"
    world.ledger.running.add("one")
    world.now += 60  # the first was never started
    assert start("two").rule == "limited"
    assert covered(world, "a") == "sum-too-large"


@pytest.mark.parametrize("status", ["running", "paused", "restarting"])
def test_the_engine_tells_whether_one_without_a_volume_runs(world, status):
    world.rules = parse_rules('[users.bob]\nlargest_sum = "2g"')
    assert covered(world, "a") == "covered"
    world.view.containers["a"]["State"]["Status"] = status
    world.now += 3600
    assert covered(world, "b") == "sum-too-large"
    world.owners = Owners(world.owners._path, lambda: world.now)
    assert covered(world, "b") == "sum-too-large"
    world.view.containers["a"]["State"]["Status"] = "exited"
    assert covered(world, "b") == "covered"
    del world.view.containers["a"], world.view.containers["b"]
    assert covered(world, "c") == "covered"
    assert world.owners._owners.keys() == {"c"}


def test_one_that_is_started_again_counts_at_once(world):
    world.rules = parse_rules('[users.bob]\nlargest_sum = "2g"')
    assert covered(world, "a", status="exited") == "covered"
    assert covered(world, "b", status="exited") == "sum-too-large"  # for the Engine, neither runs yet
    world.owners = Owners(world.owners._path, lambda: world.now)
    assert covered(world, "b", status="exited") == "sum-too-large"
    world.now += 60
    assert covered(world, "b", status="created") == "covered"
    world.view.containers["b"]["State"]["Status"] = "exited"  # its first run was short
    assert covered(world, "c") == "covered"


def test_the_scheduler_tells_once_it_knows_one_without_a_volume(world):
    world.rules = parse_rules('[users.bob]\nlargest_sum = "3g"')
    assert covered(world, "a") == "covered"
    world.ledger.limits["a"] = 1 << 30  # an administrator lowered it
    world.ledger.running.add("a")
    assert covered(world, "b") == "covered"


def test_a_container_without_a_volume_counts_on_its_own_gpus(world):
    world.rules = parse_rules('[users.bob]\nlargest_sum = "2g"')
    one = {"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ["1"]}]}
    assert covered(world, "a", "CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=0", DeviceRequests=[]) == "covered"
    assert covered(world, "b", **one) == "covered"
    assert covered(world, "c", "CONVGPU_MEMORY=GPU-2:1g") == "sum-too-large"
    assert covered(world, "d", "CONVGPU_MEMORY=1g", DeviceRequests=[{"Count": 1}]) == "sum-too-large"
    world.rules = parse_rules('[users.bob]\nlargest_sum = "2g"\n[users.eve]\nlargest_sum = "2g"')
    assert (
        covered(world, "f", "CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=1", DeviceRequests=[], user="eve") == "covered"
    )
    # What is no GPU's name to the runtime means all of them to it.
    mixed = "NVIDIA_VISIBLE_DEVICES=0,nvidia.com/gpu=1"
    assert covered(world, "g", "CONVGPU_MEMORY=1g", mixed, DeviceRequests=[], user="eve") == "sum-too-large"
    assert (
        covered(world, "e", "CONVGPU_MEMORY=1g", DeviceRequests=[{"DeviceIDs": ["nvidia.com/gpu=1"]}])
        == "sum-too-large"
    )


def test_two_volumes_have_the_sum_of_their_limits(world):
    world.ledger.limits.update(one=2 << 30, two=2 << 30)
    both = inspected(GPU, mounts=[{**OURS, "Name": "one"}, {**OURS, "Name": "two", "Destination": "/x"}])
    assert world.start(both).rule == "limited"
    world.rules = parse_rules('[users.local]\nlargest_limit = "3g"')
    assert world.start(both).rule == "limit-too-large"


def test_a_volume_in_use_is_nobody_elses(world, start):
    assert start("one").rule == "limited"
    assert start("one", user="carol").rule == "limited"  # it did not run yet
    world.ledger.running.add("one")
    assert start("one", user="carol").rule == "limited"
    verdict = start("one", user="bob")
    assert verdict.message.startswith("gpu-isolation: the volume one is that of a running container of carol")


def test_owners_outlive_the_plugin(world, start, tmp_path):
    world.rules = parse_rules('[users.bob]\nlargest_sum = "2g"')
    assert start("one").allow
    world.ledger.running.add("one")
    world.owners = Owners(tmp_path / "owners.json", lambda: world.now + 1000)
    assert start("two").rule == "sum-too-large"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"one": 7}', '{"one": {"user": "bob"}}'])
def test_owners_that_cannot_be_read_are_forgotten(tmp_path, text, caplog):
    (tmp_path / "owners.json").write_text(text)
    Owners(tmp_path / "owners.json")
    assert "cannot be read" in caplog.text


def test_a_limit_is_given_before_the_first_program_could_ask(world, start):
    world.ledger.limits = {"one": 0, "two": 0, "three": 0}
    assert start("one").rule == "limit-missing"
    assert start("one", env=[HOOK, "CONVGPU_MEMORY=2g"]).rule == "limited"
    assert start("two", env=[HOOK, "CONVGPU_MEMORY=bad"]).message == "limit-missing: memory=bad: not a size"
    world.rules = parse_rules('default_limit = "1g"')
    assert start("three").rule == "limited"
    assert world.ledger.limits == {"one": 2 << 30, "two": 0, "three": 1 << 30}


def test_an_exemption_lifts_one_rule(world):
    world.rules = parse_rules('[[exempt]]\nimage = "i"\nrules = ["gpu-needs-limit"]')
    assert world.judge({"Image": "i", "HostConfig": GPU}).rule == "exempt"
    assert world.judge({"Image": "j", "HostConfig": GPU}).rule == "gpu-needs-limit"
    assert world.judge({"Image": "i", "HostConfig": {**GPU, "Privileged": True}}).rule == "privileged"


def test_an_exemption_for_plugins(world):
    world.rules = parse_rules('[[exempt]]\nusers = ["alice"]\nrules = ["plugin-management"]')
    assert world.judge(b"", "/plugins/x/enable", user="alice").allow
    assert not world.judge(b"", "/plugins/x/enable", user="bob").allow
