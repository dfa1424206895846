"""PostgreSQL as Spark's processes see it: Arrow in, one-line causes out.

The low-level driver manager of ADBC, because its other interface imports pandas, which takes
seconds. A process keeps one connection per database: the workers of Spark are used again, and
connecting would cost a third of a small micro-batch.

What goes wrong is said in one line with advice. Spark prints the whole Python stack in front of
it; the last line is what a person reads.
"""

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
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


class Database:
    """One connection to an installation; the URL may name its schema."""

    def __init__(self, url: str, statement_timeout_s: float, *, is_durable: bool = True) -> None:
        """Connect; raise `Unavailable` if it is not reachable, or does not let us in.

        If `is_durable`, commits wait until they would survive a crash of the server.
        """
        self._place: Final = redacted_url(url)
        plain, self._schema = split_schema(url)
        try:
            self._database: Any = adbc_driver_postgresql.connect(plain)
            self._connection: Any = adbc_driver_manager.AdbcConnection(self._database)
        except adbc_driver_manager.Error as error:
            raise Unavailable(
                f"cannot connect to {self._place}: {_first_line(error)}. Check the option url, and "
                "that PostgreSQL accepts connections from this machine"
            ) from None
        milliseconds = round(statement_timeout_s * 1000)
        self.rows("select set_config('statement_timeout', $1, false)", milliseconds)
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
        """Run a statement without parameters; yield its rows as Arrow record batches."""
        is_finished = False
        try:
            with self._statement(sql) as statement:
                statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
                with self._result(statement) as reader:
                    yield from reader
            is_finished = True
        finally:
            if not is_finished:
                # A result that was not read to its end leaves the connection in the middle.
                forget_connections()

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
            forget_connections()
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
        if state == _CANCELLED or "statement timeout" in line:
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


_open: dict[tuple[str, float, bool], Database] = {}
_known_urls: set[str] = set()


def database(url: str, statement_timeout_s: float, *, is_durable: bool = True) -> Database:
    """Return this process's connection to a database; open one if there is none."""
    key = (url, statement_timeout_s, is_durable)
    if key not in _open:
        _open[key] = _connect(url, statement_timeout_s, is_durable=is_durable)
        _known_urls.add(url)
    return _open[key]


def _connect(url: str, statement_timeout_s: float, *, is_durable: bool) -> Database:
    """Connect; where it worked before, be patient: a server that restarts is back in seconds."""
    giving_up_at = time.monotonic() + (PATIENCE_S if url in _known_urls else 0)
    while True:
        try:
            return Database(url, statement_timeout_s, is_durable=is_durable)
        except Unavailable:
            if time.monotonic() >= giving_up_at:
                raise
            time.sleep(PAUSE_S)


def forget_connections() -> None:
    """Close all connections of this process; the next use opens new ones."""
    while _open:
        _open.popitem()[1].close()


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
