"""The services of compose.yaml, as whoever tries them has them: by compose commands, and from the same machine."""

import contextlib
import json
import os
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

from engine import docker, inspect

ROOT = Path(__file__).resolve().parents[2]
GRAFANA = "docker.io/grafana/grafana:12.2.0"
# Seconds: everything to be built and up on a busy machine; a record or a change to be shown; one command.
UP_WAIT, SEEN_WAIT, COMMAND_WAIT = 400, 120, 120
# What the listeners are published on unless somebody says otherwise.
PORTS = {"BROKER": 5000, "CONTROLPLANE": 8443, "KAFKA": 9092, "GATEWAY": 8787, "PROMETHEUS": 9090, "GRAFANA": 3000}
# Services that run on, in the order in which they need each other.
SERVICES = ["pod", "postgres", "controlplane", "broker", "kafka", "gateway", "prometheus"]


class Stack:
    """The services under one project name; the network is the test's own, so every port is free."""

    def __init__(self, environment, programs, directory, settings):
        self.environment = environment | settings
        self.programs, self.directory = programs, directory
        self.project = "felix"
        self.ports = dict(PORTS)
        self.moved = {}
        self.with_grafana = False
        # Of the people in browsers, once there is one.
        self.provider = None
        plugin = subprocess.run(["docker", "compose", "version"], env=environment, capture_output=True).returncode == 0
        self.compose = ["docker", "compose"] if plugin else ["docker-compose"]

    def move(self, **ports):
        """Publishes on these ports from the next `up` on."""
        self.ports |= ports
        self.moved = {f"FELIX_{name}_PORT": str(port) for name, port in ports.items()}

    def command(self, *arguments):
        return [*self.compose, "--project-name", self.project, "--file", str(ROOT / "compose.yaml"), *arguments]

    def run(self, *arguments, timeout=COMMAND_WAIT):
        done = subprocess.run(
            self.command(*arguments), cwd=ROOT, env=self.environment | self.moved, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout,
        )
        assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def up(self):
        # Grafana would have to be fetched from its maker.
        wanted = [*SERVICES, "settings"] + (["grafana"] if self.with_grafana else [])
        self.run("up", "--detach", *wanted, timeout=UP_WAIT)
        for service in wanted:
            self.wait_for(service)

    def felixctl(self, *arguments):
        """As the quickstart says it."""
        return self.run("run", "--rm", "-T", "felixctl", *arguments)

    def installed(self, *arguments):
        """An installed felixctl on the same machine, with what docs/guides/compose.md tells it."""
        settings = {
            "FELIX_BROKERS": f"127.0.0.1:{self.ports['BROKER']}",
            "FELIX_SERVER_NAME": "localhost",
            "FELIX_CA_FILE": str(self.directory / "felix-ca.pem"),
            "FELIX_AUTH_TENANT": "dev",
            "FELIX_CONTROLPLANE_URL": f"http://127.0.0.1:{self.ports['CONTROLPLANE']}",
            "FELIX_SERVICE_ACCOUNT_KEY_FILE": str(self.directory / "felixctl.key"),
            "XDG_CONFIG_HOME": str(self.directory / "configuration"),
        }
        done = subprocess.run(
            [str(self.programs / "felixctl"), *arguments], env=self.environment | settings, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=COMMAND_WAIT,
        )
        assert done.returncode == 0, f"felixctl {arguments}: exit {done.returncode}\n{done.stderr[-2000:]}"
        return done.stdout

    @contextlib.contextmanager
    def following(self, *arguments):
        """A felixctl that goes on; yields a function that waits for a line with a word in it."""
        process = subprocess.Popen(
            self.command("run", "--rm", "-T", "felixctl", *arguments), cwd=ROOT, env=self.environment | self.moved,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        lines, changed = [], threading.Condition()

        def read():
            for line in process.stdout:
                with changed:
                    lines.append(line)
                    changed.notify_all()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()

        def saw(word, seconds):
            with changed:
                return changed.wait_for(lambda: any(word in line for line in lines), seconds)

        try:
            yield saw
        finally:
            # Compose stops and removes the container.
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.remove_runs()

    def remove_runs(self):
        """Containers of `run` that outlived their command."""
        ids = self.ids("--filter", "label=com.docker.compose.oneoff=True")
        if ids:
            docker(self.environment, "rm", "--force", *ids)

    def ids(self, *filters):
        """Containers of this project, running or not."""
        label = f"label=com.docker.compose.project={self.project}"
        return docker(self.environment, "ps", "--all", "--quiet", "--filter", label, *filters).split()

    def containers(self):
        """Of each service what the engine says about its container."""
        return {
            one["Config"]["Labels"]["com.docker.compose.service"]: one
            for one in inspect(self.environment, *self.ids("--filter", "label=com.docker.compose.oneoff=False"))
        }

    def wait_for(self, service, pid_before=None):
        """Until it is healthy, or has done what it had to; `pid_before`: as another process than this one."""
        until(
            lambda: settled(self.containers()[service], pid_before), UP_WAIT,
            lambda: f"{service} is {json.dumps(self.containers()[service]['State'])[:2000]}",
        )

    def get(self, name, path, **query):
        address = f"http://127.0.0.1:{self.ports[name]}{path}"
        if query:
            address += "?" + urllib.parse.urlencode(query)
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.read().decode()

    def prometheus(self, what, **query):
        answer = json.loads(self.get("PROMETHEUS", f"/api/v1/{what}", **query))
        assert answer["status"] == "success", answer
        return answer["data"]


def settled(container, pid_before):
    state = container["State"]
    if container["Config"].get("Healthcheck") is None:
        return state["Status"] == "exited" and state["ExitCode"] == 0
    return state.get("Health", {}).get("Status") == "healthy" and state["Pid"] != pid_before


def until(condition, seconds, otherwise):
    """Waits for a condition; `otherwise` says what is there instead."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.2)


def privately(file, text):
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as output:
        output.write(text)
