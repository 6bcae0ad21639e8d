"""Prometheus reaches every program, its rules hold, and it answers every query of the dashboard."""

import json
import time

from stack import ROOT, SEEN_WAIT, until

JOBS = {"controlplane", "broker", "kafka", "gateway"}
DASHBOARD = ROOT / "deploy/grafana/dashboards/felix.json"


def test_prometheus_reaches_every_program(stack):
    def up():
        return {one["metric"]["job"]: one["value"][1] for one in stack.prometheus("query", query="up")["result"]}

    until(lambda: up() == dict.fromkeys(JOBS, "1"), SEEN_WAIT, lambda: f"up: {up()}")


def test_the_alert_rules_are_evaluated_without_an_error(stack):
    def rules():
        return [rule for group in stack.prometheus("rules")["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] != "unknown" for rule in rules()), SEEN_WAIT, lambda: f"not evaluated: {rules()}")
    assert len(rules()) >= 10
    wrong = [(rule["name"], rule.get("lastError")) for rule in rules() if rule["health"] != "ok"]
    assert not wrong, wrong

    def firing():
        return [rule["name"] for rule in rules() if rule["state"] == "firing"]

    # Whatever was not up yet when Prometheus came up is forgiven once it is.
    until(lambda: not firing(), SEEN_WAIT, lambda: f"firing: {firing()}")


def queries():
    """The title and the queries of each panel."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in panels if panel.get("targets")}


def asked(stack, query):
    """What Grafana asks for a panel of the last minutes; the points of each series."""
    now = time.time()
    query = query.replace("$__rate_interval", "20s")
    return stack.prometheus("query_range", query=query, start=now - 300, end=now, step=5)["result"]


def test_every_query_of_the_dashboard_is_answered_with_points(stack):
    def without_points():
        return [query for panel in queries().values() for query in panel if not asked(stack, query)]

    until(lambda: not without_points(), SEEN_WAIT, lambda: f"no points: {without_points()}")

    def highest():
        return {
            panel: max(float(value) for series in asked(stack, queries()[panel][0]) for _, value in series["values"])
            for panel in ("Programs up", "Records a second", "Catalogue revision", "Kafka requests a second")
        }

    # What was just done is counted at the next scrape.
    until(lambda: all(highest().values()), SEEN_WAIT, lambda: f"nothing counted: {highest()}")
    assert highest()["Programs up"] == len(JOBS), highest()


def test_grafana_shows_the_dashboard(stack):
    shown = json.loads(stack.get("GRAFANA", "/api/dashboards/uid/felix"))
    assert shown["meta"]["provisioned"] and shown["dashboard"]["panels"] == json.loads(DASHBOARD.read_text())["panels"]
    proxied = stack.get("GRAFANA", "/api/datasources/proxy/uid/felix/api/v1/query", query="sum(up)")
    assert json.loads(proxied)["data"]["result"][0]["value"][1] == "4", proxied


TESTS = [
    test_prometheus_reaches_every_program,
    test_the_alert_rules_are_evaluated_without_an_error,
    test_every_query_of_the_dashboard_is_answered_with_points,
    test_grafana_shows_the_dashboard,
]
# What cannot be without an image of Grafana.
OF_GRAFANA = {test_grafana_shows_the_dashboard}
