"""A little instance for `test_supervisor`: a real supervisor over workers that do nearly nothing.

Run as `python -m tests.api.support.supervised <kind of worker>`. Everything worth knowing goes to
standard output, one event a line. All processes hold that pipe, so its end means that none is left.
"""

import json
import logging
import os
import select
import signal
import sys
from dataclasses import dataclass, field

from skep.app.processes.assignment import assign_workers, bind_listener
from skep.app.processes.supervisor import Supervisor, WorkersKeepDying
from skep.model.errors import Unavailable
from skep.settings import Settings


def say(**event):
    # One write, so that the lines of several processes do not mix.
    os.write(1, json.dumps(event).encode() + b"\n")


def serve(assignment, report_ready):
    """Greet each connection, and pass on a wake-up to a peer, until asked to stop."""
    asked_to_stop, stop = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stop, b"!"))
    say(event="serving", index=assignment.index, pid=os.getpid(), ports=assignment.wakeup_ports)
    report_ready()
    sources = [assignment.listener, assignment.wakeup_socket, asked_to_stop]
    while True:
        readable, _, _ = select.select(sources, [], [])
        if asked_to_stop in readable:
            say(event="drained", index=assignment.index)
            return
        if assignment.wakeup_socket in readable:
            token = assignment.wakeup_socket.recv(64)
            is_genuine = token == assignment.wakeup_token
            say(event="woken", index=assignment.index, is_genuine=is_genuine)
        if assignment.listener in readable:
            greet(assignment)


def greet(assignment):
    try:
        connection, _ = assignment.listener.accept()
    except BlockingIOError:
        return
    with connection:
        connection.sendall(b"hello")
    for port in assignment.wakeup_ports:
        assignment.wakeup_socket.sendto(assignment.wakeup_token, ("127.0.0.1", port))


def refuse_to_stop(assignment, report_ready):
    signal.signal(signal.SIGTERM, lambda *_: say(event="refused"))
    say(event="serving", index=assignment.index, pid=os.getpid())
    report_ready()
    while True:
        signal.pause()


def drain_for_ever(assignment, report_ready):
    asked_to_stop, stop = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stop, b"!"))
    report_ready()
    os.read(asked_to_stop, 1)
    assignment.listener.close()
    say(event="draining")
    while True:
        signal.pause()


def fail_to_start(assignment, report_ready):
    say(event="failing", index=assignment.index)
    raise Unavailable("the database is somewhere else")


def crash_at_start(assignment, report_ready):
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Mortal:
    """A companion whose death is the arrival of a byte."""

    name: str = "the companion"
    pipe: tuple[int, int] = field(default_factory=os.pipe)

    def fileno(self):
        return self.pipe[0]

    def die(self):
        os.write(self.pipe[1], b"!")

    def revive(self):
        os.read(self.pipe[0], 1)
        say(event="revived")


def main(kind, worker_count, grace_s):
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    settings = Settings(workers=worker_count, shutdown_grace_s=grace_s)
    listener = bind_listener("127.0.0.1", 0)
    port = listener.getsockname()[1]
    companion = Mortal()
    signal.signal(signal.SIGUSR1, lambda *_: companion.die())
    supervisor = Supervisor(
        assign_workers(settings, dsn="", listener=listener),
        globals()[kind],
        grace_s=grace_s,
        on_ready=lambda: say(event="ready", port=port, pid=os.getpid()),
        companions=[companion],
    )
    try:
        supervisor.run()
    except WorkersKeepDying as error:
        say(event="gave up", reason=error.message)
        return 2
    say(event="stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
