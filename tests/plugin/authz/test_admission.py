"""Limits and total quotas of users and labels."""

import pytest
from engine_says import GPU, HOOK, OURS, inspected

from convgpu.authz.site.rules import parse_rules

CREATE = "/v1.41/containers/create"


def asked(memory=None, env=(HOOK,), **config):
    options = {} if memory is None else {"memory": memory}
    mount = {"Type": "volume", "Target": "/run/convgpu"}
    mount["VolumeOptions"] = {"DriverConfig": {"Name": "convgpu", "Options": options}}
    return {"Image": "i", "Env": list(env), "HostConfig": {**GPU, "Mounts": [mount]}, **config}


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
        ("1%", [HOOK], "limit-too-large"),  # a share is no size
        ("GPU-1:1g,GPU-2:1%", [HOOK], "limit-too-large"),
        (None, [HOOK, "CONVGPU_MEMORY=1%"], "limit-too-large"),
    ],
)
def test_the_largest_limit_at_create(harness, memory, env, rule):
    harness.rules = parse_rules('[users."*"]\nlargest_limit = "4g"')
    assert harness.judge(asked(memory, env)).rule == rule


@pytest.mark.parametrize(
    ("terms", "rule"),
    [
        ({"backing": "unified"}, "limit-too-large"),
        ({"priority": 1}, "priority-too-high"),
        ({"priority": 0}, "limited"),
        ({"priority": 9, "own_priority": 0}, "limited"),  # an administrator gave it that: it may start again
        ({"priority": 0, "own_priority": 1}, "priority-too-high"),
    ],
)
def test_what_a_volume_is_counts_at_the_start(harness, start, terms, rule):
    """Its options were judged of another one: of one that went since, or that was made by the driver's ID."""
    harness.rules = parse_rules('[users."*"]\ntotal_quota = "6g"\nlargest_priority = 0')
    harness.scheduler.terms["v"] = terms
    assert start("v").rule == rule
    harness.rules = parse_rules("")
    assert start("v").rule == "limited"


def test_a_share_is_judged_only_where_sizes_are(harness):
    share = {"Name": "v", "Driver": "convgpu:latest", "DriverOpts": {"memory": "50%"}}
    assert harness.judge(asked("50%")).rule == "limited"
    assert harness.judge(share, "/volumes/create").allow
    for bound in ('largest_limit = "4g"', 'total_quota = "8g"'):
        harness.rules = parse_rules(f'[users."*"]\n{bound}')
        refusal = harness.judge(asked("50%"))
        assert refusal.message.startswith("limit-too-large: memory=50% is a share of the GPU")
        assert harness.judge(share, "/volumes/create").rule == "limit-too-large"


