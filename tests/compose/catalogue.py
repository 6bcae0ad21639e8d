"""Dashboard and alert rules name only metrics that exist, and are what Grafana and Prometheus read.

Run by itself: python tests/compose/catalogue.py
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "compose.yaml"
GRAFANA = ROOT / "deploy/grafana"
DASHBOARD = GRAFANA / "dashboards/felix.json"
PROMETHEUS = ROOT / "deploy/prometheus/prometheus.yml"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
# Metrics that Prometheus makes itself.
OF_PROMETHEUS = {"up"}
# The series of a histogram.
SERIES = ("_bucket", "_sum", "_count")
NAME = re.compile(r"\b(felix_[a-z0-9_]+)\b")


def known():
    """Every metric of docs/OPERATING.md, whose tables are generated from the code."""
    table = re.compile(r"^\| `(felix_[a-z0-9_]+)` \| (\w+) \|", re.MULTILINE)
    names = set()
    for name, kind in table.findall((ROOT / "docs/OPERATING.md").read_text()):
        names |= {name + end for end in SERIES} if kind == "histogram" else {name}
    return names


def panels():
    return json.loads(DASHBOARD.read_text())["panels"]


def test_the_dashboard_names_metrics_that_exist():
    expressions = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    assert len(expressions) > 40
    check(expressions)


def test_the_alert_rules_name_metrics_that_exist():
    expressions = re.findall(r"expr: (.*(?:\n {10}\S.*)*)", ALERTS.read_text())
    assert len(expressions) >= 10
    check(expressions)


def test_the_dashboard_holds_nothing_that_grafanas_own_model_does_not_know():
    register_default_plugins()
    ours = json.loads(DASHBOARD.read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(ours)))
    assert not unread(ours, read, "dashboard"), unread(ours, read, "dashboard")


def unread(ours, read, place):
    """Where something of ours is missing or other in what was read."""
    if isinstance(ours, dict) and isinstance(read, dict):
        return [found for key in ours for found in unread(ours[key], read.get(key), f"{place}.{key}")]
    if isinstance(ours, list) and isinstance(read, list) and len(ours) == len(read):
        return [found for at, (one, other) in enumerate(zip(ours, read)) for found in unread(one, other, f"{place}[{at}]")]
    return [] if ours == read else [place]


def test_the_panels_of_the_dashboard_do_not_overlap():
    taken, ids = set(), set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not taken & cells, panel["title"]
        assert panel["id"] not in ids, panel["title"]
        taken |= cells
        ids.add(panel["id"])


def test_grafana_is_given_its_dashboard_and_where_prometheus_is():
    service = re.search(r"^  grafana:\n((?:    .*\n)+)", COMPOSE.read_text(), re.MULTILINE)[1]
    assert "<<: *closed" in service and 'network_mode: "service:pod"' in service
    mounts = dict(re.findall(r"- \./([\w/]+):([\w/-]+):ro", service))
    assert mounts["deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
    provider = (GRAFANA / "provisioning/dashboards/felix.yml").read_text()
    assert f"path: {mounts['deploy/grafana/dashboards']} }}" in provider
    assert f"PATH: {mounts['deploy/grafana/dashboards']}/{DASHBOARD.name}" in service
    source = dict(re.findall(r"^    (\w+): (.*)$", (GRAFANA / "provisioning/datasources/prometheus.yml").read_text(), re.MULTILINE))
    assert source["type"] == "prometheus"
    listens = re.search(r"--web.listen-address=0.0.0.0:(\d+)", COMPOSE.read_text())[1]
    assert source["url"] == f"http://127.0.0.1:{listens}"
    used = [panel["datasource"] for panel in panels() if panel.get("targets")]
    assert used and all(one == {"type": "prometheus", "uid": source["uid"]} for one in used)


def test_prometheus_scrapes_what_the_programs_are_told_to_listen_on():
    told = dict(re.findall(r"FELIX_(\w+)_METRICS_BIND: (127\.0\.0\.1:\d+)", COMPOSE.read_text()))
    told["GATEWAY"] = "127.0.0.1:" + re.search(r"GATEWAY_LISTEN: 0\.0\.0\.0:(\d+)", COMPOSE.read_text())[1]
    scraped = re.findall(r"job_name: (\w+)\n(?:.*\n)*?.*targets: \[\"([\d.:]+)\"\]", PROMETHEUS.read_text())
    assert {job.upper(): address for job, address in scraped} == told


def test_prometheus_accepts_its_files():
    if not shutil.which("promtool"):
        print("SKIPPED: promtool is not here; the container would be the first to read the rules")
        return
    subprocess.run(["promtool", "check", "config", str(PROMETHEUS)], check=True)


def check(expressions):
    names = known()
    assert len(names) > 80
    for expression in expressions:
        found = set(NAME.findall(expression))
        assert found or any(name in expression for name in OF_PROMETHEUS), expression
        assert found <= names, f"{sorted(found - names)} in {expression}"


def main():
    passed = failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            passed += 1
        except Exception as error:  # noqa: BLE001 - every kind of failure is one
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
