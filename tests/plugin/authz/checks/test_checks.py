"""Each check alone: a subject in, refusals out, without any port."""

from dataclasses import replace

import pytest

from convgpu.authz.checks import CHECKS, find_refusals
from convgpu.authz.ports import HostFacts
from convgpu.authz.requests.container import ContainerSettings, MountSettings
from convgpu.authz.site.rules import Rules, parse_rules
from convgpu.authz.subject.injection import Injection
from convgpu.authz.subject.subject import Caller, Subject
from convgpu.protocol.records import Device

HOOK = {"LD_PRELOAD": "/run/convgpu/libconvgpu.so"}
VOLUME = MountSettings("volume", "mine", "/run/convgpu", "convgpu", {"memory": "2g"})
PLAIN = Subject(Caller("bob", Rules()), "convgpu")
LIMITED = replace(
    PLAIN, container=ContainerSettings(environment=HOOK, mounts=(VOLUME,)), volumes=(VOLUME,), gpu="--gpus"
)
INJECTED = replace(PLAIN, gpu="--gpus", injection=Injection("2g"))


def with_container(subject: Subject, **settings: object) -> Subject:
    return replace(subject, container=replace(subject.container, **settings))  # type: ignore[arg-type]


def with_runtime(subject: Subject, runtime: str, default: str = "convgpu") -> Subject:
    return replace(with_container(subject, runtime=runtime), host=HostFacts(default_runtime=default))


def rules_of(subject: Subject) -> list[str]:
    return [refusal.rule for refusal in find_refusals(subject)]


@pytest.mark.parametrize("subject", [PLAIN, LIMITED, INJECTED])
def test_no_check_refuses_a_container_with_its_limit(subject: Subject) -> None:
    assert rules_of(subject) == []


def test_every_check_refuses_something() -> None:
    container = ContainerSettings(
        opaque=("{{x}}",),
        privileged=True,
        readonly_paths=(),
        security_options=("systempaths=unconfined", "seccomp=unconfined"),
        ipc_mode="host",
        environment={"LD_AUDIT": "/x"},
        mounts=(MountSettings("bind", "/etc", "/lib"), VOLUME),
        chosen="0",
        led_on=("convgpu.io/memory=2g",),
    )
    bad = Subject(
        Caller("bob", Rules(mode="strict", require="slurm")),
        "convgpu",
        container=container,
        volumes=(replace(VOLUME, options={}, source="ab" * 32),),
        gpu="--gpus",
        injection=Injection(None, by_device=True),
        resolved={"/etc": "/etc"},
        joined="other",
        checkpoint=True,
        gpus=(Device("GPU-a", 0, "card", 0, 0, 0, 0, 0, drained=True),),
    )
    unlimited = replace(PLAIN, gpu="--gpus")
    other = with_runtime(LIMITED, "runc")
    silent = [check.__name__ for check in CHECKS if not [*check(bad), *check(unlimited), *check(other)]]
    assert silent == []


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (replace(PLAIN, gpu="--gpus"), ["gpu-needs-limit"]),
        (with_container(LIMITED, environment={}), ["hook-not-loaded"]),
        (with_container(PLAIN, environment={"LD_AUDIT": "/x"}), []),
        (with_container(INJECTED, environment={"LD_AUDIT": "/x"}), ["hook-environment"]),
        (replace(LIMITED, injection=Injection("2g", by_device=True)), ["hook-shadowed"]),
        (replace(LIMITED, injection=Injection("2g")), []),
        (replace(PLAIN, joined="gpu"), ["gpu-isolation"]),
        (replace(PLAIN, checkpoint=True), []),
        (replace(INJECTED, checkpoint=True), ["checkpoint"]),
    ],
)
def test_refusals_of_a_subject(subject: Subject, expected: list[str]) -> None:
    assert rules_of(subject) == expected


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (with_runtime(LIMITED, "runc"), ["runtime"]),
        (with_runtime(LIMITED, "io.containerd.runc.v2"), ["runtime"]),
        (with_runtime(with_container(PLAIN, devices=("/srv/link",)), "runc"), ["runtime"]),
        (with_runtime(with_container(PLAIN, device_rules=("c 195:* rwm",)), "runc"), ["runtime"]),
        (with_runtime(LIMITED, ""), []),
        (with_runtime(LIMITED, "convgpu"), []),
        (with_runtime(LIMITED, "nvidia", default="runc"), []),
        (with_runtime(PLAIN, "runsc"), []),
        (replace(with_runtime(LIMITED, "runc"), starts=True), []),
    ],
)
def test_where_our_runtime_is_the_default_no_other_one_may_start_a_gpu(subject: Subject, expected: list[str]) -> None:
    """Else a link that leads elsewhere by the next start, which a restart policy makes, is judged by nobody."""
    assert rules_of(subject) == expected


@pytest.mark.parametrize(
    ("known", "rules"), [("a" * 64, []), ("b" * 64, ["host-path", "hook-not-loaded", "hook-shadowed"]), ("", [])]
)
def test_only_the_file_of_our_own_plugin_loads_the_hook(known: str, rules: list[str]) -> None:
    source = f"/var/lib/docker/plugins/{'a' * 64}/propagated-mount/ld.so.preload"
    file = MountSettings("bind", source, "/etc/ld.so.preload", read_only=True)
    subject = with_container(LIMITED, environment={}, mounts=(VOLUME, file))
    assert rules_of(replace(subject, resolved={source: source}, host=HostFacts(plugin_id=known))) == rules


def test_the_limit_of_the_scheduler_counts_before_the_options_of_the_volume() -> None:
    subject = replace(LIMITED, caller=Caller("bob", parse_rules('[users.bob]\nlargest_limit = "3g"')))
    assert rules_of(subject) == []
    larger = replace(subject, volume_limits={"mine": {"GPU-1": 4 << 30}})
    assert rules_of(larger) == ["limit-too-large"]
    assert rules_of(replace(larger, starts=True)) == []  # judged by the admission


def test_an_exemption_lifts_its_rule_alone() -> None:
    rules = parse_rules('[[exempt]]\nimage = "tool"\nrules = ["privileged"]')
    container = ContainerSettings(image="tool:1", privileged=True, pid_mode="host")
    subject = Subject(Caller("bob", rules), "convgpu", container=container)
    assert rules_of(subject) == ["privileged", "host-pid"]
    refusal = subject.first_refusal(find_refusals(subject))
    assert refusal is not None
    assert refusal.rule == "host-pid"
