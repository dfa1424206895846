"""PostgreSQL as Spark's processes see it: Arrow in, one-line causes out.

The low-level driver manager of ADBC, because its other interface imports pandas, which takes
seconds. A process keeps its connections: the workers of Spark are used again, and connecting would
cost a third of a small micro-batch. A connection serves one statement at a time and one thread:
the driver does not protect it, and what fails in one statement must not end another.

What goes wrong is said in one line with advice. Spark prints the whole Python stack in front of
it; the last line is what a person reads.
"""

import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from typing import Any, Final, cast

import adbc_driver_manager
import adbc_driver_postgresql

from skep.model.errors import Refused, SkepError, Unavailable
from skep.model.schema_name import split_schema
from skep.settings import redacted_url
from skep.spark.runtime.arrow import pa

BATCH_BYTES: Final = 4 << 20
"""About how much of a result becomes one Arrow batch."""

PATIENCE_S: Final = 20.0
"""How long to wait for a server that was there before."""
PAUSE_S: Final = 0.2

_UNDEFINED: Final = ("3F000", "42883", "42P01", "42703")
_CANCELLED: Final = "57014"
_DENIED: Final = "42501"
_LOST: Final = ("08", "57P")
_INGEST: Final = {"adbc.ingest.mode": "adbc.ingest.mode.append"}


class CannotRead(Refused):
    """PostgreSQL refused a statement of the data source."""

    def __init__(self, message: str | None = None, *, state: str = "") -> None:
        super().__init__(message)
        self.state: Final = state
        """The SQLSTATE, if the server told one."""


class Connection:
    """One connection to an installation, for one thread at a time; the URL may name its schema."""

    def __init__(self, url: str, statement_timeout_s: float, *, is_durable: bool = True) -> None:
        """Connect; raise `Unavailable` if it is not reachable, or does not let us in.

        If `is_durable`, commits wait until they would survive a crash of the server.
        """
        self._place: Final = redacted_url(url)
        self._timeout_s: Final = statement_timeout_s
        plain, self._schema = split_schema(url)
        try:
            self._database: Any = adbc_driver_postgresql.connect(plain)
            self._connection: Any = adbc_driver_manager.AdbcConnection(self._database)
        except adbc_driver_manager.Error as error:
            raise Unavailable(
                f"cannot connect to {self._place}: {_first_line(error)}. Check the option url, and "
                "that PostgreSQL accepts connections from this machine"
            ) from None
        self._limit_statements(statement_timeout_s)
        if not is_durable:
            self.rows("select set_config('synchronous_commit', 'off', false)")

    def rows(self, sql: str, *arguments: object) -> list[dict[str, Any]]:
        """Run a small statement; its parameters are texts to PostgreSQL, see `text_of`."""
        with self._statement(sql) as statement:
            if arguments:
                values = [pa.array([text_of(value)], pa.string()) for value in arguments]
                names = [str(number) for number in range(len(values))]
                batch = pa.RecordBatch.from_arrays(values, names=names)
                statement.bind(*_exported(batch))
            else:
                statement.set_options(**{"adbc.postgresql.use_copy": "false"})
            with self._result(statement) as reader:
                return reader.read_all().to_pylist()

    def stream(self, sql: str) -> Iterator[Any]:
        """Run a statement without parameters; yield its rows as Arrow record batches.

        The server may take the time of a statement for each batch. What the caller does between
        two of them is not counted: Spark slows a reader down for as long as its results wait.
        """
        self._limit_statements(0)
        with self._statement(sql) as statement, ExitStack() as results:
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            with self._cancelled_if_late():
                batches = results.enter_context(self._result(statement))
            while True:
                with self._cancelled_if_late():
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch
        self._limit_statements(self._timeout_s)

    def ingest(self, table: str, batch: Any) -> None:
        """Add the rows of a record batch to a table of Skep's, by COPY."""
        target = {
            "adbc.ingest.target_db_schema": self._schema.name,
            "adbc.ingest.target_table": table,
        }
        with self._statement() as statement:
            statement.set_options(**_INGEST, **target)
            statement.bind(*_exported(batch))
            statement.execute_update()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
        self._database.close()

    def _limit_statements(self, seconds: float) -> None:
        """Let the server cancel what runs longer; never, for 0."""
        self.rows("select set_config('statement_timeout', $1, false)", round(seconds * 1000))

    @contextmanager
    def _cancelled_if_late(self) -> Generator[None]:
        """Cancel what the server does for the block if it takes longer than a statement may."""
        timer = threading.Timer(self._timeout_s, self._cancel)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # else it might cancel what comes next

    def _cancel(self) -> None:
        with suppress(adbc_driver_manager.Error):  # the connection is lost, and the block will say
            self._connection.cancel()

    @contextmanager
    def _statement(self, sql: str | None = None) -> Generator[Any]:
        with self._explained():
            statement: Any = adbc_driver_manager.AdbcStatement(self._connection)
            try:
                if sql is not None:
                    statement.set_sql_query(self._schema.spelled(sql))
                yield statement
            finally:
                statement.close()

    @contextmanager
    def _result(self, statement: Any) -> Generator[Any]:
        handle, _ = statement.execute_query()
        reader = pa.RecordBatchReader._import_from_c(handle.address)  # noqa: SLF001 (its name in the C interface)
        try:
            yield reader
        finally:
            reader.close()

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
            raise self._cause(error) from None

    def _cause(self, error: Exception) -> SkepError:
        state = str(getattr(error, "sqlstate", None) or "")
        line = _first_line(error)
        if state in _UNDEFINED:
            return CannotRead(
                f"{self._place} has no schema of Skep's, or an older one: run `skep migrate "
                f"--database-url ...` on it first ({line})",
                state=state,
            )
        if "conflict with recovery" in line:
            return CannotRead(
                f"the standby {self._place} cancelled a statement ({line}). Set "
                "hot_standby_feedback to on there, or raise max_standby_streaming_delay",
                state=state,
            )
        if state == _CANCELLED or "canceling statement" in line:
            return CannotRead(
                f"PostgreSQL cancelled a statement ({line}). Raise the option statementTimeout, "
                "or read less at a time: maxRecordsPerPartition, maxMessagesPerTrigger",
                state=state,
            )
        if state == _DENIED:
            return CannotRead(
                f"the role in the option url may not do that to the log ({line}): grant it usage "
                f"on schema {self._schema.name}, select on its tables (to write, also insert, "
                "update and delete) and execute on its functions",
                state=state,
            )
        # A result that breaks off on its way tells no state, only what the server said.
        if state.startswith(_LOST) or (not state and "ERROR:" not in str(error)):
            return Unavailable(f"the connection to {self._place} was lost: {line}")
        return CannotRead(f"PostgreSQL refused a statement: {line}", state=state)


