"""The clients that Queen publishes, each version in a directory of its own, and their scenarios."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

CLIENTS = Path(__file__).parents[2] / "build" / "clients"
VERSIONS = ["0.15.0", "1.3.0"]
SCENARIO_S = 90


@pytest.fixture(scope="session")
def install_client():
    """Install a version of `queen-mq`, unmodified, and return the directory to import it from.

    All versions are imported as `queen`, so none of them can be in our own environment. What was
    installed is kept between runs.
    """

    def install(version):
        directory = CLIENTS / f"queen-mq-{version}"
        if not directory.exists():
            CLIENTS.mkdir(parents=True, exist_ok=True)
            # Beside its place, and moved there when complete: an interrupted run leaves no half.
            unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=CLIENTS))
            options = ["--quiet", "--disable-pip-version-check", "--no-deps"]
            wanted = ["--target", str(unfinished), f"queen-mq=={version}"]
            command = [sys.executable, "-m", "pip", "install", *options, *wanted]
            try:
                subprocess.run(command, check=True, timeout=100)
                with suppress(OSError):  # another process of the run was first
                    unfinished.rename(directory)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        return directory

    return install


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def play(request, version, install_client, broker, queue):
    """Play a scenario of the file that the module names, in a process of its own.

    Returns what it saw. The client turns every failure of a pop into "nothing there" and mentions
    it in its output only; so nothing may fail there unless the test expects it.
    """
    scenarios = Path(__file__).with_name(request.module.SCENARIOS)

    def play(scenario, *, fails=False):
        run = subprocess.run(
            [sys.executable, str(scenarios), scenario, broker.url, queue],
            env={**os.environ, "PYTHONPATH": str(install_client(version))},
            capture_output=True,
            text=True,
            timeout=SCENARIO_S,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        *said_by_client, seen = run.stdout.splitlines()
        assert fails == any("fail" in line.lower() for line in said_by_client), run.stdout
        return json.loads(seen)

    return play
