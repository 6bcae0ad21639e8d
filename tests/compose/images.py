"""What compose.yaml builds on in the test, made here: no registry is asked for an image."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from engine import CACHE, NoEngine, apart, docker

PROGRAMS = ["felix-controlplane", "felix-broker", "felix-kafka", "felix-gateway", "felixctl"]
INCLUDED = "ca-certificates,postgresql,prometheus"
# Of no use in there: what is read by people, lists of packages, scripts of old pages, the cluster Debian makes.
LEFT_OUT = [
    "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/i18n", "usr/share/info", "usr/share/javascript",
    "var/cache/apt", "var/lib/apt/lists", "var/lib/postgresql/*", "var/log/*", "usr/bin/promtool",
]
# Seconds.
FETCH_WAIT = 400


def suite():
    """The Debian of this machine, since programs that were linked here run there; bookworm where this is none."""
    fields = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        name, _, value = line.partition("=")
        fields[name] = value.strip('"')
    return fields.get("VERSION_CODENAME", "bookworm") if fields.get("ID") == "debian" else "bookworm"


def base_archive(directory):
    """A Debian that brings PostgreSQL and Prometheus, as an archive that is kept for the next time."""
    archive = CACHE / f"base-{suite()}-{INCLUDED.replace(',', '-')}-1.tar"
    for old in CACHE.glob("base-*.tar"):
        if old != archive:
            old.unlink()
    if archive.exists():
        return archive
    print("fetching a Debian with debootstrap; the next run has it", flush=True)
    root, partial, log = directory / "root", directory / "base.tar", directory / "debootstrap.log"
    # What it mounts goes with its namespace.
    command = ["timeout", str(FETCH_WAIT), "debootstrap", "--variant=minbase", f"--include={INCLUDED}", suite(), str(root)]
    with open(log, "w") as output:
        if apart(command, network=False, stdout=output, stderr=output) != 0:
            raise NoEngine("debootstrap fetches no Debian: " + " / ".join(log.read_text().splitlines()[-3:]))
    excluded = [f"--exclude=./{path}" for path in LEFT_OUT]
    subprocess.run(["tar", "-C", str(root), *excluded, "-cf", str(partial), "."], check=True)
    subprocess.run(["rm", "-rf", str(root)], check=True)
    partial.rename(archive)
    return archive


def base(environment, archive):
    """The archive as an image, which a container was seen to run on."""
    docker(environment, "import", str(archive), "felix-test-base")
    done = subprocess.run(
        ["docker", "run", "--rm", "felix-test-base", "true"], env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise NoEngine(f"dockerd starts, but a container does not: {done.stderr.strip()[-500:]}")
    return "felix-test-base"


def ready_made(environment, base_image, programs):
    """The base with the programs: what the build of the image takes in place of a compiler."""
    with tempfile.TemporaryDirectory(dir=environment["TMPDIR"]) as directory:
        place = Path(directory)
        (place / "bin").mkdir()
        for name in PROGRAMS:
            subprocess.run(["strip", "-o", str(place / "bin" / name), str(programs / name)], check=True)
        (place / "Containerfile").write_text(f"FROM {base_image}\nCOPY bin/ /felix/bin/\n")
        docker(
            environment, "build", "--quiet", "--tag", "felix-test-programs",
            "--file", str(place / "Containerfile"), str(place),
        )
    return "felix-test-programs"


def grafana(environment, image):
    """Whether there is an image of Grafana: one saved with `docker save` whose path is in FELIX_GRAFANA_ARCHIVE."""
    archive = os.environ.get("FELIX_GRAFANA_ARCHIVE")
    if not archive:
        return False
    docker(environment, "load", "--input", archive)
    docker(environment, "image", "inspect", image)
    return True


def missing_programs(programs):
    return [name for name in PROGRAMS if not (programs / name).exists()]


def missing_tools():
    return [name for name in ("debootstrap", "docker", "dockerd", "strip", "setpriv", "unshare") if not shutil.which(name)]
