"""The figures and the files for Prometheus, judged by Prometheus: promtool, and a server that really asks."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from daemon import GIB, wait_until
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.prometheus

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy/prometheus"
DASHBOARD = ROOT / "deploy/grafana/convgpu.json"
PROGRAMS = ROOT / ".cache/prometheus/usr/bin"


def promtool(*arguments, stdin=None):
    done = subprocess.run(
        [PROGRAMS / "promtool", *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def command(house, *arguments):
    return [sys.executable, "-m", "convgpu.cli", "metrics", "--socket", str(house.settings.socket), *arguments]


@pytest.fixture
def busy(house):
    house.holder("holder", 12 * GIB)
    house.container("late", 8 * GIB)
    house.process("late").allocate(6 * GIB)
    wait_until(lambda: bool(house.daemon.events("paused")), "somebody waits")
    return house


def test_the_rules_are_right_and_fire_when_they_should():
    assert promtool("check", "rules", str(DEPLOY / "convgpu.rules.yml"))[0] == 0
    assert promtool("check", "config", "--syntax-only", str(DEPLOY / "prometheus.yml"))[0] == 0
    status, said = promtool("test", "rules", str(DEPLOY / "convgpu.rules.test.yml"))
    assert (status, "SUCCESS" in said) == (0, True), said


def test_each_rule_has_a_test():
    names = {line.split()[-1] for line in (DEPLOY / "convgpu.rules.yml").read_text().splitlines() if "- alert:" in line}
    tested = (DEPLOY / "convgpu.rules.test.yml").read_text()
    assert [name for name in names if f"alertname: {name}\n        exp_alerts:\n" not in tested] == []


def asked_by_the_dashboard(**variables):
    """Its questions, with values for Grafana's variables."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    for name, value in {"__rate_interval": "1m", **variables}.items():
        asked = [expression.replace(f"${name}", value) for expression in asked]
    return asked


def test_the_dashboard_means_what_it_has():
    """Grafana itself is in no package registry: its variables, sources and places are compared here."""
    board = json.loads(DASHBOARD.read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    named = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([panels, board["templating"]])))
    assert used == named | {"__rate_interval", "__all"}
    for panel in panels:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        queries = [target["refId"] for target in panel["targets"]]
        assert len(set(queries)) == len(queries), panel["title"]
    places = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24


def test_no_question_names_a_metric_or_label_that_is_not_there(busy):
    text = subprocess.run(command(busy), capture_output=True, text=True, check=True, timeout=120).stdout
    families = text_string_to_metric_families(text)
    known = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    # Only with an Engine, and once Docker has called.
    known["convgpu_container_info"] = {"container", "name", "image"}
    known["convgpu_docker_request_duration_seconds_bucket"] = {"call", "le"}
    added = {"instance", "job", "le"}
    rules = (DEPLOY / "convgpu.rules.yml").read_text()
    expressions = [*asked_by_the_dashboard(), *re.findall(r"expr: (.+)", rules)]
    assert sum("convgpu_" in one for one in expressions) > 25
    for expression in expressions:
        labels = set()
        for name, matchers in re.findall(r"\b(convgpu_\w+)(?:\{([^}]*)\})?", expression):
            assert name in known, expression
            labels |= known[name] | added
            assert set(re.findall(r"(\w+)\s*[=!]~?", matchers)) <= known[name] | added, expression
        for names in re.findall(r"\b(?:by|on|without|group_left|group_right|ignoring) ?\(([^)]*)\)", expression):
            assert {name.strip() for name in names.split(",") if name.strip()} <= labels, expression


def test_the_dashboards_questions_can_be_asked(tmp_path):
    asked = asked_by_the_dashboard(instance="a", device="b")
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(asked)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    status, said = promtool("check", "rules", str(file))
    assert (status, f"{len(asked)} rules found" in said) == (0, True), said


def test_promtool_finds_nothing_to_say_about_the_figures(busy):
    text = subprocess.run(command(busy), capture_output=True, text=True, check=True, timeout=120).stdout
    assert 'convgpu_containers{state="waiting"} 1.0' in text
    assert promtool("check", "metrics", stdin=text) == (0, "")


def test_a_file_for_node_exporter_is_written_as_a_whole(busy, tmp_path):
    file = tmp_path / "convgpu.prom"
    assert subprocess.run(command(busy, "--output", str(file)), check=True, timeout=120).returncode == 0
    assert file.read_text().startswith("# HELP convgpu_scheduler_up")
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["convgpu.prom"]
    missing = command(busy, "--output", str(tmp_path / "no/where"))
    done = subprocess.run(missing, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, "cannot be written" in done.stderr) == (3, True)


def test_a_real_prometheus_asks(busy, tmp_path):
    served = subprocess.Popen(command(busy, "--listen", "127.0.0.1:0"), stdout=subprocess.PIPE)
    prometheus = None
    try:
        assert served.stdout is not None
        target = served.stdout.readline().decode().removeprefix("http://").partition("/")[0]
        text = (DEPLOY / "prometheus.yml").read_text().replace("127.0.0.1:9870", target).replace("15s", "1s")
        (tmp_path / "prometheus.yml").write_text(text)
        (tmp_path / "convgpu.rules.yml").write_text((DEPLOY / "convgpu.rules.yml").read_text())
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with (tmp_path / "prometheus.log").open("wb") as log:
            options = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
            options += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
            prometheus = subprocess.Popen([PROGRAMS / "prometheus", *options], stdout=log, stderr=log)

        def ask(expression):
            url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(expression)}"
            try:
                with urllib.request.urlopen(url, timeout=120) as answer:
                    return json.load(answer)["data"]["result"]
            except OSError:
                return []

        def value(expression):
            found = ask(expression)
            return float(found[0]["value"][1]) if found else None

        wait_until(lambda: value("convgpu_scheduler_up") == 1, "Prometheus has asked", 30)
        assert value('sum(convgpu_waiting_allocations{reason="memory"})') == 1
        assert value('convgpu_container_used_bytes{container="holder"}') == 12 * GIB
        assert value("up") == 1
        device = ask("convgpu_device_info")[0]["metric"]["device"]
        asked = [one for one in asked_by_the_dashboard(instance=".*", device=device) if "rate(" not in one]
        unanswered = [one for one in asked if not ask(one)]
        assert unanswered == ['convgpu_container_info{instance=~".*"}']  # there is no Engine here
    finally:
        for process in filter(None, (prometheus, served)):
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
        served.stdout.close()
