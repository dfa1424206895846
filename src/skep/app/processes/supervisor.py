"""Keep the worker processes of one instance alive.

    supervisor ── owns the sockets, the embedded PostgreSQL and the exit code
      ├── worker 0 ┐
      ├── worker 1 ├ accept from the same listening socket
      └── worker n ┘

Promises:

* A worker that exits is restarted, on the same sockets, after a bounded pause; one that never
  becomes ready ends the whole instance with its reason (see `RestartHistory`).
* The first stop signal asks every worker to drain and waits for the grace period; a second one,
  or the end of the grace period, kills the rest.
* No worker outlives the supervisor: each holds one end of a channel whose other end is only here,
  and stops when it closes.
* SIGHUP applies the changed settings that need no restart (see `skep.settings.reload`); invalid
  settings change nothing.
* Nothing polls: one wait covers signals, exits, reports and the next start that is due.

A single worker is supervised too: a crash in native code or the out-of-memory killer then takes
neither the instance nor the embedded PostgreSQL with it.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import ClassVar, Final, Protocol, TypeAlias

from skep.app.processes.assignment import SettingsUpdates, WorkerAssignment, WorkerTarget
from skep.app.processes.stop_signals import StopSignals
from skep.model.errors import SkepError, Unavailable
from skep.settings import Settings
from skep.settings.reload import reloaded

log = logging.getLogger("skep.supervisor")

# Not fork: with inherited descriptors, channels would not close.
_context = multiprocessing.get_context("spawn")


PAUSE_S_FIRST: Final = 0.1
PAUSE_S_MAX: Final = 5.0
CALM_S: Final = 10.0
"""A worker that lived this long starts over with the shortest pause."""

STARTUP_EXITS_MAX: Final = 5
STARTUP_WINDOW_S: Final = 10.0


class WorkersKeepDying(Unavailable):
    """The worker processes do not start."""

    code: ClassVar[str] = "workers_keep_dying"


class Companion(Protocol):
    """Another process the instance needs, such as the embedded PostgreSQL."""

    @property
    def name(self) -> str:
        """Its name in the log."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process ends."""
        ...

    def revive(self) -> None:
        """Start it again after it ended; `fileno` may change."""
        ...


def revive_ended(companions: Iterable[Companion]) -> None:
    """Restart the companions that ended."""
    for companion in companions:
        if wait([companion.fileno()], timeout=0):
            log.error("%s exited unexpectedly; restarting it", companion.name)
            companion.revive()


_Report: TypeAlias = tuple[bool, str]
"""A worker's report to the supervisor: whether it is ready, or why it failed."""


@dataclass(slots=True)
class _Running:
    process: SpawnProcess
    channel: Connection
    started_at: float
    is_ready: bool = False
    reason: str = ""


@dataclass(slots=True)
class RestartHistory:
    """Decides when a worker that exited is started again. Time is an argument.

    A worker that was ready is always restarted, after a pause that doubles up to a limit. One that
    exits before it is ready gets a few quick attempts: its cause is permanent, such as a missing
    library.
    """

    _pause_s: float = PAUSE_S_FIRST
    _startup_exits: deque[float] = field(default_factory=lambda: deque(maxlen=STARTUP_EXITS_MAX))

    def pause_after_exit(self, now: float, *, lived_s: float, was_ready: bool) -> float | None:
        """Record an exit; return the pause before the next start, None to give up."""
        if was_ready:
            self._startup_exits.clear()
        else:
            self._startup_exits.append(now)
            if self._is_failing(now):
                return None
        pause_s = PAUSE_S_FIRST if lived_s >= CALM_S else self._pause_s
        self._pause_s = min(2 * pause_s, PAUSE_S_MAX)
        return pause_s

    def _is_failing(self, now: float) -> bool:
        is_full = len(self._startup_exits) == STARTUP_EXITS_MAX
        return is_full and now - self._startup_exits[0] <= STARTUP_WINDOW_S


@dataclass(slots=True)
class _Slot:
    """One worker, through all its processes."""

    assignment: WorkerAssignment
    history: RestartHistory = field(default_factory=RestartHistory)
    running: _Running | None = None
    start_at: float = 0.0


