"""The samples of a real scheduler with a simulated NVML."""

import msgspec
import pytest
from daemon import GIB, Daemon, Process, running_daemon, wait_until

from convgpu.client.scheduler import SchedulerRefused
from convgpu.protocol.inspection.usage import Usage


def usage(daemon: Daemon, step: int = 1, after: int = 0) -> Usage:
    return msgspec.convert(daemon.admin.request("usage", step=step, after=after), Usage)


def telemetry(daemon: Daemon) -> dict[str, object]:
    return daemon.admin.request("devices")["devices"][0]["telemetry"]  # type: ignore[index]


def test_what_containers_hold_and_what_the_card_does_is_sampled(tmp_path) -> None:
    with running_daemon(tmp_path) as daemon:
        holder = Process(daemon.container("a", memory="4g"))
        holder.hello()
        holder.answer(holder.allocate(2 * GIB))
        (tmp_path / "driver" / "faults").write_text("0 utilization=87\n0 temperature=61\n0 power=412500\n")

        def newest() -> Usage:
            answer = usage(daemon)
            return usage(daemon, after=answer.samples[-2].time) if len(answer.samples) > 1 else answer

        wait_until(lambda: telemetry(daemon)["utilization"] == 87, "NVML is asked")
        assert telemetry(daemon) == {"utilization": 87, "temperature": 61, "power": 412.5, "power_limit": 700.0}
        uuid = daemon.admin.request("devices")["devices"][0]["uuid"]

        def shares() -> list[tuple[int, int]]:
            return [(one.grant, one.usage) for one in newest().samples[-1].devices[uuid].shares]

        [share] = daemon.state("a")["devices"]
        assert share["usage"] >= 2 * GIB
        wait_until(lambda: shares() == [(share["grant"], share["usage"])], "a sample has the grant")
        wait_until(lambda: newest().samples[-1].devices[uuid].utilization == 87, "a sample has what the card does")
        assert {one.volume for one in newest().containers} == {"a"}

        (tmp_path / "driver" / "faults").write_text("0 no_telemetry=1\n")
        wait_until(lambda: telemetry(daemon)["power"] is None, "a card without telemetry has no figures")
        assert set(telemetry(daemon).values()) <= {None, 700.0}
        (tmp_path / "driver" / "faults").write_text("0 error=15\n")
        wait_until(lambda: set(telemetry(daemon).values()) == {None}, "a lost card has none either")


@pytest.mark.parametrize("fields", [{"step": 2}, {"step": "1"}, {"after": -1}, {"after": 1.5}, {"most": 1}])
def test_a_question_that_makes_no_sense_is_refused(daemon: Daemon, fields) -> None:
    with pytest.raises(SchedulerRefused):
        daemon.admin.request("usage", **fields)
