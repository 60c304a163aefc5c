import pytest

from convgpu.protocol.engine_container import EngineState, is_running


@pytest.mark.parametrize(
    ("state", "running"),
    [
        (EngineState.CREATED, False),
        (EngineState.RUNNING, True),
        (EngineState.PAUSED, True),
        (EngineState.RESTARTING, True),
        (EngineState.REMOVING, False),
        (EngineState.EXITED, False),
        (EngineState.DEAD, False),
        ("exited", False),
        ("a state of a newer Engine", True),
    ],
)
def test_which_states_mean_that_a_container_runs(state: str, running: bool) -> None:
    assert is_running(state) == running
