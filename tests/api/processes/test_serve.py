"""`skep serve` from nothing to a working broker and back, in real processes."""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress

import httpx
import pytest

from tests.faults.support.instances import worker_pids
from tests.support.ports import free_port, free_ports
from tests.support.postgres import make_reachable_directory

pytestmark = pytest.mark.slow

AT_ONCE_S = 3
"""Some tenths of a second, on a machine that is busy with other tests."""
END_S = 60


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

    def push(self, queue, payload):
        item = {"queue": queue, "payload": payload}
        return httpx.post(f"{self.url}/api/v1/push", json={"items": [item]}, timeout=60)

    def pop(self, queue):
        answer = httpx.get(f"{self.url}/api/v1/pop/queue/{queue}?autoAck=true", timeout=60)
        if answer.status_code != 200:
            return []
        return [message["data"] for message in answer.json()["messages"]]

    def stop(self):
        self.process.terminate()
        return self.process.wait()


@contextmanager
def serving(data_dir, *flags, **variables):
    command = [sys.executable, "-m", "skep", "serve", *flags, "--data-dir", str(data_dir)]
    chosen = {name: str(value) for name, value in {"SKEP_PORT": 0, **variables}.items()}
    environment = {**os.environ, **chosen}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield Broker(process)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def data_dir():
    """A data directory that tests share, because making one takes seconds; queues are their own."""
    directory = make_reachable_directory()
    yield directory / "data"
    wait_for_postgres_to_end(directory / "data")
    shutil.rmtree(directory)


def postmaster_file(data_dir):
    return data_dir / "data" / "postmaster.pid"


def wait_for_postgres_to_end(data_dir):
    """Wait for the PostgreSQL of a broker that was killed: it ends after it, and tidies up."""
    with suppress(FileNotFoundError, ProcessLookupError):
        descriptor = os.pidfd_open(int(postmaster_file(data_dir).read_text().split()[0]))
        try:
            select.select([descriptor], [], [], END_S)
        finally:
            os.close(descriptor)


def test_from_nothing_the_lines_to_try_work_as_printed(postgres_dir):
    with serving(postgres_dir / "new") as broker:
        push, pop = re.findall(r"^ +(curl .+)$", broker.greeting, re.MULTILINE)

        pushed = subprocess.run(push, shell=True, capture_output=True, text=True, check=True)
        popped = subprocess.run(pop, shell=True, capture_output=True, text=True, check=True)
        page = httpx.get(f"{broker.url}/docs", timeout=60)

    assert '"queued"' in pushed.stdout
    assert '{"hello": "world"}' in popped.stdout
    assert page.status_code == 200


def test_a_message_survives_a_restart_and_sigterm_ends_well(data_dir):
    with serving(data_dir) as first:
        assert first.push("restart", "kept").status_code == 201
        exit_code = first.stop()
    is_postgres_gone = not postmaster_file(data_dir).exists()
    with serving(data_dir) as second:
        popped = second.pop("restart")

    assert exit_code == 0
    assert is_postgres_gone
    assert popped == ["kept"]


def test_a_worker_ends_at_once_when_its_supervisor_is_killed(data_dir):
    with serving(data_dir) as broker:
        (worker,) = worker_pids(broker)
        descriptor = os.pidfd_open(worker)
        try:
            broker.process.kill()
            has_ended, _, _ = select.select([descriptor], [], [], AT_ONCE_S)
        finally:
            os.close(descriptor)

    assert has_ended


def test_a_killed_broker_can_be_started_again_at_once(data_dir):
    (peer_port,) = free_ports(1, socket.SOCK_DGRAM)
    ports = {"SKEP_PORT": free_port(), "SKEP_PEER_PORT": peer_port, "SKEP_PEER_SECRET": "x" * 32}
    with serving(data_dir, **ports) as first:
        first.push("kill", "kept")
        first.process.kill()
        first.process.wait()

        with serving(data_dir, **ports) as second:
            popped = second.pop("kill")

    assert popped == ["kept"]


def test_several_workers_serve_one_log(data_dir):
    with serving(data_dir, "--workers", "2") as broker:
        for number in range(10):
            broker.push("shared", number)

        popped = [payload for _ in range(10) for payload in broker.pop("shared")]

    assert popped == list(range(10))


def test_an_embedded_server_that_dies_comes_back_under_the_broker(data_dir):
    with serving(data_dir) as broker:
        broker.push("revived", "before")
        postmaster = int(postmaster_file(data_dir).read_text().split()[0])

        os.kill(postmaster, signal.SIGKILL)
        while broker.push("revived", "after").status_code != 201:
            pass

        # What was pushed meanwhile may have been kept on disk, and comes a moment later.
        popped = []
        while "after" not in popped:
            popped += broker.pop("revived")

    assert popped[0] == "before"
