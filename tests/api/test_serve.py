"""`skep serve` from nothing to a working broker and back, in real processes."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.slow


class Broker:
    """A `skep serve` that listens."""

    def __init__(self, process):
        self.process = process
        self.greeting = self._read_greeting()
        self.url = re.search(r"http://\S+", self.greeting)[0]

    def _read_greeting(self):
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if "/docs" in line:
                return "".join(lines)
        return pytest.fail(f"it ended with {self.process.wait()} and said {lines}")

    def push(self, payload):
        item = {"queue": "demo", "payload": payload}
        return httpx.post(f"{self.url}/api/v1/push", json={"items": [item]})

    def pop(self):
        answer = httpx.get(f"{self.url}/api/v1/pop/queue/demo?autoAck=true")
        return [message["data"] for message in answer.json()["messages"]]

    def stop(self):
        self.process.terminate()
        return self.process.wait()


@pytest.fixture
def serve(postgres_dir):
    """Start a broker on the data directory of this test."""

    @contextmanager
    def start(*flags):
        command = [sys.executable, "-m", "skep", "serve", "--port", "0", *flags]
        command += ["--data-dir", str(postgres_dir / "data")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield Broker(process)
            finally:
                process.terminate()

    return start


def test_the_lines_to_try_work_as_printed(serve):
    with serve() as broker:
        push, pop = re.findall(r"^ +(curl .+)$", broker.greeting, re.MULTILINE)

        pushed = subprocess.run(push, shell=True, capture_output=True, text=True, check=True)
        popped = subprocess.run(pop, shell=True, capture_output=True, text=True, check=True)
        page = httpx.get(f"{broker.url}/docs")

    assert '"queued"' in pushed.stdout
    assert '{"hello": "world"}' in popped.stdout
    assert page.status_code == 200


def test_a_message_survives_a_restart_and_sigterm_ends_well(serve, postgres_dir):
    with serve() as first:
        assert first.push("kept").status_code == 201
        exit_code = first.stop()
    is_postgres_gone = not Path(postgres_dir, "data", "data", "postmaster.pid").exists()
    with serve() as second:
        popped = second.pop()

    assert exit_code == 0
    assert is_postgres_gone
    assert popped == ["kept"]


def test_a_killed_broker_can_be_started_again_at_once(serve):
    with serve() as first:
        first.push("kept")
        first.process.kill()
        first.process.wait()

        with serve() as second:
            popped = second.pop()

    assert popped == ["kept"]


def test_several_workers_serve_one_log(serve):
    with serve("--workers", "2") as broker:
        for number in range(10):
            broker.push(number)

        popped = [payload for _ in range(10) for payload in broker.pop()]

    assert popped == list(range(10))


def test_an_embedded_server_that_dies_comes_back_under_the_broker(serve, postgres_dir):
    with serve() as broker:
        broker.push("before")
        postmaster = Path(postgres_dir, "data", "data", "postmaster.pid").read_text().split()[0]

        os.kill(int(postmaster), signal.SIGKILL)
        while broker.push("after").status_code != 201:
            pass

        popped = [*broker.pop(), *broker.pop()]

    assert popped[0] == "before"
    assert "after" in popped
