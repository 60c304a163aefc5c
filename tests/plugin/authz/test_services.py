"""Swarm services are judged by the containers that their tasks will be."""

import pytest
import strict_site
from engine_says import HOOK

from convgpu.authz.site.rules import parse_rules


def service(**task):
    return {"Name": "s", "TaskTemplate": {"ContainerSpec": {"Image": "i", **task}}}


def test_a_service_is_judged_in_place_of_its_tasks(harness):
    uri = "/v1.41/services/create"
    assert harness.judge(service(), uri).rule == "no-gpu"
    assert harness.judge(service(Mounts=[{"Type": "bind", "Source": "/", "Target": "/x"}]), uri).rule == "host-path"
    assert harness.judge(service(CapabilityAdd=["CAP_SYS_ADMIN"]), uri).rule == "capability"
    harness.engine.runtime = "nvidia"
    assert harness.judge(service(), uri).rule == "gpu-needs-limit"
    assert harness.judge(service(Env=["NVIDIA_VISIBLE_DEVICES=void"]), uri).rule == "no-gpu"
    harness.engine.images["i"] = {"Config": {"Env": ["A=b"]}}
    assert harness.judge(service(), "/services/s/update?version=1").rule == "no-gpu"
    ours = {"Type": "volume", "Target": "/run/convgpu"}
    ours["VolumeOptions"] = {"DriverConfig": {"Name": "convgpu", "Options": {"memory": "2g"}}}
    asked = service(Env=[HOOK, "NVIDIA_VISIBLE_DEVICES=all"], Mounts=[ours])
    assert harness.judge(asked, uri).rule == "limited"


def mounting(**mount):
    return service(Mounts=[{"Type": "bind", "Source": "/srv", "Target": "/x", **mount}])


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (mounting(Source='/{{"run/docker"}}'), "service-template"),
        (mounting(Source="/{{.Service.Labels.x}}"), "service-template"),
        (mounting(Source="/{{"), "service-template"),
        (mounting(Target='/{{print "etc"}}'), "service-template"),
        (mounting(Source="/{{.Service.Name}}"), "host-path"),
        (mounting(Source="/srv/{{ .Node.Hostname }}/{{.Task.Slot}}"), "no-gpu"),
        (mounting(Type="volume", Source="data-{{.Task.ID}}"), "no-gpu"),
        (mounting(Type="volume", Source='{{"disguised"}}'), "service-template"),
        (
            mounting(Type="volume", VolumeOptions={"DriverConfig": {"Options": {"device": '/{{"etc"}}', "o": "bind"}}}),
            "service-template",
        ),
        (service(Env=["NODE={{.Node.Hostname}}", "X={{.Service.Labels.x}}"]), "no-gpu"),
    ],
)
def test_templates_in_mounts(harness, body, rule):
    body["Name"] = "run"
    assert harness.judge(body, "/services/create").rule == rule


def test_a_reserved_gpu_is_given_by_a_variable(harness):
    harness.engine.runtime = "nvidia"
    harness.engine.images["i"] = {"Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=void"]}}
    for resource in (
        {"DiscreteResourceSpec": {"Kind": "NVIDIA-GPU", "Value": 1}},
        {"NamedResourceSpec": {"Kind": "gpu", "Value": "GPU-1"}},
        {"namedResourceSpec": {"KIND": "Gpu", "value": "GPU-1"}},
    ):
        body = service(Env=["NVIDIA_VISIBLE_DEVICES=void"])
        assert harness.judge(body, "/services/create").rule == "no-gpu"
        del body["TaskTemplate"]["ContainerSpec"]["Env"]
        del harness.engine.images["i"]["Config"]["Env"]
        body["TaskTemplate"]["Resources"] = {"Reservations": {"GenericResources": [resource]}}
        assert harness.judge(body, "/services/create").rule == "gpu-needs-limit"
        harness.engine.images["i"]["Config"]["Env"] = []


