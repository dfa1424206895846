"""The tutorial and the guide of the command line run, step after step, in a real shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "guide"
WRITTEN_URL = "http://127.0.0.1:6632"
PROGRAMS = f"""set -e
skep() {{ "{sys.executable}" -m skep "$@"; }}
python() {{ "{sys.executable}" "$@"; }}"""


@pytest.fixture
def broker(start_broker):
    """A broker of its own: the guides count what is in its queues."""
    with start_broker("--workers", "1") as broker:
        yield broker


def follow(guide, broker, folder):
    """Save the files of a guide, run its commands in their order, and return what they printed."""
    text = (GUIDES / guide).read_text()
    for name, content in re.findall(r"Save as `(\S+?)`:\n\n```\w+\n(.*?)```", text, re.DOTALL):
        (folder / name).write_text(content.replace(WRITTEN_URL, broker.url))
    script = "\n".join([PROGRAMS, *re.findall(r"```sh\n(.*?)```", text, re.DOTALL)])
    variables = {
        # Nothing may reach the keyring of the person who runs this.
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        "SKEP_DATABASE_URL": broker.database_url,
        "SKEP_DATA_DIR": str(folder),
        "SKEP_URL": broker.url,
    }
    done = subprocess.run(
        ["bash", "-c", script.replace(WRITTEN_URL, broker.url)],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_of_the_guide_run_in_their_order(broker, config_home, tmp_path):
    printed = follow("cli.md", broker, tmp_path)

    assert "500 lines of numbers.ndjson: 500 queued, 0 duplicate" in printed
    assert "500 lines of numbers.ndjson: 0 queued, 500 duplicate" in printed
    assert "not JSON" in printed
    assert "pooler" in printed


@pytest.mark.slow
def test_the_tutorial_runs_from_a_first_message_to_a_stream(broker, config_home, tmp_path):
    printed = follow("tutorial.md", broker, tmp_path)

    assert re.findall(r"^billed .*", printed, re.MULTILINE) == [
        "billed customer-7 40 in paris",
        "billed customer-7 2 in paris",
    ]
    assert "a negative amount" in printed
    assert "order 42 is on its way" in printed
    assert sorted(re.findall(r'"data":(\{"shop".*?\})', printed)) == [
        '{"shop":"paris","amount":2}',
        '{"shop":"paris","amount":40}',
    ]
