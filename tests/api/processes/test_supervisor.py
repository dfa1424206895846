"""The supervisor with real processes; what they are stands in `supervised`."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from skep.app.processes.supervisor import STARTUP_EXITS_MAX

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


class Instance:
    """A supervisor under test and the events that it and its workers wrote."""

    def __init__(self, process):
        self.process = process
        self.events = []

    def wait_for(self, name):
        """Read events up to the next one of that name."""
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            if event["event"] == name:
                return event
        pytest.fail(f"no event {name!r} among {self.events}")

    def wait_for_end_of_all(self):
        """Return the exit code once no process holds the pipe any more."""
        self.events += [json.loads(line) for line in self.process.stdout]
        return self.process.wait()

    def named(self, name):
        return [event for event in self.events if event["event"] == name]


@contextmanager
def running(kind, *, workers=1, grace_s=0.5):
    command = [
        sys.executable,
        "-m",
        "tests.api.support.supervised",
        kind,
        str(workers),
        str(grace_s),
    ]
    # A session of its own, so that all of it can be ended whatever a test left behind.
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield Instance(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def call(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        return connection.recv(16)


def test_workers_share_the_port_and_wake_each_other():
    with running("serve", workers=2) as instance:
        port = instance.wait_for("ready")["port"]
        ports = {tuple(event["ports"]) for event in instance.named("serving")}

        assert call(port) == b"hello"
        wakeups = [instance.wait_for("woken"), instance.wait_for("woken")]

        assert {event["index"] for event in wakeups} == {0, 1}
        assert all(event["is_genuine"] for event in wakeups)
        assert len(ports) == 1
        assert len(set(ports.pop())) == 2


def test_ready_is_announced_once_when_all_workers_serve():
    with running("serve", workers=2) as instance:
        instance.wait_for("ready")
        serving = instance.named("serving")

        os.kill(serving[0]["pid"], signal.SIGKILL)
        instance.wait_for("serving")
        instance.process.terminate()
        instance.wait_for_end_of_all()

        assert {event["index"] for event in serving} == {0, 1}
        assert len(instance.named("ready")) == 1


def test_a_worker_that_dies_is_started_again_on_the_same_sockets():
    with running("serve") as instance:
        port = instance.wait_for("ready")["port"]
        first = instance.named("serving")[0]

        os.kill(first["pid"], signal.SIGKILL)
        second = instance.wait_for("serving")

        assert second["pid"] != first["pid"]
        assert second["ports"] == first["ports"]
        assert call(port) == b"hello"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_signal_drains_the_workers_and_ends_well(number):
    with running("serve", workers=2, grace_s=20) as instance:  # a busy machine may stall for long
        instance.wait_for("ready")

        instance.process.send_signal(number)
        exit_code = instance.wait_for_end_of_all()

        assert exit_code == 0
        assert [event["event"] for event in instance.events[-3:]] == [
            "drained",
            "drained",
            "stopped",
        ]


def test_an_interrupt_from_the_terminal_leaves_the_workers_to_the_supervisor():
    with running("serve") as instance:
        port = instance.wait_for("ready")["port"]

        os.kill(instance.named("serving")[0]["pid"], signal.SIGINT)

        assert call(port) == b"hello"
        assert len(instance.named("serving")) == 1


def test_a_worker_that_does_not_drain_is_killed_after_the_grace():
    with running("refuse_to_stop") as instance:
        instance.wait_for("ready")

        instance.process.terminate()
        exit_code = instance.wait_for_end_of_all()

        assert exit_code == 0
        assert instance.events[-1]["event"] == "stopped"


def test_a_second_signal_does_not_wait_for_the_grace():
    with running("refuse_to_stop", grace_s=3_600) as instance:
        instance.wait_for("ready")

        instance.process.terminate()
        instance.wait_for("refused")
        instance.process.terminate()

        assert instance.wait_for_end_of_all() == 0


def test_new_connections_are_refused_while_workers_drain():
    with running("drain_for_ever", grace_s=3_600) as instance:
        port = instance.wait_for("ready")["port"]

        instance.process.terminate()
        instance.wait_for("draining")

        with pytest.raises(ConnectionRefusedError):
            call(port)


def test_workers_end_with_a_supervisor_that_was_killed():
    with running("serve", workers=2, grace_s=20) as instance:
        instance.wait_for("ready")

        instance.process.kill()
        instance.wait_for_end_of_all()

        assert len(instance.named("drained")) == 2


def test_a_worker_that_ignores_signals_ends_with_a_killed_supervisor_too():
    with running("refuse_to_stop") as instance:
        instance.wait_for("ready")

        instance.process.kill()

        assert instance.wait_for_end_of_all() == -signal.SIGKILL


def test_giving_up_names_the_reason_the_worker_gave():
    with running("fail_to_start") as instance:
        exit_code = instance.wait_for_end_of_all()

        assert exit_code == 2
        assert len(instance.named("failing")) == STARTUP_EXITS_MAX
        assert "the database is somewhere else" in instance.named("gave up")[0]["reason"]


def test_giving_up_names_the_signal_of_a_worker_that_could_not_speak():
    with running("crash_at_start") as instance:
        instance.wait_for_end_of_all()

        assert "SIGKILL" in instance.named("gave up")[0]["reason"]


def test_a_companion_that_ends_is_revived():
    with running("serve") as instance:
        instance.wait_for("ready")

        instance.process.send_signal(signal.SIGUSR1)

        assert instance.wait_for("revived")
