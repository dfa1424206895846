"""The examples of the guide of the command line run, one after the other, in a real shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "cli.md"
WRITTEN_URL = "http://127.0.0.1:6632"


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker of its own: the guide counts what is in its queues."""
    with start_broker("--workers", "1") as broker:
        yield broker


def test_the_examples_run_in_their_order(broker, config_home, tmp_path):
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    script = "\n".join(["set -e", f'skep() {{ "{sys.executable}" -m skep "$@"; }}', *blocks])
    # Nothing may reach the keyring of whoever runs this.
    variables = {
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        "SKEP_DATABASE_URL": broker.database_url,
    }

    done = subprocess.run(
        ["bash", "-c", script.replace(WRITTEN_URL, broker.url)],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "500 lines of numbers.ndjson: 500 queued, 0 duplicate" in done.stdout
    assert "500 lines of numbers.ndjson: 0 queued, 500 duplicate" in done.stdout
    assert "not JSON" in done.stdout
    assert "pooler" in done.stdout
