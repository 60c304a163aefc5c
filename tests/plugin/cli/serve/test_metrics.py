import pytest
from click.testing import CliRunner

from convgpu.cli.serve.metrics import metrics


@pytest.mark.parametrize("address", ["9870", ":9870", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:", "h:-1"])
def test_an_address_that_is_none(address):
    done = CliRunner().invoke(metrics, ["--listen", address])
    assert done.exit_code == 2
    assert "must be ADDRESS:PORT, for example 127.0.0.1:9870" in done.output


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.usefixtures("unconnected_sockets")
def test_a_plugin_that_does_not_answer(tmp_path):
    done = CliRunner().invoke(metrics, ["--socket", str(tmp_path / "none.sock")])
    assert done.exit_code == 3
    assert "docker plugin ls" in done.output
