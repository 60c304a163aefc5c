"""Which volumes nobody needs any more."""

import pytest

from convgpu.plugin.engine.orphans import find_orphans
from convgpu.protocol.records import Container, Session
from convgpu.protocol.requests import ListedContainer, ReportEngineList

ANONYMOUS = "0123456789abcdef" * 4
TASK = "rp60d0e9x7f3k2m1a8b5c4z6y"
NOW = 10_000.0
KEEP = 3600.0


def container(name=ANONYMOUS, **changes):
    return Container(**{"name": name, "mountpoint": "/m", "created": 1.0, "since": 2.0, "state": "ended", **changes})


def orphans(*containers, volumes=()):
    having = ListedContainer(id="i", name="n", state="exited", volumes=volumes)
    return find_orphans(containers, ReportEngineList(asked=NOW, containers=(having,), volumes=()), KEEP)


@pytest.mark.parametrize("name", [ANONYMOUS, TASK, f"cg-{TASK}", f"web.1.{TASK}", f"{TASK}_gpu"])
def test_a_volume_made_for_one_container_goes(name):
    assert orphans(container(name)) == [name]


@pytest.mark.parametrize("name", ["v", "models", ANONYMOUS[:-1], f"{ANONYMOUS}0", f"{TASK}0", f"a{TASK}", "A" * 25])
def test_a_name_that_a_person_chose_stays(name):
    assert orphans(container(name)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "running"},
        {"state": "waiting"},
        {"sessions": (Session(pid=1, program="p", since=1.0),)},
        {"since": NOW - KEEP},
        {"created": NOW - KEEP, "since": None},
    ],
)
def test_what_is_used_or_new_stays(changes):
    assert orphans(container(**changes)) == []


def test_what_a_container_has_stays_whatever_its_state():
    assert orphans(container(), volumes=(ANONYMOUS,)) == []


def test_one_that_was_never_used_goes():
    assert orphans(container(state="created", since=None)) == [ANONYMOUS]