def test_managed_memory_is_a_whole_gpu_where_sizes_are_judged(harness):
    """Whatever its limit, nobody else is there meanwhile; a stranger had a card of 16 GiB for 1 GiB of his quota."""
    options = {"memory": "1g", "backing": "unified"}
    volume = {"Name": "v", "Driver": "convgpu:latest", "DriverOpts": options}
    assert harness.judge(volume, "/volumes/create").allow
    for bound in ('largest_limit = "4g"', 'total_quota = "8g"'):
        harness.rules = parse_rules(f'[users."*"]\n{bound}')
        assert harness.judge(volume, "/volumes/create").message.startswith("limit-too-large: backing=unified takes")
        assert harness.judge(volume | {"DriverOpts": options | {"backing": "vmm"}}, "/volumes/create").allow
        injected = {
            "Image": "i",
            "HostConfig": {"Runtime": "convgpu", "DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}]},
        }
        names = ["CONVGPU_MEMORY=1g", "CONVGPU_BACKING=unified"]
        assert harness.judge({**injected, "Env": names}).rule == "limit-too-large"
        assert harness.judge({**injected, "Env": names[:1]}).allow


@pytest.mark.parametrize(
    ("priority", "passes"),
    [(None, True), ("10", True), ("11", False), ("100", False), ("-100", True), ("nonsense", True), ("1000", True)],
)
def test_the_largest_priority(harness, priority, passes):
    """What is no priority is refused by the volume."""
    options = {"memory": "1g"} | ({} if priority is None else {"priority": priority})
    harness.rules = parse_rules("[users.bob]\nlargest_priority = 10")
    volume = {"Name": "v", "Driver": "convgpu:latest", "DriverOpts": options}
    verdict = harness.judge(volume, "/volumes/create", user="bob")
    assert (verdict.allow, verdict.rule == "priority-too-high") == (passes, not passes)
    assert harness.judge(volume, "/volumes/create", user="carol").allow
    env = [] if priority is None else [f"CONVGPU_PRIORITY={priority}"]
    injected = {"Image": "i", "HostConfig": {"Runtime": "convgpu", **GPU}, "Env": ["CONVGPU_MEMORY=1g", *env]}
    assert harness.judge(injected, user="bob").allow == passes
    assert harness.judge(asked("50%"), user="bob").allow  # sizes are not judged


def test_a_priority_below_the_usual_one_has_to_be_named(harness):
    harness.rules = parse_rules('[users."*"]\nlargest_priority = -5')
    volume = {"Name": "v", "Driver": "convgpu:latest", "DriverOpts": {"memory": "1g"}}
    assert harness.judge(volume, "/volumes/create").rule == "priority-too-high"
    lower = volume | {"DriverOpts": {"memory": "1g", "priority": "-5"}}
    assert harness.judge(lower, "/volumes/create").allow


def test_a_default_is_a_limit(harness):
    harness.rules = parse_rules('default_limit = "1g"')
    assert harness.judge(asked()).rule == "limited"


def test_volume_create_is_judged_too(harness):
    harness.rules = parse_rules('[users.bob]\nlargest_limit = "4g"')
    body = {"Name": "v", "Driver": "convgpu:latest", "DriverOpts": {"memory": "5g"}}
    assert harness.judge(body, "/volumes/create", user="bob").rule == "limit-too-large"
    assert harness.judge(body, "/volumes/create", user="carol").allow


def test_no_new_volume_is_named_like_a_container(harness):
    """Injected limits are known by the container's ID: a stopped container did not start again, or shared the limit."""
    name = "c0ffee00" * 8
    body = {"Name": name, "Driver": "convgpu:latest", "DriverOpts": {"memory": "2g"}}
    refused = harness.judge(body, "/volumes/create")
    assert (refused.rule, "container's ID" in refused.message) == ("gpu-isolation", True)
    assert harness.judge(body | {"Name": ""}, "/volumes/create").allow  # the Engine makes up a name
    assert harness.judge(body | {"Name": name[1:]}, "/volumes/create").allow
    assert harness.judge(body | {"Driver": "local", "DriverOpts": {}}, "/volumes/create").allow
    container = asked("2g")
    container["HostConfig"]["Mounts"][0]["Source"] = name
    assert harness.judge(container).rule == "gpu-isolation"
    harness.scheduler.limits[name] = 2 << 30  # an anonymous volume that is there
    assert harness.judge(container).rule == "limited"
    harness.scheduler.terms[name] = {"injected": True}  # a container that may end before the Engine makes the volume
    assert harness.judge(container).rule == "gpu-isolation"


@pytest.mark.parametrize("driver", ["convgpu", "docker.io/library/convgpu", "index.docker.io/library/convgpu:latest"])
def test_the_driver_has_more_than_one_name(harness, driver):
    """The Engine reads names of plugins as those of images."""
    harness.rules = parse_rules('[users."*"]\nlargest_limit = "4g"')
    body = {"Name": "v", "Driver": driver, "DriverOpts": {"memory": "5g"}}
    assert harness.judge(body, "/volumes/create").rule == "limit-too-large"


def test_a_label_has_a_largest_limit(harness):
    harness.rules = parse_rules('[labels."team=vision"]\nlargest_limit = "1g"')
    assert harness.judge(asked("2g", Labels={"team": "vision"})).rule == "limit-too-large"
    assert harness.judge(asked("2g", Labels={"team": "speech"})).rule == "limited"


def test_the_message_names_the_largest_possible_limit(harness):
    harness.rules = parse_rules('[users.local]\nlargest_limit = "1500m"')
    assert harness.judge(asked("2g")).message == (
        "limit-too-large: 2GiB on one GPU is more than user local may have, 1.46GiB.\n"
        "Type: volume-opt=memory=1500m, or less"
    )


def test_the_total_quota_of_a_user(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "4g"')
    assert start("one").rule == "limited"
    assert start("two").rule == "limited"
    verdict = start("three")
    assert verdict.rule == "total-quota-exceeded"
    assert verdict.message.startswith(
        "total-quota-exceeded: containers of user bob that run or are being started have 4GiB on GPU-"
    )
    assert start("four", user="carol").rule == "limited"
    # One of them starts again: it does not count twice.
    assert start("two").rule == "limited"


def test_ended_containers_do_not_count(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    assert start("one").allow
    assert start("two").rule == "total-quota-exceeded"
    harness.now += 60  # never mounted, so it did not start
    assert start("two").allow
    harness.scheduler.running.add("two")
    harness.now += 60
    assert start("one").rule == "total-quota-exceeded"
    harness.scheduler.running.clear()
    assert start("one").allow


def test_a_container_that_ended_at_once_does_not_count(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    assert start("one").allow
    harness.scheduler.since["one"] = harness.now + 1
    assert start("two").allow
    harness.scheduler.since["two"] = harness.now - 1  # it ended before it was let in again
    assert start("one").rule == "total-quota-exceeded"


def test_the_total_quota_of_a_label(harness, start):
    harness.rules = parse_rules('[labels."team=vision"]\ntotal_quota = "2g"')
    labels = {"team": "vision"}
    assert start("one", Labels=labels).allow
    assert start("two", user="carol", Labels=labels).rule == "total-quota-exceeded"
    assert start("three").allow


def start_injected(harness, name, *env, user="bob", status="created", **host):
    """Start a container into which the runtime `convgpu` injects a limit; only the Engine lists it yet."""
    host = {"Runtime": "convgpu", **GPU, **host}
    seen = {**inspected(host, env or ("CONVGPU_MEMORY=2g",), []), "Id": name, "State": {"Status": status}}
    harness.engine.containers[name] = seen
    verdict = harness.judge(b"", f"/containers/{name}/start", user=user)
    if verdict.allow:
        harness.note(f"/containers/{name}/start", {}, user)
    return verdict.rule


def test_the_total_includes_injected_limits(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "4g"')
    assert start_injected(harness, "a") == "injected"
    assert start_injected(harness, "b", "CONVGPU_MEMORY=3g") == "total-quota-exceeded"
    assert start("one").rule == "limited"
    assert start("two").rule == "total-quota-exceeded"
    assert start_injected(harness, "c", user="carol") == "injected"
    harness.scheduler.running.add("one")
    harness.now += 60  # the first was never started
    assert start("two").rule == "limited"
    assert start_injected(harness, "a") == "total-quota-exceeded"


@pytest.mark.parametrize("status", ["running", "paused", "restarting"])
def test_the_engine_knows_whether_a_container_without_a_volume_runs(harness, status):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    assert start_injected(harness, "a") == "injected"
    harness.engine.containers["a"]["State"]["Status"] = status
    harness.now += 3600
    assert start_injected(harness, "b") == "total-quota-exceeded"
    harness.restart()
    assert start_injected(harness, "b") == "total-quota-exceeded"
    harness.engine.containers["a"]["State"]["Status"] = "exited"
    assert start_injected(harness, "b") == "injected"
    del harness.engine.containers["a"], harness.engine.containers["b"]
    assert start_injected(harness, "c") == "injected"
    harness.now += 600  # as long it may be that the scheduler does not show yet what a and b left
    assert start_injected(harness, "c") == "injected"
    assert harness.owners._owners.keys() == {"c"}


def test_a_container_that_is_started_again_counts_at_once(harness):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    assert start_injected(harness, "a", status="exited") == "injected"
    assert start_injected(harness, "b", status="exited") == "total-quota-exceeded"  # for the Engine, neither runs yet
    harness.restart()
    assert start_injected(harness, "b", status="exited") == "total-quota-exceeded"
    harness.now += 60
    assert start_injected(harness, "b", status="created") == "injected"
    harness.engine.containers["b"]["State"]["Status"] = "exited"  # its first run was short
    assert start_injected(harness, "c") == "injected"


def test_the_schedulers_limit_counts_once_the_container_is_registered(harness):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "3g"')
    assert start_injected(harness, "a") == "injected"
    harness.scheduler.limits["a"] = 1 << 30  # an administrator lowered it
    harness.scheduler.running.add("a")
    assert start_injected(harness, "b") == "injected"


def test_an_injected_limit_counts_on_the_chosen_gpus(harness):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    one = {"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ["1"]}]}
    assert (
        start_injected(harness, "a", "CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=0", DeviceRequests=[]) == "injected"
    )
    assert start_injected(harness, "b", **one) == "injected"
    assert start_injected(harness, "c", "CONVGPU_MEMORY=GPU-2:1g") == "total-quota-exceeded"
    assert start_injected(harness, "d", "CONVGPU_MEMORY=1g", DeviceRequests=[{"Count": 1}]) == "total-quota-exceeded"
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"\n[users.eve]\ntotal_quota = "2g"')
    assert (
        start_injected(harness, "f", "CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=1", DeviceRequests=[], user="eve")
        == "injected"
    )
    # What is no GPU's name to the runtime means all of them to it.
    mixed = "NVIDIA_VISIBLE_DEVICES=0,nvidia.com/gpu=1"
    assert (
        start_injected(harness, "g", "CONVGPU_MEMORY=1g", mixed, DeviceRequests=[], user="eve")
        == "total-quota-exceeded"
    )
    assert (
        start_injected(harness, "e", "CONVGPU_MEMORY=1g", DeviceRequests=[{"DeviceIDs": ["nvidia.com/gpu=1"]}])
        == "total-quota-exceeded"
    )


def test_two_volumes_have_the_sum_of_their_limits(harness):
    harness.scheduler.limits.update(one=2 << 30, two=2 << 30)
    both = inspected(GPU, mounts=[{**OURS, "Name": "one"}, {**OURS, "Name": "two", "Destination": "/x"}])
    assert harness.start(both).rule == "limited"
    harness.rules = parse_rules('[users.local]\nlargest_limit = "3g"')
    assert harness.start(both).rule == "limit-too-large"


def test_a_volume_in_use_is_refused_to_other_users(harness, start):
    assert start("one").rule == "limited"
    assert start("one", user="carol").rule == "limited"  # it did not run yet
    harness.scheduler.running.add("one")
    assert start("one", user="carol").rule == "limited"
    verdict = start("one", user="bob")
    assert verdict.message.startswith("gpu-isolation: the volume one is that of a running container of carol")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"memory": "2g"}, "limited"),
        ({"memory": "3g"}, "total-quota-exceeded"),
        ({"memory": "GPU-2:3g,GPU-1:1g"}, "limited"),
        ({"memory": "GPU-2:1g,GPU-1:3g"}, "total-quota-exceeded"),
        ({"memory": "3g", "gpus": "GPU-2"}, "limited"),
        ({"memory": "3g", "gpus": "1"}, "limited"),
        ({"memory": "3g", "gpus": "0,1"}, "total-quota-exceeded"),
        ({"memory": "3g", "gpus": "any"}, "total-quota-exceeded"),
        ({"memory": "nonsense"}, "limited"),  # the volume says it better
        ({}, "total-quota-exceeded"),  # by its variable
    ],
)
def test_a_container_that_is_removed_at_its_end_is_refused_when_it_is_made(harness, start, options, rule):
    """`docker run --rm` of Docker 28 waits for ever, and says nothing, where the start is refused."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "4g"')
    assert start("one").allow
    request = asked(env=(HOOK, "CONVGPU_MEMORY=4g"))
    request["HostConfig"]["Mounts"][0]["VolumeOptions"]["DriverConfig"]["Options"] = options
    assert harness.judge(request, user="bob").rule == "limited"
    request["HostConfig"]["AutoRemove"] = True
    assert harness.judge(request, user="bob").rule == rule
    assert harness.judge(request, user="carol").rule == "limited"


def test_a_volume_that_is_there_has_its_own_limit_when_a_container_is_made(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "4g"')
    assert start("one").allow
    request = {"Image": "i", "Env": [HOOK], "HostConfig": {**GPU, "Binds": ["two:/run/convgpu"], "AutoRemove": True}}
    request["HostConfig"]["VolumeDriver"] = "convgpu"
    for size, rule in ((2, "limited"), (3, "total-quota-exceeded")):
        harness.scheduler.limits["two"] = size << 30
        assert harness.judge(request, user="bob").rule == rule


def test_a_limit_is_set_before_the_first_program_runs(harness, start):
    harness.scheduler.limits = {"one": 0, "two": 0, "three": 0}
    assert start("one").rule == "limit-missing"
    assert start("one", env=[HOOK, "CONVGPU_MEMORY=2g"]).rule == "limited"
    assert start("two", env=[HOOK, "CONVGPU_MEMORY=bad"]).message == "limit-missing: memory=bad: not a size"
    harness.rules = parse_rules('default_limit = "1g"')
    assert start("three").rule == "limited"
    assert harness.scheduler.limits == {"one": 2 << 30, "two": 0, "three": 1 << 30}


def test_an_exemption_lifts_one_rule(harness):
    harness.rules = parse_rules('[[exempt]]\nimage = "i"\nrules = ["gpu-needs-limit"]')
    assert harness.judge({"Image": "i", "HostConfig": GPU}).rule == "exempt"
    assert harness.judge({"Image": "j", "HostConfig": GPU}).rule == "gpu-needs-limit"
    assert harness.judge({"Image": "i", "HostConfig": {**GPU, "Privileged": True}}).rule == "privileged"


def test_an_exemption_for_plugins(harness):
    harness.rules = parse_rules('[[exempt]]\nusers = ["alice"]\nrules = ["plugin-management"]')
    assert harness.judge(b"", "/plugins/x/enable", user="alice").allow
    assert not harness.judge(b"", "/plugins/x/enable", user="bob").allow


def test_with_rm_the_images_limit_counts_at_the_create(harness):
    """The client of one whose create passed hung for nine minutes over the refused start."""
    harness.rules = parse_rules('[users."*"]\ntotal_quota = "4g"')
    harness.engine.runtime = "convgpu"
    harness.engine.images["i"] = {"Config": {"Env": ["CONVGPU_MEMORY=5g", "NVIDIA_VISIBLE_DEVICES=all"]}}
    request = {"Image": "i", "HostConfig": {"AutoRemove": True}}
    assert harness.judge(request).rule == "total-quota-exceeded"
    assert harness.judge(request | {"Env": ["CONVGPU_MEMORY=3g"]}).allow
    assert harness.judge(request | {"HostConfig": {}}).allow  # its start is refused, and says why
