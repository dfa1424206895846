"""Keep the worker processes of one instance alive.

    supervisor ── owns the sockets, the embedded PostgreSQL and the exit code
      ├── worker 0 ┐
      ├── worker 1 ├ accept from the same listening socket
      └── worker n ┘

Promises:

* A worker that dies is started again, on the same sockets, after a bounded pause; one that never
  gets to serve ends the whole instance with the reason it gave (see `restart`).
* The first stop signal asks every worker to drain and waits for the grace period; a second one,
  or the end of the grace period, kills what is left.
* No worker outlives the supervisor, however that ends. Each holds one end of a channel whose
  other end is only here, and stops when it closes. (The parent-death signal of Linux would do the
  same, but there only.)
* A hangup makes the workers follow what changed in the settings and can be followed (see
  `skep.settings.reload`); with settings that are wrong nothing changes.
* Nothing polls: one wait covers signals, deaths, reports and the next start that is due.

A single worker is supervised too, instead of running in this process. It costs one idle
interpreter, and buys that a crash in native code or the out-of-memory killer takes neither the
instance nor the embedded PostgreSQL with it, and that there is one way to start and not two.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import ClassVar, Protocol

from skep.app.processes.assignment import WorkerAssignment, WorkerTarget
from skep.app.processes.restart import RestartHistory
from skep.app.processes.settings_updates import SettingsNews
from skep.app.processes.stop_signals import StopSignals
from skep.model.errors import SkepError, Unavailable
from skep.settings import Settings
from skep.settings.reload import reloaded

log = logging.getLogger("skep.supervisor")

# Not fork: the children must not inherit the supervisor's descriptors, or channels would not close.
_context = multiprocessing.get_context("spawn")


class WorkersKeepDying(Unavailable):
    """The worker processes do not start."""

    code: ClassVar[str] = "workers_keep_dying"


class Companion(Protocol):
    """Another process the instance cannot do without, such as the embedded PostgreSQL."""

    @property
    def name(self) -> str:
        """What the log calls it."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process ends."""
        ...

    def revive(self) -> None:
        """Start it again after its end; `fileno` is asked for anew afterwards."""
        ...


def revive_ended(companions: Iterable[Companion]) -> None:
    """Start those again that have ended."""
    for companion in companions:
        if wait([companion.fileno()], timeout=0):
            log.error("%s ended by itself; starting it again", companion.name)
            companion.revive()


@dataclass(frozen=True, slots=True)
class _Report:
    """What a worker tells the supervisor: that it serves, or why it could not."""

    is_ready: bool
    reason: str = ""


@dataclass(slots=True)
class _Running:
    process: SpawnProcess
    channel: Connection
    started_at: float
    is_ready: bool = False
    reason: str = ""


@dataclass(slots=True)
class _Slot:
    """One worker's place, through all the processes that fill it."""

    assignment: WorkerAssignment
    history: RestartHistory = field(default_factory=RestartHistory)
    running: _Running | None = None
    start_at: float = 0.0


