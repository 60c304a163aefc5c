"""The doctor warns of compose projects whose containers may wait for each other."""

from convgpu.cli.doctor.gangs import judge_gangs, projects
from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.records import Container, Share

ROWS = [
    {"Labels": {"com.docker.compose.project": "train"}, "Mounts": [{"Type": "volume", "Name": name}]}
    for name in ("v0", "v1", "v2")
]


def container(name: str, uuid: str, gang: str = "") -> Container:
    share = Share(uuid=uuid, limit=8, grant=0, usage=0)
    engine = EngineContainer("c" * 64, f"train-{name}")
    return Container(
        name=name, engine=engine, mountpoint="/d", created=0.0, state="created", gang=gang, devices=(share,)
    )


def test_two_containers_of_a_project_on_one_gpu_are_named_with_what_would_do() -> None:
    found = [container("v0", "GPU-a"), container("v1", "GPU-a"), container("v2", "GPU-b")]
    [finding] = judge_gangs(found, projects(ROWS))
    assert (finding.state, finding.seen) == (
        "warn",
        "compose project train: train-v0, train-v1 share GPU-a without a gang",
    )
    assert "gang: ${COMPOSE_PROJECT_NAME}" in finding.mend


def test_gangs_other_gpus_and_containers_without_a_project_are_no_finding() -> None:
    apart = [container("v0", "GPU-a"), container("v1", "GPU-b"), container("other", "GPU-a")]
    assert list(judge_gangs(apart, projects(ROWS))) == []
    gang = [container("v0", "GPU-a", "train"), container("v1", "GPU-a", "train")]
    assert list(judge_gangs(gang, projects(ROWS))) == []


def test_rows_without_labels_or_mounts_belong_to_no_project() -> None:
    assert projects([{}, {"Labels": None, "Mounts": None}, {"Labels": {}, "Mounts": [{"Type": "bind"}]}]) == {}
