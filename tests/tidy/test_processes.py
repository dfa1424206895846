"""Several test processes take whole files: what a file shares is made once."""

import re
import subprocess
import sys

import pytest

from tests.tidy.tree import ROOT

FILES = ["tests/unit/model/test_errors.py", "tests/unit/auth/test_identity.py"]
RUN = re.compile(r"^\[(gw\d)\].* PASSED (\S+?)::", re.MULTILINE)


@pytest.mark.timeout(300)
def test_a_file_stays_in_one_process():
    (processes,) = re.findall(r"^PROCESSES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    options = processes.replace("$(JOBS)", "2").split()

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *options, *FILES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )

    runs = RUN.findall(ended.stdout)
    assert len(runs) > 2 * len(FILES), ended.stdout
    # What does not group: pytest-xdist 3.8 with pytest 9.2, so `pip install -c constraints.txt`.
    assert len(set(runs)) == len(FILES), runs