class Supervisor:
    """Run `target` in one process per assignment until a stop signal arrives.

    Args:
        assignments: One per worker process.
        target: What each process runs; importable by name.
        grace_s: How long draining workers may take before they are killed.
        on_ready: Called once, when every worker has reported ready for the first time.
        companions: Watched and revived beside the workers.
        reload: Reads the settings again at a hangup. Without it a hangup stops the instance.
    """

    def __init__(
        self,
        assignments: Sequence[WorkerAssignment],
        target: WorkerTarget,
        *,
        grace_s: float,
        on_ready: Callable[[], None] = lambda: None,
        companions: Sequence[Companion] = (),
        reload: Callable[[], Settings] | None = None,
    ) -> None:
        self._sunits = [_Slot(assignment) for assignment in assignments]
        self._target = target
        self._grace_s = grace_s
        self._on_ready = on_ready
        self._companions = companions
        self._reload = reload
        self._is_announced = False

    def run(self) -> None:
        """Block until stopped by a signal, with every worker gone.

        Raises:
            WorkersKeepDying: A worker died again and again before it could serve.
        """
        with StopSignals(hangup_reloads=self._reload is not None) as signals:
            try:
                while not signals.take():
                    if signals.take_reload():
                        self._reload_settings()
                    self._start_what_is_due()
                    self._wait_for_news(signals)
                    revive_ended(self._companions)
                    self._read_reports()
                    self._bury_the_dead()
            finally:
                self._stop_workers(signals)

    def _reload_settings(self) -> None:
        assert self._reload is not None
        try:
            wanted = self._reload()
        except SkepError as error:
            log.warning("the settings are wrong and stay as they were: %s", error.message)
            return
        outcome = reloaded(self._sunits[0].assignment.settings, wanted)
        log.info("settings read again; changed: %s", ", ".join(outcome.changed) or "none")
        if outcome.needing_restart:
            log.warning("needing a restart: %s", ", ".join(outcome.needing_restart))
        for slot in self._sunits:
            slot.assignment = replace(slot.assignment, settings=outcome.settings)
            if slot.running is not None:
                # A worker that is just dying starts again with the new settings anyway.
                with suppress(OSError, ValueError):
                    slot.running.channel.send(outcome.settings)

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        for slot in self._sunits:
            if slot.running is None and slot.start_at <= now:
                slot.running = self._start(slot.assignment)

    def _start(self, assignment: WorkerAssignment) -> _Running:
        ours, theirs = _context.Pipe()
        process = _context.Process(
            target=_work,
            args=(self._target, assignment, theirs),
            name=f"skep-worker-{assignment.index}",
        )
        with theirs, _terminal_signals_blocked():
            process.start()
        return _Running(process, ours, started_at=time.monotonic())

    def _wait_for_news(self, signals: StopSignals) -> None:
        running = [slot.running for slot in self._sunits if slot.running is not None]
        due = [slot.start_at for slot in self._sunits if slot.running is None]
        wait(
            [
                signals.fileno(),
                *(companion.fileno() for companion in self._companions),
                *(worker.channel for worker in running if not worker.channel.closed),
                *(worker.process.sentinel for worker in running),
            ],
            timeout=max(0.0, min(due) - time.monotonic()) if due else None,
        )

    def _read_reports(self) -> None:
        for slot in self._sunits:
            if slot.running is not None:
                _read_report(slot.running)
        if not self._is_announced and all(s.running and s.running.is_ready for s in self._sunits):
            self._is_announced = True
            self._on_ready()

    def _bury_the_dead(self) -> None:
        for slot in self._sunits:
            if slot.running is not None and not slot.running.process.is_alive():
                self._plan_restart(slot, slot.running)

    def _plan_restart(self, slot: _Slot, dead: _Running) -> None:
        # The report may have arrived between the last reading and the death.
        _read_report(dead)
        ending = dead.reason or _describe_exit(dead.process.exitcode)
        _release(dead)
        slot.running = None
        now = time.monotonic()
        pause_s = slot.history.pause_after_death(
            now, lived_s=now - dead.started_at, was_ready=dead.is_ready
        )
        if pause_s is None:
            raise WorkersKeepDying(f"worker {slot.assignment.index} does not start: {ending}")
        log.error(
            "worker %d died (%s); starting it again in %.1f s",
            slot.assignment.index,
            ending,
            pause_s,
        )
        slot.start_at = now + pause_s

    def _stop_workers(self, signals: StopSignals) -> None:
        running = [slot.running for slot in self._sunits if slot.running is not None]
        for slot in self._sunits:
            # Once the workers have closed theirs too, new connections are refused at once instead
            # of hanging in the backlog of a socket that nobody accepts from.
            slot.assignment.listener.close()
        for worker in running:
            worker.process.terminate()
        deadline = time.monotonic() + self._grace_s
        draining = running
        while draining and time.monotonic() < deadline and not signals.take():
            sentinels = [worker.process.sentinel for worker in draining]
            wait([signals.fileno(), *sentinels], timeout=max(0.0, deadline - time.monotonic()))
            draining = [worker for worker in draining if worker.process.is_alive()]
        for worker in draining:
            log.warning("%s did not drain in time; killing it", worker.process.name)
            worker.process.kill()
        for worker in running:
            worker.process.join()
            _release(worker)


def _read_report(worker: _Running) -> None:
    try:
        while not worker.channel.closed and worker.channel.poll():
            report: _Report = worker.channel.recv()
            worker.is_ready = worker.is_ready or report.is_ready
            worker.reason = report.reason
    except (EOFError, OSError):
        # The worker's end is closed: it is dying, and its sentinel will say so.
        worker.channel.close()


def _release(worker: _Running) -> None:
    worker.channel.close()
    worker.process.close()


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"exit code {code}"


@contextmanager
def _terminal_signals_blocked() -> Generator[None]:
    """Let children start with SIGINT and SIGHUP blocked, which they inherit.

    Ctrl-C and a hangup go to every process of the terminal. Workers must leave them to the
    supervisor, also in the first moments, when they could not yet have chosen so themselves.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(target: WorkerTarget, assignment: WorkerAssignment, channel: Connection) -> None:
    """Be a worker process."""
    grace_s = assignment.settings.shutdown_grace_s
    news = SettingsNews()
    assignment = replace(assignment, news=news)
    listening = threading.Thread(
        target=_listen_to_supervisor, args=(channel, news, grace_s), daemon=True
    )
    listening.start()
    # A socket that travelled is set to block again, whatever it was before.
    assignment.listener.setblocking(False)
    assignment.wakeup_socket.setblocking(False)
    if assignment.peer_socket is not None:
        assignment.peer_socket.setblocking(False)
    try:
        target(assignment, lambda: channel.send(_Report(is_ready=True)))
    except SkepError as error:
        channel.send(_Report(is_ready=False, reason=error.message))
        raise SystemExit(1) from None
    except Exception as error:
        channel.send(_Report(is_ready=False, reason=f"{type(error).__name__}: {error}"))
        raise


def _listen_to_supervisor(channel: Connection, news: SettingsNews, grace_s: float) -> None:
    """Pass on changed settings, and end when the supervisor is gone."""
    with suppress(EOFError, OSError):
        while True:
            settings: Settings = channel.recv()
            news.deliver(settings)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(grace_s)
    os._exit(1)