@dataclass(slots=True, eq=False)
class Supervisor:
    """Run `target` in one process per assignment until a stop signal arrives."""

    assignments: InitVar[Sequence[WorkerAssignment]]
    target: WorkerTarget
    """What each process runs; importable by name."""
    _: KW_ONLY
    grace_s: float
    """How long draining workers may take before they are killed."""
    on_ready: Callable[[], None] = lambda: None
    """Called once, when every worker has reported ready for the first time."""
    companions: Sequence[Companion] = ()
    """Watched and revived beside the workers."""
    reload: Callable[[], Settings] | None = None
    """Reads the settings again at a hangup. Without it a hangup stops the instance."""
    _slots: list[_Slot] = field(init=False)
    _is_announced: bool = field(default=False, init=False)

    def __post_init__(self, assignments: Sequence[WorkerAssignment]) -> None:
        self._slots = [_Slot(assignment) for assignment in assignments]

    def run(self) -> None:
        """Block until stopped by a signal, with every worker gone.

        Raises:
            WorkersKeepDying: A worker died again and again before it could serve.
        """
        with StopSignals(hangup_reloads=self.reload is not None) as signals:
            try:
                while not signals.take():
                    if signals.take_reload():
                        self._reload_settings()
                    self._start_what_is_due()
                    self._wait_for_event(signals)
                    revive_ended(self.companions)
                    self._read_reports()
                    self._handle_exits()
            finally:
                self._stop_workers(signals)

    def _reload_settings(self) -> None:
        assert self.reload is not None
        try:
            wanted = self.reload()
        except SkepError as error:
            log.warning("invalid settings, nothing changed: %s", error.message)
            return
        outcome = reloaded(self._slots[0].assignment.settings, wanted)
        log.info("settings reloaded; changed: %s", ", ".join(outcome.changed) or "none")
        if outcome.needing_restart:
            log.warning("changes that need a restart: %s", ", ".join(outcome.needing_restart))
        for slot in self._slots:
            slot.assignment = replace(slot.assignment, settings=outcome.settings)
            if slot.running is not None:
                # A worker that is exiting restarts with the new settings anyway.
                with suppress(OSError, ValueError):
                    slot.running.channel.send(outcome.settings)

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        for slot in self._slots:
            if slot.running is None and slot.start_at <= now:
                slot.running = self._start(slot.assignment)

    def _start(self, assignment: WorkerAssignment) -> _Running:
        ours, theirs = _context.Pipe()
        process = _context.Process(
            target=_work,
            args=(self.target, assignment, theirs),
            name=f"skep-worker-{assignment.index}",
        )
        with theirs, _terminal_signals_blocked():
            process.start()
        return _Running(process, ours, started_at=time.monotonic())

    def _wait_for_event(self, signals: StopSignals) -> None:
        running = [slot.running for slot in self._slots if slot.running is not None]
        due = [slot.start_at for slot in self._slots if slot.running is None]
        wait(
            [
                signals.fileno(),
                *(companion.fileno() for companion in self.companions),
                *(worker.channel for worker in running if not worker.channel.closed),
                *(worker.process.sentinel for worker in running),
            ],
            timeout=max(0.0, min(due) - time.monotonic()) if due else None,
        )

    def _read_reports(self) -> None:
        for slot in self._slots:
            if slot.running is not None:
                _read_report(slot.running)
        if not self._is_announced and all(s.running and s.running.is_ready for s in self._slots):
            self._is_announced = True
            self.on_ready()

    def _handle_exits(self) -> None:
        for slot in self._slots:
            if slot.running is not None and not slot.running.process.is_alive():
                self._plan_restart(slot, slot.running)

    def _plan_restart(self, slot: _Slot, ended: _Running) -> None:
        # The report may have arrived between the last reading and the exit.
        _read_report(ended)
        ending = ended.reason or _describe_exit(ended.process.exitcode)
        _release(ended)
        slot.running = None
        now = time.monotonic()
        pause_s = slot.history.pause_after_exit(
            now, lived_s=now - ended.started_at, was_ready=ended.is_ready
        )
        if pause_s is None:
            raise WorkersKeepDying(f"worker {slot.assignment.index} does not start: {ending}")
        log.error(
            "worker %d exited (%s); restarting it in %.1f s",
            slot.assignment.index,
            ending,
            pause_s,
        )
        slot.start_at = now + pause_s

    def _stop_workers(self, signals: StopSignals) -> None:
        running = [slot.running for slot in self._slots if slot.running is not None]
        for slot in self._slots:
            # So that new connections are refused at once instead of hanging in the backlog.
            slot.assignment.listener.close()
        for worker in running:
            worker.process.terminate()
        deadline = time.monotonic() + self.grace_s
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
            is_ready, worker.reason = report
            worker.is_ready = worker.is_ready or is_ready
    except (EOFError, OSError):
        # The worker is exiting; its sentinel will say so.
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

    Ctrl-C and a hangup go to every process of the terminal; workers leave them to the supervisor.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(target: WorkerTarget, assignment: WorkerAssignment, channel: Connection) -> None:
    grace_s = assignment.settings.shutdown_grace_s
    updates = SettingsUpdates()
    assignment = replace(assignment, updates=updates)
    listening = threading.Thread(
        target=_listen_to_supervisor, args=(channel, updates, grace_s), daemon=True
    )
    listening.start()
    # Passing a socket to a process makes it blocking again.
    assignment.listener.setblocking(False)
    assignment.wakeup_socket.setblocking(False)
    if assignment.peer_socket is not None:
        assignment.peer_socket.setblocking(False)
    try:
        target(assignment, lambda: channel.send((True, "")))
    except SkepError as error:
        channel.send((False, error.message))
        raise SystemExit(1) from None
    except Exception as error:
        channel.send((False, f"{type(error).__name__}: {error}"))
        raise


def _listen_to_supervisor(channel: Connection, updates: SettingsUpdates, grace_s: float) -> None:
    """Pass on changed settings, and end when the supervisor has ended."""
    with suppress(EOFError, OSError):
        while True:
            settings: Settings = channel.recv()
            updates.deliver(settings)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(grace_s)
    os._exit(1)
