"""A user of the host with a GPU by descriptors: the real scheduler and judge, a simulated card, files for nodes."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from daemon import DRIVER, running_daemon, wait_until

from convgpu.authz.facts.host_access import HostAccess
from convgpu.authz.host_programs import HostProgramJudge
from convgpu.authz.site.rules_file import RulesFile
from convgpu.plugin.engine.unlimited_watch import UnlimitedWatch

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")
USER, GROUP = 4242, 4244
RULES = 'mode = "strict"\n[strict]\naccept = ["host-gpus=4243"]\n'


@pytest.fixture
def host() -> Iterator[Path]:
    """The root folder of a host whose users reach it, as they do not reach those of tests; one group has its GPU."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        host = Path(name)
        host.chmod(0o755)
        (host / "dev").mkdir()
        for node in ("nvidia0", "nvidiactl"):
            (host / "dev" / node).touch()
            os.chown(host / "dev" / node, 0, GROUP)
            (host / "dev" / node).chmod(0o660)
        yield host


@contextmanager
def program(driver: Path, user: int, *groups: int, prefix: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """A program of a user's that holds memory."""
    command = (*prefix, str(DRIVER / "gpu-hold"), "--hold", "60", "1g")
    who: dict[str, Any] = {"user": user, "group": user, "extra_groups": groups}
    with subprocess.Popen(command, env={"LD_LIBRARY_PATH": str(driver), "PATH": os.environ["PATH"]}, **who) as process:
        try:
            yield process
        finally:
            process.kill()


def test_who_has_no_right_to_the_nodes_is_ended(host: Path) -> None:
    rules = host / "rules.toml"
    rules.write_text(RULES)
    options = ("--audit=100ms", "--overuse-after=300ms", f"--rules={rules}")
    with running_daemon(host / "d", "simulated:16GiB", *options) as daemon, ExitStack() as stack:
        site, driver = RulesFile(rules), daemon.directory / "driver"
        judge = HostProgramJudge(HostAccess(lambda: host), site.rules)
        watch = UnlimitedWatch(daemon.admin, cast("Any", None), judge)
        start = stack.enter_context
        kept = [start(program(driver, 0)), start(program(driver, 4243)), start(program(driver, USER, GROUP))]
        stranger = start(program(driver, USER))
        root_of_nothing = start(program(driver, USER, prefix=("unshare", "--user", "--map-root-user", "--mount")))

        def are_ended() -> bool:
            watch.look()
            return None not in (stranger.poll(), root_of_nothing.poll())

        wait_until(are_ended, "both are ended")
        assert [each.poll() for each in (stranger, root_of_nothing, *kept)] == [-9, -9, None, None, None]
        rows = daemon.admin.request("devices")["devices"][0]["unlimited"]
        assert {row["pid"]: row["kept"] for row in rows if row["pid"] in [each.pid for each in kept]} == {
            kept[0].pid: "user 0 may open the GPU's device nodes",
            kept[1].pid: "the rules accept programs of user 4243",
            kept[2].pid: f"user {USER} may open the GPU's device nodes",
        }
