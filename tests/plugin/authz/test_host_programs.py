"""Which programs of the host's may use a GPU where rules are strict."""

import pytest

from convgpu.authz.host_programs import HostProgramJudge, may_open
from convgpu.authz.ports import HostProgram, Node
from convgpu.authz.site.rules import Rules, parse_rules

CLOSED, OPEN, GROUP = Node(0, 0, 6, 0, 0), Node(0, 0, 6, 6, 6), Node(0, 44, 6, 6, 0)
ACL = Node(0, 44, 6, 6, 0, users={1000: 6, 1001: 4}, groups={50: 6, 51: 4})
LOGGED_IN = HostProgram(1000, frozenset({1000}))
STRICT = parse_rules('mode = "strict"')


@pytest.mark.parametrize(
    ("program", "node", "may"),
    [
        (HostProgram(0), CLOSED, True),
        (HostProgram(1000, is_privileged=True), CLOSED, True),
        (LOGGED_IN, CLOSED, False),
        (LOGGED_IN, OPEN, True),
        (LOGGED_IN, Node(0, 0, 6, 6, 4), False),
        (HostProgram(1000, frozenset({1000, 44})), GROUP, True),
        (LOGGED_IN, GROUP, False),
        (HostProgram(1000, frozenset({44})), Node(1000, 44, 0, 6, 6), False),  # the owner has the owner's bits
        (HostProgram(1000, frozenset({44})), Node(0, 44, 6, 0, 6), False),  # and the group those of the group
        (LOGGED_IN, ACL, True),
        (HostProgram(1001, frozenset({44})), ACL, False),
        (HostProgram(1002, frozenset({50, 51})), ACL, True),
        (HostProgram(1002, frozenset({51})), ACL, False),
        (HostProgram(1002, frozenset({44, 51})), ACL, True),
    ],
)
def test_who_may_open_a_node(program, node, may):
    assert may_open(program, node) == may


class Files:
    """A host with one program and the nodes of a GPU."""

    def __init__(self, program=LOGGED_IN, own=(CLOSED,), control=CLOSED):
        self._program, self._nodes = program, None if own is None else (own, control)

    def nodes(self, _gpu):
        return self._nodes

    def program(self, _pid, _started):
        return self._program

    def user_id(self, name):
        return {"alice": 1000}.get(name)


def accepting(*entries):
    return parse_rules(f'mode = "strict"\n[strict]\naccept = {list(entries)}')


BY_RIGHT, BY_USER = "user 1000 may open the GPU's device nodes", "the rules accept programs of user 1000"
APART = "root started it as runtimes of containers do, in a PID namespace of its own"


@pytest.mark.parametrize(
    ("files", "rules", "reason"),
    [
        (Files(), STRICT, ""),
        (Files(), Rules(), "the rules of the site are not strict (mode enforce)"),
        (Files(), None, "the rules of the site have a mistake: convgpu authz status"),
        (Files(own=(CLOSED, OPEN), control=OPEN), STRICT, BY_RIGHT),
        (Files(own=(OPEN,)), STRICT, ""),  # without /dev/nvidiactl nobody uses a GPU
        (Files(control=OPEN), STRICT, ""),
        (Files(HostProgram(0)), STRICT, "user 0 may open the GPU's device nodes"),
        (Files(HostProgram(1000, is_apart=True)), STRICT, APART),
        (Files(), accepting("host-gpus"), "the rules accept programs of the host"),
        (Files(), accepting("host-gpus=alice"), BY_USER),
        (Files(), accepting("host-gpus=1000"), BY_USER),
        (Files(), accepting("removal", "host-gpus=bob", "host-gpus=1001"), ""),
        (Files(own=None), STRICT, None),
        (Files(program=None), STRICT, None),
    ],
)
def test_why_one_is_kept(files, rules, reason):
    assert HostProgramJudge(files, lambda: rules).why_kept(7, 70, "GPU-a") == reason


@pytest.mark.parametrize("entry", ["host", "host-gpus=", "host-gpus=a b"])
def test_other_entries_are_refused(entry):
    with pytest.raises(ValueError, match="is none of"):
        accepting(entry)
