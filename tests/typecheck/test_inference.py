"""Checkers follow a chain from its start to its result, and reject what does not fit."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def pyright_errors(path):
    """Return the lines of a file that pyright rejects."""
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable, str(path)]
    found = json.loads(run(command))["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}


def mypy_errors(path):
    """Return the lines of a file that mypy rejects."""
    command = ["mypy", "--strict", "--follow-imports=silent", "--no-incremental"]
    # Our own package is checked by pyright; here it only has to be understood.
    command += ["--cache-dir=/dev/null", "--no-error-summary", str(path)]
    lines = re.findall(rf"{path.name}:(\d+): error", run(command))
    return {int(line) for line in lines}


def run(command):
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "MYPYPATH": "src:.", "HOME": str(Path.home())},
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("errors_of", [pyright_errors, mypy_errors])
def test_what_fits_is_accepted_and_inferred(errors_of):
    assert errors_of(HERE / "accepted.py") == set()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("errors_of", [pyright_errors, mypy_errors])
def test_exactly_what_does_not_fit_is_rejected(errors_of):
    path = HERE / "rejected.py"
    lines = path.read_text().splitlines()
    marked = {number for number, line in enumerate(lines, start=1) if "# rejected" in line}

    assert errors_of(path) == marked
