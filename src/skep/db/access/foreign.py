"""Run statements inside a transaction of the application.

`join` takes the connection with the application's open transaction and returns an object that runs
statements there: asyncpg, psycopg 3 (sync and async), SQLAlchemy 2 (Connection, Session and their
async kinds) and Django. Statements use the placeholders $1, $2 of PostgreSQL.

Promises: nothing is committed, rolled back or left behind; a connection in autocommit is refused;
only drivers that the application has imported are imported. Refusals of Skep's functions are raised
as errors of `skep.model.errors`, everything else as the driver raises it. Either way PostgreSQL has
aborted the transaction or savepoint.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ClassVar, Final

from skep.model.errors import BadRequest, Refused, SkepError
from skep.model.schema_name import Schema

_DEFAULT: Final = Schema()
_PLACEHOLDER: Final = re.compile(r"\$(\d+)")

_KIND_BY_STATE: Final[Mapping[str, type[SkepError]]] = {"SK400": BadRequest, "SK403": Refused}
"""What the SQL functions for applications raise, by SQLSTATE."""


class NoTransaction(BadRequest):
    """No transaction is open: begin one first."""


class UnknownConnection(BadRequest):
    """The object is not a supported connection."""


class WrongCall(BadRequest):
    """A synchronous call on an asynchronous connection, or the other way round."""


class UserTransaction:
    """A transaction of the application, which ends it; a subclass knows one kind of connection."""

    is_async: ClassVar[bool] = False

    def __init__(self, connection: Any, schema: Schema) -> None:
        self._connection: Final = connection
        self._schema: Final = schema

    def check(self) -> None:
        """Check, where that needs no waiting, that a transaction is or will be open.

        Raises:
            NoTransaction: The connection is in autocommit.
        """

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Any]:
        """Run a statement and return its rows, each of them a sequence of values.

        Raises:
            NoTransaction: The connection is in autocommit.
            WrongCall: The connection is synchronous; use `fetch_sync`.
            BadRequest, Refused: A function of Skep refused it.
            Exception: As the driver raises it.
        """
        if not self.is_async:
            raise WrongCall("the connection is synchronous: use the synchronous call")
        self.check()
        with _translating():
            return await self._run(self._schema.spelled(sql), arguments)

    def fetch_sync(self, sql: str, *arguments: object) -> Sequence[Any]:
        """Run a statement as `fetch` does, on a synchronous connection."""
        if self.is_async:
            raise WrongCall("the connection is asynchronous: await the asynchronous call")
        self.check()
        with _translating():
            return self._run(self._schema.spelled(sql), arguments)

    def _run(self, sql: str, arguments: Sequence[object]) -> Any:
        """Run a statement; return its rows, or a coroutine that does."""
        raise NotImplementedError


def join(connection: Any, schema: Schema = _DEFAULT) -> UserTransaction:
    """Join the transaction that is open on a connection of one of the drivers above.

    Raises:
        NoTransaction: The connection is in autocommit.
        UnknownConnection: It is not a connection of a supported driver.
    """
    for ancestor in type(connection).__mro__:
        package = ancestor.__module__.partition(".")[0]
        kind = _KIND_BY_CLASS.get((package, ancestor.__name__))
        if kind is not None:
            transaction = kind(connection, schema)
            transaction.check()
            return transaction
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise UnknownConnection(
        f"cannot join {name}: give an open connection or session of asyncpg, psycopg 3, "
        "SQLAlchemy 2 or Django, not a pool or an engine"
    )


@lru_cache(256)
def with_named_placeholders(sql: str) -> str:
    """Spell $1 as %(p1)s, which may occur more than once in a statement."""
    return _PLACEHOLDER.sub(r"%(p\1)s", sql.replace("%", "%%"))


def name_arguments(arguments: Sequence[object]) -> dict[str, object]:
    """Return the arguments for the placeholders of `with_named_placeholders`."""
    return {f"p{number}": argument for number, argument in enumerate(arguments, start=1)}


class _AsyncpgTransaction(UserTransaction):
    is_async = True

    def check(self) -> None:
        if not self._connection.is_in_transaction():
            raise NoTransaction

    def _run(self, sql: str, arguments: Sequence[object]) -> Any:
        return self._connection.fetch(sql, *arguments)


class _PsycopgTransaction(UserTransaction):
    def check(self) -> None:
        # Without autocommit psycopg begins a transaction by itself, with the first statement.
        is_idle = self._connection.info.transaction_status == 0
        if self._connection.autocommit and is_idle:
            raise NoTransaction

    def _run(self, sql: str, arguments: Sequence[object]) -> Any:
        return _run_on_cursor(self._cursor(), sql, arguments)

    def _cursor(self) -> Any:
        from psycopg.rows import tuple_row  # noqa: PLC0415 -- only its users have it installed

        return self._connection.cursor(row_factory=tuple_row)


class _AsyncPsycopgTransaction(_PsycopgTransaction):
    is_async = True

    async def _run(self, sql: str, arguments: Sequence[object]) -> Any:
        async with self._cursor() as cursor:
            await cursor.execute(with_named_placeholders(sql), name_arguments(arguments))
            return await cursor.fetchall() if cursor.description else []


class _SqlalchemyTransaction(UserTransaction):
    def _run(self, sql: str, arguments: Sequence[object]) -> Any:
        return _run_on_sqlalchemy(self._connection, sql, arguments)


class _SqlalchemySession(UserTransaction):
    def _run(self, sql: str, arguments: Sequence[object]) -> Any:
        return _run_on_sqlalchemy(self._connection.connection(), sql, arguments)


class _AsyncSqlalchemyTransaction(UserTransaction):
    is_async = True

    def _run(self, sql: str, arguments: Sequence[object]) -> Any:
        return self._connection.run_sync(_run_on_sqlalchemy, sql, arguments)


class _AsyncSqlalchemySession(UserTransaction):
    is_async = True

    async def _run(self, sql: str, arguments: Sequence[object]) -> Any:
        connection = await self._connection.connection()
        return await connection.run_sync(_run_on_sqlalchemy, sql, arguments)


class _DjangoTransaction(UserTransaction):
    def check(self) -> None:
        if self._connection.vendor != "postgresql":
            raise UnknownConnection("the database of this connection is not PostgreSQL")
        if self._connection.get_autocommit():
            raise NoTransaction("no transaction is open: use transaction.atomic()")

    def _run(self, sql: str, arguments: Sequence[object]) -> Any:
        return _run_on_cursor(self._connection.cursor(), sql, arguments)


_KIND_BY_CLASS: Final[Mapping[tuple[str, str], type[UserTransaction]]] = {
    ("asyncpg", "Connection"): _AsyncpgTransaction,
    ("asyncpg", "PoolConnectionProxy"): _AsyncpgTransaction,
    ("psycopg", "Connection"): _PsycopgTransaction,
    ("psycopg", "AsyncConnection"): _AsyncPsycopgTransaction,
    ("sqlalchemy", "Connection"): _SqlalchemyTransaction,
    ("sqlalchemy", "Session"): _SqlalchemySession,
    ("sqlalchemy", "scoped_session"): _SqlalchemySession,
    ("sqlalchemy", "AsyncConnection"): _AsyncSqlalchemyTransaction,
    ("sqlalchemy", "AsyncSession"): _AsyncSqlalchemySession,
    ("sqlalchemy", "async_scoped_session"): _AsyncSqlalchemySession,
    ("django", "BaseDatabaseWrapper"): _DjangoTransaction,
    ("django", "ConnectionProxy"): _DjangoTransaction,
}
"""By package and name of a class, so that nothing has to be imported to recognise it."""


def _run_on_sqlalchemy(connection: Any, sql: str, arguments: Sequence[object]) -> Sequence[Any]:
    """Run a statement on a synchronous Connection, past everything that would rewrite it."""
    if connection.dialect.name != "postgresql":
        raise UnknownConnection("the database of this connection is not PostgreSQL")
    if connection.connection.dbapi_connection.autocommit:
        raise NoTransaction("the connection is in AUTOCOMMIT, which has no transactions")
    if connection.dialect.paramstyle == "numeric_dollar":
        result = connection.exec_driver_sql(sql, tuple(arguments))
    else:
        named = name_arguments(arguments)
        result = connection.exec_driver_sql(with_named_placeholders(sql), named)
    return [tuple(row) for row in result] if result.returns_rows else []


def _run_on_cursor(cursor: Any, sql: str, arguments: Sequence[object]) -> Sequence[Any]:
    with cursor as entered:
        entered.execute(with_named_placeholders(sql), name_arguments(arguments))
        return entered.fetchall() if entered.description else []


@contextmanager
def _translating() -> Generator[None]:
    """Raise refusals of Skep's functions as errors of Skep; leave other errors alone."""
    try:
        yield
    except Exception as error:
        if (refusal := _refusal_in(error)) is not None:
            raise refusal from error
        raise


def _refusal_in(error: Exception) -> SkepError | None:
    """Return the refusal of a function of Skep, if the error or one it wraps is that."""
    refusal: SkepError | None = None
    cause: BaseException | None = error
    while cause is not None:
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if state in _KIND_BY_STATE:
            said = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
            refusal = _KIND_BY_STATE[state](said.partition("\n")[0])
        cause = getattr(cause, "orig", None) or cause.__cause__
    return refusal
