"""Who may use a GPU without a limit: what is noted at starts, and what is judged when the audit has seen it."""

import pytest
from engine_says import GPU, OURS, inspected

from convgpu.authz.facts.permits import FULL, Permits
from convgpu.authz.ports import EngineHolds, EngineUnreachable
from convgpu.authz.site.rules import Rules, parse_rules
from convgpu.authz.unlimited import Unlimited, UnlimitedJudge, why_kept

ID = "c" * 64
TASK = {"com.docker.swarm.task.id": "t"}
EVERYBODY = parse_rules('[[exempt]]\nimage = "cadvisor"')
CAROL = parse_rules('[[exempt]]\nusers = ["carol"]\nimage = "cadvisor"')
PRIVILEGED = parse_rules('[[exempt]]\nimage = "cadvisor"\nrules = ["privileged"]')
OTHER = parse_rules('[[exempt]]\nimage = "cadvisor"\nrules = ["host-pid"]')


@pytest.mark.parametrize(
    ("container", "rules", "reason"),
    [
        (Unlimited(101.0), Rules(), ""),
        (Unlimited(101.0), Rules(mode="strict"), ""),
        (Unlimited(101.0), Rules(mode="audit"), "the rules of the site refuse nothing (mode audit)"),
        (Unlimited(101.0), Rules(mode="off"), "the rules of the site refuse nothing (mode off)"),
        (Unlimited(101.0, is_noted=True), Rules(), "authorization let it start so: an administrator, or an exemption"),
        (
            Unlimited(101.0, is_apart=True),
            Rules(),
            "the Engine started it without a question, as a task of Swarm or a plugin",
        ),
        (Unlimited(100.0), Rules(), "it is older than the notes on who was permitted: make it again, with a limit"),
        (Unlimited(101.0, is_limited=True), Rules(), "it has a limit, which the scheduler does not know yet"),
        (Unlimited(101.0, image="cadvisor:1"), EVERYBODY, "an exemption of the site is for everybody"),
        (Unlimited(101.0, image="cadvisor:1"), PRIVILEGED, "an exemption of the site is for everybody"),
        (Unlimited(101.0, image="cadvisor:1"), OTHER, ""),
        (Unlimited(101.0, image="cadvisor:1"), CAROL, ""),
        (Unlimited(101.0, image="other"), EVERYBODY, ""),
    ],
)
def test_why_one_is_kept(container, rules, reason):
    assert why_kept(container, rules, 100.0) == reason


class Listed:
    """An Engine that lists one container, or none; and that says what else an id is."""

    def __init__(self, row=None, *, task=False, plugin=False, down=False):
        self.row, self.task, self.plugin, self.down = row, task, plugin, down

    def listed(self, _container):
        if self.down:
            raise EngineUnreachable("no Engine answers")
        return self.row

    def is_task(self, _container):
        return self.task

    def is_plugin(self, _container):
        return self.plugin


def row(**more):
    return {"Id": ID, "Created": 150, "Image": "i", "ImageID": "sha256:1", "Labels": {}, "Mounts": [], **more}


def judge(engine, *, rules=Rules(), noted=False, is_known=False, started=150.0):  # noqa: B008 - frozen
    permits = Permits(None, lambda: 100.0)
    permits.note(ID, permitted=noted)
    judge = UnlimitedJudge("convgpu", engine, permits, lambda: rules)
    return judge.why_kept(ID, started, is_known=is_known).partition(":")[0].partition(",")[0]


OLD, APART = "it is older than the notes on who was permitted", "the Engine started it without a question"
LIMITED = "it has a limit"


