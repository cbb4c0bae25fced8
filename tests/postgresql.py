"""A PostgreSQL server of the tests' own, in a temporary folder, run by an unprivileged user."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = "evencover"


def binaries():
    """Return the folder of the server's programs; install the distribution's if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["update"], ["install", "-y", "--no-install-recommends", "postgresql"]):
            environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", "-q", *command], env=environment, check=True)
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    path = shutil.which("initdb") if not found else str(found[-1])
    if path is None:
        pytest.skip("PostgreSQL is not installed, and cannot be")
    return Path(path).parent


@contextmanager
def postgresql():
    """Start a server that listens in its own folder only, and give its address."""
    programs = binaries()
    folder = Path(tempfile.mkdtemp(prefix="evencover-pg-"))
    user = {}
    if os.geteuid() == 0:  # it refuses to run as root
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}

    def run(name, *arguments):
        command = [programs / name, "-D", folder / "data", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)

    run("initdb", "-A", "trust", "-U", USER, "-E", "UTF8", "--no-sync")
    options = f"-k {folder} -c listen_addresses='' -c max_connections=50"
    run("pg_ctl", "-w", "-l", folder / "log", "-o", options, "start")
    try:
        yield f"postgresql://{USER}@/postgres?host={folder}"
    finally:
        run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
