"""Dashboard and alert rules name only metrics that exist, and are what Grafana and Prometheus read.

Run by itself: python tests/compose/catalogue.py
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy/grafana/dashboards/felix.json"
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


def test_prometheus_accepts_its_files():
    if not shutil.which("promtool"):
        print("SKIPPED: promtool is not here; the container would be the first to read the rules")
        return
    subprocess.run(["promtool", "check", "config", str(ROOT / "deploy/prometheus/prometheus.yml")], check=True)


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