def gpu_service(**task):
    """A service that gets a GPU, with a limit, and `gpumem` reserved."""
    ours = {"Type": "volume", "Target": "/run/convgpu", "VolumeOptions": {"DriverConfig": {"Name": "convgpu"}}}
    body = service(Env=[HOOK, "NVIDIA_VISIBLE_DEVICES=all"], Mounts=[ours], **task)
    reserved = {"DiscreteResourceSpec": {"Kind": "gpumem", "Value": 2048}}
    body["TaskTemplate"]["Resources"] = {"Reservations": {"GenericResources": [reserved]}}
    return body


def test_the_reserved_memory_is_a_limit(harness):
    harness.engine.runtime = "nvidia"
    assert harness.judge(gpu_service(), "/services/create").rule == "limited"
    harness.rules = parse_rules('[users."*"]\nlargest_limit = "1g"')
    assert harness.judge(gpu_service(), "/services/create").rule == "limit-too-large"
    body = gpu_service()
    options = body["TaskTemplate"]["ContainerSpec"]["Mounts"][0]["VolumeOptions"]["DriverConfig"]
    for memory, rule in (("1g", "limited"), ("{{.Task.Slot}}g", "limit-too-large"), ('{{"9g"}}', "limit-too-large")):
        options["Options"] = {"memory": memory}
        assert harness.judge(body, "/services/create").rule == rule


@pytest.mark.parametrize(
    ("kind", "target", "rule"),
    [
        ("Secrets", "/run/convgpu/libconvgpu.so", "hook-shadowed"),
        ("Secrets", "../convgpu/libconvgpu.so", "hook-shadowed"),
        ("Configs", "etc/ld.so.preload", "hook-shadowed"),
        ("Configs", "/etc/ld.so.preload", "hook-shadowed"),
        ("Secrets", "password", "limited"),
        ("Configs", "/etc/nginx.conf", "limited"),
    ],
)
def test_files_that_swarm_mounts(harness, kind, target, rule):
    harness.engine.runtime = "nvidia"
    assert harness.judge(gpu_service(**{kind: [{"File": {"Name": target}}]}), "/services/create").rule == rule


def test_a_rollback_is_judged_by_the_previous_specification(harness):
    uri = "/v1.41/services/s/update?version=7"
    harness.engine.services["s"] = {"PreviousSpec": mounting(Source="/"), "Spec": service()}
    assert harness.judge(service(), uri).rule == "no-gpu"
    assert harness.judge(service(), f"{uri}&rollback=previous").rule == "host-path"
    assert harness.judge(mounting(Source="/"), f"{uri}&rollback=previous").rule == "host-path"
    del harness.engine.services["s"]["PreviousSpec"]
    assert harness.judge(service(), f"{uri}&rollback=previous").rule == "no-gpu"


def test_a_service_that_is_a_plugin(harness):
    body = {"TaskTemplate": {"Runtime": "plugin", "PluginSpec": {"Name": "x"}}}
    assert harness.judge(body, "/services/create").rule == "plugin-management"


@pytest.fixture
def listed(strict):
    """Strict rules whose list has services."""
    strict.rules = parse_rules(strict_site.RULES.replace('calls = ["commit"]', 'calls = ["services"]'))
    strict.engine.images["i"] = {"Config": {}}
    return strict


def mounted(kind, **options):
    return {"Mounts": [{"Type": kind, "Source": "v", "Target": "/x", **options}]}


def logging(driver, **options):
    return {"LogDriver": {"Name": driver, "Options": options}}


HOUR = 3600 * 10**9