@pytest.mark.parametrize(
    ("engine", "facts", "reason"),
    [
        (Listed(row()), {}, ""),
        (Listed(row(Created=99)), {}, OLD),
        (Listed(row(Created=99), down=True), {"noted": True}, "authorization let it start so"),
        (Listed(row()), {"rules": None}, "the rules of the site have a mistake"),
        (Listed(row(Labels=TASK), task=True), {}, APART),
        (Listed(row(Labels=TASK), task=False), {}, ""),  # anybody may set a label
        (Listed(row(Mounts=[OURS])), {}, LIMITED),
        (Listed(row(Mounts=[OURS])), {"is_known": True}, ""),  # it uses a GPU that its limit is not for
        (Listed(row(ImageID="sha256:2")), {"rules": parse_rules('[[exempt]]\nimage = "sha256:1"')}, ""),
        (Listed(), {}, ""),  # of another Engine, or of none
        (Listed(), {"started": 99.0}, OLD),
        (Listed(plugin=True), {}, APART),
    ],
)
def test_what_is_asked_about_one(engine, facts, reason):
    assert judge(engine, **facts) == reason


def test_without_an_answer_of_the_engine_nobody_is_judged():
    with pytest.raises(EngineUnreachable):
        judge(Listed(down=True))


def test_a_start_that_an_exemption_lets_pass_is_noted_and_the_next_judged_one_takes_that_back(harness):
    harness.rules = parse_rules('[[exempt]]\nusers = ["carol"]\nrules = ["gpu-needs-limit"]')
    assert harness.start(inspected(GPU, mounts=[]), user="carol").rule == "exempt"
    assert ID in harness.permits
    assert harness.start(inspected(GPU, mounts=[]), user="bob").rule == "gpu-needs-limit"
    assert ID in harness.permits  # it did not start
    assert harness.start(inspected(mounts=[]), user="bob").rule == "no-gpu"
    assert ID not in harness.permits


def test_an_exemption_from_what_gives_no_gpu_is_no_reason_to_keep_one(harness):
    rules = '[users.bob]\nlargest_limit = "1g"\n[[exempt]]\nusers = ["bob"]\nrules = ["limit-too-large"]'
    harness.rules = parse_rules(rules)
    harness.scheduler.limits["one"] = 2 << 30
    assert harness.start(inspected(GPU, mounts=[{**OURS, "Name": "one"}]), user="bob").rule == "limited"
    assert ID not in harness.permits


def test_a_refused_start_and_a_create_note_nothing(harness):
    assert harness.start(inspected(GPU, mounts=[])).rule == "gpu-needs-limit"
    harness.rules = EVERYBODY
    assert harness.judge({"Image": "cadvisor", "HostConfig": GPU}).rule == "exempt"
    assert ID not in harness.permits


def test_an_administrators_start_is_noted_by_the_containers_id(harness):
    harness.engine.containers["web"] = inspected(GPU, mounts=[])
    harness.permit("/containers/web/exec")
    assert ID not in harness.permits
    harness.permit("/containers/nobody/start")
    harness.permit("/containers/web/restart")
    assert (ID in harness.permits, harness.permits.since) == (True, 1000.0)


def test_a_start_that_cannot_be_noted_makes_nobody_unpermitted(harness):
    harness.engine.down = True
    harness.now = 2000.0
    harness.permit("/containers/web/start")
    assert harness.permits.since == 2000.0


def test_the_start_of_a_container_that_the_engine_holds_is_noted_and_pardons_nobody(harness):
    """Anybody can make one: by a FIFO as its /etc/passwd, a stranger made an administrator pardon all others."""

    def holds(name):
        raise EngineHolds(f"container {name}", 2.0)

    harness.engine.containers["web"] = inspected(GPU, mounts=[])
    harness.engine.container = holds
    harness.now = 2000.0
    harness.permit("/containers/nobody/start")
    harness.permit("/containers/web/start")
    assert (ID in harness.permits, harness.permits.since) == (True, 1000.0)


def test_of_many_notes_those_stay_whose_containers_exist(harness):
    for number in range(FULL):
        harness.permits.note(str(number), permitted=True)
    harness.engine.containers["web"] = inspected(GPU, mounts=[])
    harness.permit("/containers/web/start")
    assert (ID in harness.permits, "7" in harness.permits) == (True, False)
