"""PostgreSQL connections that repair themselves: one at first, more while calls need them.

A slot runs one statement at a time, in its own implicit transaction. Its connection has statements
prepared and planner settings for the hot path. A call that finds no slot free waits, and another
connection is opened meanwhile, up to `size`; those that were not needed for a minute are closed. A
broken connection is replaced in the background. An asyncpg pool would reset a connection after
every use, a round trip that doubles the cost of a call.

Promises: `call` raises only `SkepError`s; `OutcomeUnknown` exactly when the statement may have been
executed without an answer, and only once it can no longer happen: the server's side of a broken
connection is ended before its replacement is used. A replaced connection is available within about
half a second of the database's return.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

from skep.db.access.connection import Connection, Prepared, wire_of
from skep.db.access.errors import CONNECTION_FAILURES, NotExecuted, OutcomeUnknown, translate
from skep.db.access.sessions import PoolerInBetween, open_session
from skep.model.errors import Unavailable
from skep.telemetry.slow_calls import CallWatch

T = TypeVar("T")

_log = logging.getLogger(__name__)

HOT_PATH: Final[Mapping[str, str]] = {
    # Plans are cached while tables may be empty, and must fit full ones: walk indexes in order and
    # join by look-up.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "work_mem": "32MB",
}
"""Planner settings of connections that run the broker's procedures."""

ONE_OFF: Final[Mapping[str, str]] = {"jit": "off"}
"""Settings of connections that run listings, configuration and the like."""

END_SESSION: Final = (
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and backend_start = $2"
)
"""Repeated until there is no row: a session ends when it has rolled back or committed."""

END_PAUSE_S: Final = 0.01
RECONNECT_PAUSE_S_MIN: Final = 0.02
IDLE_S: Final = 60.0
"""How long more connections than are needed stay open."""
CLOSE_TIMEOUT_S: Final = 2.0
RECONNECT_PAUSE_S_MAX: Final = 0.5
CONNECT_TIMEOUT_S: Final = 5.0
LOCK_TIMEOUT_S: Final = 10.0
SILENCE_S: Final = 5.0
"""How much longer than the statement timeout a server may be silent."""


class Caller(Protocol):
    """Runs procedure calls."""

    async def call(self, statement: str, *arguments: object) -> Sequence[Any]:
        """Run a statement and return its rows."""
        ...


class _Slot:
    __slots__ = (
        "connection",
        "due_at",
        "is_given_up",
        "is_late",
        "is_over",
        "prepared",
        "session",
        "wire",
    )

    def __init__(
        self, connection: Connection, prepared: dict[str, Prepared], session: tuple[int, datetime]
    ) -> None:
        self.connection = connection
        self.wire = wire_of(connection)
        self.prepared = prepared
        self.session = session
        """Process id and start of the server's side."""
        self.due_at = 0.0
        """When its call is given up, by the loop's clock."""
        self.is_late = False
        """The connection was closed because its call was due."""
        self.is_given_up = False
        """We closed the connection; nothing says that the database is away."""
        self.is_over = asyncio.Event()
        """The connection broke, and the server's side is known to have ended."""


