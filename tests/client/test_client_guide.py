"""The examples of the guide and in `examples` work, one after the other."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from skep.client import AsyncClient

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide" / "client.md"
WRITTEN_URL = "http://127.0.0.1:6632"


def blocks():
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker of its own: the README uses the same names."""
    with start_broker("--workers", "1") as broker:
        yield broker


def run_example(name, *arguments, text=None):
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_examples_of_the_guide_run_in_their_order(broker, capsys):
    async with AsyncClient(broker.url) as client:
        names = {"__name__": "guide"}
        for block in blocks():
            # The first block closes its client, and those behind it go on with one.
            names["client"] = client
            text = block.replace(WRITTEN_URL, broker.url)
            code = compile(text, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)
            if running is not None:
                await running
    printed = capsys.readouterr().out.splitlines()

    assert printed[0].startswith("queued 0")
    assert printed[1:3] == ["2", "1000"]
    assert "{'to': 'you'}" in printed


def test_the_example_of_both_sides_runs(broker):
    printed = run_example("push_and_consume.py", broker.url).splitlines()

    assert printed[0] == "stored 12 orders"
    assert len(printed) >= 13


def test_the_example_of_a_typed_table_runs(broker, tmp_path):
    printed = run_example("typed_table.py", broker.url, broker.database_url, str(tmp_path))

    assert printed == "in the lake: [(3, 60.5)]\nin both: [('north', 40.0), ('south', 60.5)]\n"


def test_the_example_of_a_worker_runs(broker):
    run_example("push_and_consume.py", broker.url)

    assert re.search(r"handled \d+ orders", run_example("worker.py", broker.url, "--until-idle"))


def test_the_example_of_a_buffered_producer_runs(broker):
    numbers = "".join(f"{number}\n" for number in range(5_000))

    printed = run_example("buffered_producer.py", broker.url, "numbers", text=numbers)

    assert printed == "stored 5000 messages\n"