@pytest.mark.parametrize(
    ("task", "template", "rule"),
    [
        ({"Healthcheck": {"Test": ["CMD"], "Interval": 10**9}}, {}, "strict-fields"),
        ({"Sysctls": {"net.ipv4.ip_forward": "1"}}, {}, "strict-sysctls"),
        ({"StopGracePeriod": 10**18}, {}, "strict-fields"),
        ({"StopGracePeriod": HOUR + 10**9}, {}, "strict-fields"),
        ({"StopGracePeriod": -1}, {}, "strict-fields"),
        ({"Groups": ["video", ""]}, {}, "strict-fields"),
        (mounted("cluster"), {}, "strict-fields"),
        (mounted("image"), {}, "strict-fields"),
        (mounted("volume", VolumeOptions={"NoCopy": True, "Subpath": "a/b"}), {}, "strict-fields"),
        (mounted("volume", OfTomorrow=1, VolumeOptions={"NoCopy": True}), {}, "strict-fields"),
        ({"Privileges": {"SELinuxContext": {"Disable": True}}}, {}, "strict-security"),
        ({"Privileges": {"SELinuxContext": {"Type": "spc_t"}}}, {}, "strict-security"),
        ({"Privileges": {"OfTomorrow": {"Mode": "none"}}}, {}, "strict-fields"),
        ({"OfTomorrow": True}, {}, "strict-fields"),
        ({}, {"OfTomorrow": True}, "strict-fields"),
        ({}, logging("syslog"), "strict-drivers"),
        ({}, logging("syslog", **{"syslog-tls-ca-cert": "/etc/shadow"}), "strict-fields"),
        ({}, logging("json-file", tag='{{pad "x" 100000000 0}}'), "strict-fields"),
        ({}, logging("json-file", **{"max-file": "1000000", "max-size": "1"}), "strict-fields"),
        ({"Labels": {"x": "y" * 40_000}}, logging("json-file", labels="x"), "strict-fields"),
        ({}, {"Networks": [{"Target": "n", "DriverOpts": {"of.tomorrow": "1"}}]}, "strict-fields"),
    ],
)
def test_a_service_has_no_more_than_a_container_under_strict_rules(listed, task, template, rule):
    body = service(**task)
    body["TaskTemplate"] |= template
    assert listed.judge(body, "/services/create").rule == rule
    listed.engine.services["s"] = {"PreviousSpec": body, "Spec": service()}
    assert listed.judge(service(), "/services/s/update?version=1&rollback=previous").rule == rule
    listed.rules = parse_rules("")
    assert listed.judge(body, "/services/create").rule == "no-gpu"


def test_what_commands_say_of_services_passes_under_strict_rules(listed):
    """As `docker service create` and `docker stack deploy` send them, and the Engine shows them."""
    task = {
        "Labels": {"com.docker.stack.namespace": "s"},
        "Command": ["x"],
        "Init": False,
        "Privileges": {"CredentialSpec": None, "SELinuxContext": None, "NoNewPrivileges": True},
        "StopGracePeriod": HOUR,
        "Healthcheck": {"Test": ["CMD", "true"], "Interval": 10**9, "Retries": 3},
        "DNSConfig": {},
        "Sysctls": {"net.core.somaxconn": "511"},
        "Groups": ["video"],
        "Isolation": "default",
        **mounted("volume", VolumeOptions={"NoCopy": True, "Labels": {"x": "y"}}),
    }
    body = service(**task)
    body["TaskTemplate"] |= {
        "Resources": {"Limits": {"NanoCPUs": 10**9}, "Reservations": {}},
        "RestartPolicy": {"Condition": "any", "Delay": 5 * 10**9, "MaxAttempts": 0},
        "Placement": {"Platforms": [{"Architecture": "amd64", "OS": "linux"}]},
        "Networks": [{"Target": "n", "Aliases": ["s"]}],
        **logging("json-file", **{"max-size": "10m", "max-file": "5", "tag": "{{.Name}}"}),
        "ForceUpdate": 1,
        "Runtime": "container",
    }
    body |= {"Mode": {"Replicated": {"Replicas": 2}}, "EndpointSpec": {"Mode": "vip"}, "Networks": None}
    assert listed.judge(body, "/services/create").rule == "no-gpu"