class Slots:
    """Connections to one database, `size` at most, each serving one call at a time."""

    def __init__(
        self,
        dsn: str,
        *,
        size: int,
        server_settings: Mapping[str, str],
        statement_timeout_s: float,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        patience_s: float = 10.0,
        application_name: str = "skep",
        prepare: Sequence[str] = (),
        watch: CallWatch | None = None,
    ) -> None:
        self._dsn: Final = dsn
        self._watch: Final = watch or CallWatch()
        self.size: Final = size
        self._prepare: Final = tuple(prepare)
        self._timeout_s: Final = statement_timeout_s
        self._patience_s: Final = patience_s
        self._server_settings: Final = {
            **server_settings,
            "application_name": application_name,
            "timezone": "UTC",
            "statement_timeout": _milliseconds(statement_timeout_s),
            "lock_timeout": _milliseconds(min(lock_timeout_s, statement_timeout_s)),
            # No transaction should stay open; if one ever does, its locks must not.
            "idle_in_transaction_session_timeout": _milliseconds(statement_timeout_s),
        }
        self._free: list[_Slot] = []
        self._waiters: deque[asyncio.Future[_Slot]] = deque()
        self._repairs: set[asyncio.Task[None]] = set()
        """Of broken connections."""
        self._openings: set[asyncio.Task[None]] = set()
        """Of further connections."""
        self._closings: set[asyncio.Task[None]] = set()
        """Of connections that were not needed."""
        self._is_refused = False
        self._spare_count = 0
        """How many connections stayed free since the last look at them."""
        self._next_look: asyncio.TimerHandle | None = None
        self._busy: set[_Slot] = set()
        self._watchdog: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._is_lost = False
        self._is_hurried = False
        self._limits: Final[set[asyncio.Timeout]] = set()
        """Of the waits for a reachable database."""
        self.connected_count = 0
        self.call_count = 0
        self.answer_count = 0
        """How often the server answered, be it with an error."""
        self.listener: Callable[[bool], None] | None = None
        """Called when the last connection is lost, and when the first one is back."""

    @property
    def busy_count(self) -> int:
        """Connections with a call under way."""
        return len(self._busy)

    @property
    def waiting_count(self) -> int:
        """Calls that wait for a connection."""
        return len(self._waiters)

    async def open(self) -> None:
        """Open the first connection.

        Raises:
            NotExecuted: The database cannot be reached or refuses the login.
            PoolerInBetween: Something else answers for it.
        """
        try:
            self._free = [await self._connect()]
        except CONNECTION_FAILURES as error:
            raise NotExecuted(f"cannot connect to the database: {error}") from error
        self.connected_count = 1

    async def close(self) -> None:
        """Close everything; calls in flight end with `OutcomeUnknown`."""
        self._is_closed = True
        for timer in (self._next_look, self._watchdog):
            if timer is not None:
                timer.cancel()
        for repair in tuple(self._repairs):
            repair.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(NotExecuted("this instance is shutting down"))
        for slot in self._busy:
            slot.connection.terminate()
        for slot in self._free:
            await _close(slot)
        self._free.clear()
        if ending := self._openings | self._closings:
            # Cancelled in the middle of it, asyncpg leaves a future behind that complains.
            _, late = await asyncio.wait(ending, timeout=CLOSE_TIMEOUT_S)
            for task in late:
                task.cancel()

    def hurry(self) -> None:
        """Wait no longer for a database that is away: this process is about to end.

        Calls raise a plain `Unavailable` then, because there is no time to repeat them.
        """
        self._is_hurried = True
        self._end_futile_waits()

    async def call(self, statement: str, *arguments: object) -> Sequence[Any]:
        """Run a statement in a transaction of its own and return its rows.

        Raises:
            SkepError: As `skep.db.access.errors` explains.
        """
        slot = await self._acquire()
        self.call_count += 1
        try:
            return await self._run(slot, statement, arguments)
        except OutcomeUnknown as error:
            # The server may still run the call, or receive it late. The outcome is decided only
            # when its session has ended.
            try:
                await self._wait_for(slot.is_over.wait())
            except TimeoutError:
                raise Unavailable from error
            raise

    async def _run(self, slot: _Slot, statement: str, arguments: Sequence[object]) -> Sequence[Any]:
        sent_before = None
        began, row_count = perf_counter(), None
        try:
            prepared = slot.prepared.get(statement)
            if prepared is None:
                prepared = slot.prepared[statement] = await slot.connection.prepare(statement)
            sent_before = slot.wire.queries_count
            rows = await prepared.fetch(*arguments)
            row_count = len(rows)
            self.answer_count += 1
        except asyncio.CancelledError:
            # The statement may still run; a connection in that state must not be used again.
            slot.is_given_up = True
            slot.connection.terminate()
            raise
        except (*CONNECTION_FAILURES, ValueError) as error:
            if slot.is_late:
                kind = NotExecuted if sent_before is None else OutcomeUnknown
                raise kind("the database did not answer in time") from error
            self.answer_count += 1
            if getattr(error, "sqlstate", None) in {"0A000", "42883"}:
                slot.prepared.clear()
            failure = translate(error)
            if isinstance(failure, OutcomeUnknown):
                # The server's goodbye comes before the end of the stream: do not wait for that.
                slot.connection.terminate()
                if sent_before in {None, slot.wire.queries_count}:
                    failure = NotExecuted(failure.message)
            raise failure from error
        else:
            return rows
        finally:
            self._release(slot)
            self._watch.note(statement, arguments, began, row_count)

    def _occupy(self, slot: _Slot) -> None:
        """Let a slot serve a call, until the server has been silent for too long.

        The server's own timeout comes first. One timer serves all calls: it looks at those under
        way when the first of them may be due.
        """
        loop = asyncio.get_running_loop()
        limit_s = self._timeout_s + SILENCE_S
        slot.due_at = loop.time() + limit_s
        self._busy.add(slot)
        if self._watchdog is None:
            self._watchdog = loop.call_later(limit_s, self._end_late_calls)

    def _end_late_calls(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for slot in [slot for slot in self._busy if slot.due_at <= now]:
            slot.is_late = True
            slot.connection.terminate()
        due = [slot.due_at for slot in self._busy if not slot.is_late]
        self._watchdog = loop.call_at(min(due), self._end_late_calls) if due else None

    async def _acquire(self) -> _Slot:
        if self._is_closed:
            raise NotExecuted("this instance is shutting down")
        while self._free:
            slot = self._free.pop()
            if not slot.connection.is_closed():
                self._spare_count = min(self._spare_count, len(self._free))
                self._occupy(slot)
                return slot
            self._replace(slot)
        self._spare_count = 0
        self._open_another()
        waiter: asyncio.Future[_Slot] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await self._wait_for(waiter)
        except BaseException as error:
            with suppress(ValueError):  # while the database is away, no slot comes to clear it away
                self._waiters.remove(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release(waiter.result())  # handed over just as we gave up
            if isinstance(error, TimeoutError):
                kind = Unavailable if self._is_hurried else NotExecuted
                raise kind("the database is not reachable") from error
            raise

    def _release(self, slot: _Slot) -> None:
        self._busy.discard(slot)
        if slot.connection.is_closed():
            self._replace(slot)
        else:
            self._hand_out(slot)

    def _hand_out(self, slot: _Slot) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._occupy(slot)
                waiter.set_result(slot)
                return
        self._free.append(slot)

    def _open_another(self) -> None:
        """Open a further connection in the background, if there may be one."""
        if self.connected_count + len(self._repairs) + len(self._openings) < self.size:
            opening = asyncio.get_running_loop().create_task(self._open_for_waiting())
            self._openings.add(opening)
            opening.add_done_callback(self._openings.discard)

    async def _open_for_waiting(self) -> None:
        pause_s = RECONNECT_PAUSE_S_MIN
        while self._waiters and not self._is_closed:
            try:
                slot = await self._connect()
            except (*CONNECTION_FAILURES, PoolerInBetween) as error:
                self._note_refusal(error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RECONNECT_PAUSE_S_MAX)
            else:
                self._is_refused = False
                self._join(slot)
                return

    def _note_refusal(self, error: Exception) -> None:
        """Say once that calls share fewer connections than they may; an outage says so itself."""
        if self.connected_count and not self._is_refused:
            self._is_refused = True
            _log.warning(
                "cannot open another connection beside %d: %s", self.connected_count, error
            )

    def _join(self, slot: _Slot) -> None:
        if self._is_closed:
            slot.connection.terminate()
            return
        self.connected_count += 1
        if self._is_lost:
            self._is_lost = False
            _log.warning("the database is back")
            self._tell(is_connected=True)
        self._hand_out(slot)
        if self._waiters:
            self._open_another()
        self._look_again()

    def _look_again(self) -> None:
        """Look in a while which connections were needed, if there is more than one."""
        if self._next_look is None and self.connected_count > 1:
            self._spare_count = len(self._free)
            self._next_look = asyncio.get_running_loop().call_later(IDLE_S, self._close_spare)

    def _close_spare(self) -> None:
        """Close the connections that stayed free, but never the last one."""
        self._next_look = None
        self._look_at_idle()
        count = max(min(self._spare_count, self.connected_count - 1), 0)
        spare, self._free = self._free[:count], self._free[count:]
        self.connected_count -= len(spare)
        for slot in spare:
            closing = asyncio.get_running_loop().create_task(_close(slot))
            self._closings.add(closing)
            closing.add_done_callback(self._closings.discard)
        self._look_again()

    def _replace(self, broken: _Slot) -> None:
        self.connected_count -= 1
        if self._is_closed:
            broken.is_over.set()
            return
        if not broken.is_given_up:
            self._note_loss()
        repair = asyncio.get_running_loop().create_task(self._reconnect(broken))
        self._repairs.add(repair)
        repair.add_done_callback(self._repairs.discard)

    async def _wait_for(self, awaited: Awaitable[T]) -> T:
        """Wait for what only a reachable database brings; `TimeoutError` if it does not."""
        async with asyncio.timeout(0 if self._is_futile else self._patience_s) as limit:
            self._limits.add(limit)
            try:
                return await awaited
            finally:
                self._limits.discard(limit)

    @property
    def _is_futile(self) -> bool:
        return self._is_hurried and self.connected_count == 0

    def _end_futile_waits(self) -> None:
        if self._is_futile:
            now = asyncio.get_running_loop().time()
            for limit in self._limits:
                if not limit.expired():  # the wait is about to end
                    limit.reschedule(now)

    def _note_loss(self) -> None:
        self._end_futile_waits()
        if self.connected_count == 0 and not self._is_lost:
            self._is_lost = True
            _log.warning("lost the database; trying to reconnect")
            self._tell(is_connected=False)

    @property
    def is_whole(self) -> bool:
        """No connection is broken, so no session of a broken one can still act."""
        return self.connected_count > 0 and not self._repairs

    def _tell(self, *, is_connected: bool) -> None:
        if self.listener is not None:
            self.listener(is_connected)

    async def _reconnect(self, broken: _Slot) -> None:
        """Replace a broken connection after making sure that its session has ended."""
        pause_s = RECONNECT_PAUSE_S_MIN
        try:
            while (slot := await self._try_to_replace(broken)) is None:
                self._look_at_idle()
                self._note_loss()
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RECONNECT_PAUSE_S_MAX)
        finally:
            broken.is_over.set()
        self._join(slot)

    def _look_at_idle(self) -> None:
        """Replace idle connections that broke; only their next call would notice."""
        for slot in [each for each in self._free if each.connection.is_closed()]:
            self._free.remove(slot)
            self._replace(slot)

    async def _try_to_replace(self, broken: _Slot) -> _Slot | None:
        try:
            slot = await self._connect()
        except (*CONNECTION_FAILURES, PoolerInBetween) as error:
            _log.debug("cannot reconnect to the database yet: %s", error)
            return None
        try:
            await _end_session(slot.connection, broken.session)
        except CONNECTION_FAILURES:
            slot.connection.terminate()
            return None
        except BaseException:
            slot.connection.terminate()
            raise
        return slot

    async def _connect(self) -> _Slot:
        session = await open_session(
            self._dsn, timeout_s=CONNECT_TIMEOUT_S, server_settings=self._server_settings
        )
        connection = session.connection
        try:
            prepared = {text: await connection.prepare(text) for text in self._prepare}
            # The driver leaves the transaction of a `prepare` open until the next statement.
            await connection.execute("select 1")
        except BaseException:
            connection.terminate()
            raise
        return _Slot(connection, prepared, (session.process_id, session.started_at))


def _milliseconds(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))  # 0 would mean no limit


async def _close(slot: _Slot) -> None:
    with suppress(*CONNECTION_FAILURES):
        await slot.connection.close(timeout=CLOSE_TIMEOUT_S)


async def _end_session(connection: Connection, session: tuple[int, datetime]) -> None:
    """End another session of ours and wait until it is gone."""
    is_there = True
    while is_there:
        is_there = bool(await connection.fetch(END_SESSION, *session))
        if is_there:
            await asyncio.sleep(END_PAUSE_S)