class Database:
    """An installation, over the connections that this process keeps to it.

    Any number of threads may use it: a statement borrows a connection that no other one has, and
    ends only that one if it fails.
    """

    def __init__(
        self, url: str, statement_timeout_s: float, *, is_durable: bool, patience_s: float
    ) -> None:
        """Prepare; the arguments are those of `Connection`, which the first use opens."""
        self._patience_s: Final = patience_s
        self._url: Final = url
        self._timeout_s: Final = statement_timeout_s
        self._is_durable: Final = is_durable
        self._idle: Final[list[Connection]] = []

    def rows(self, sql: str, *arguments: object) -> list[dict[str, Any]]:
        """Run a small statement; see `Connection.rows`."""
        with self._borrowed() as connection:
            return connection.rows(sql, *arguments)

    def stream(self, sql: str) -> Iterator[Any]:
        """Run a statement that may bring much; see `Connection.stream`."""
        with self._borrowed() as connection:
            yield from connection.stream(sql)

    def ingest(self, table: str, batch: Any) -> None:
        """Add rows to a table of Skep's; see `Connection.ingest`."""
        with self._borrowed() as connection:
            connection.ingest(table, batch)

    def close_idle(self) -> None:
        """Disconnect what no statement uses."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    @contextmanager
    def _borrowed(self) -> Generator[Connection]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        except BaseException as error:
            # Also for a result that was not read to its end: the connection is in the middle of it.
            connection.close()
            if isinstance(error, Unavailable):
                forget_connections()  # those that are idle were likely lost with it
            raise
        self._idle.append(connection)

    def _connect(self) -> Connection:
        """Connect; where it worked before, wait for a server that may be restarting."""
        giving_up_at = time.monotonic() + (self._patience_s if self._url in _known_urls else 0)
        while True:
            try:
                connection = Connection(self._url, self._timeout_s, is_durable=self._is_durable)
            except Unavailable:
                if time.monotonic() >= giving_up_at:
                    raise
                time.sleep(PAUSE_S)
            else:
                _known_urls.add(self._url)
                return connection


_databases: Final[dict[tuple[str, float, bool, float], Database]] = {}
_known_urls: Final[set[str]] = set()


def database(
    url: str,
    statement_timeout_s: float,
    *,
    is_durable: bool = True,
    patience_s: float = PATIENCE_S,
) -> Database:
    """Return a database with the connections that this process keeps to it.

    A server that was there before and does not answer is waited for as long as patience lasts.
    """
    made = Database(url, statement_timeout_s, is_durable=is_durable, patience_s=patience_s)
    return _databases.setdefault((url, statement_timeout_s, is_durable, patience_s), made)


def forget_connections() -> None:
    """Close all connections of this process that are idle; the next use opens new ones."""
    for each in list(_databases.values()):
        each.close_idle()


def text_of(value: object) -> str | None:
    """Spell a value in PostgreSQL's own notation; of other types, `str` does."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return array_of(cast("Iterable[object]", value))
    return value.isoformat() if isinstance(value, datetime) else str(value)


def array_of(values: Iterable[object]) -> str:
    """Spell an array of numbers or names in PostgreSQL's own notation."""
    spelled = (
        str(value)
        if isinstance(value, int)
        else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
        for value in values
    )
    return "{" + ",".join(spelled) + "}"


def _exported(batch: Any) -> tuple[Any, Any]:
    array = adbc_driver_manager.ArrowArrayHandle()
    schema = adbc_driver_manager.ArrowSchemaHandle()
    batch._export_to_c(array.address, schema.address)  # noqa: SLF001 (its name in the C interface)
    return array, schema


def _first_line(error: Exception) -> str:
    """Return what the server said, without the words that driver and library put around it."""
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    for mark in ("ERROR:", "FATAL:", "failed:"):
        line = line.partition(mark)[2] or line
    return " ".join(line.split()).rstrip(".")
