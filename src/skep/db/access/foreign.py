"""Run statements inside a transaction that belongs to somebody else.

`join` takes the connection on which an application has its transaction open and returns what runs
statements there: asyncpg, psycopg 3 (sync and async), SQLAlchemy 2 (Connection, Session and their
async kinds) and Django. Statements are written once, with the placeholders $1, $2 of PostgreSQL.

Promises: nothing is committed, rolled back or left behind; a connection that would commit every
statement by itself is refused; no driver is imported that the application has not imported. What
Skep's own functions refuse is raised as an error of `skep.model.errors`, everything else as the
driver raises it. Either way PostgreSQL has then aborted the transaction, or the savepoint.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final, NoReturn

from skep.model.errors import BadRequest, Refused, SkepError
from skep.model.schema_name import Schema

_DEFAULT: Final = Schema()
_PLACEHOLDER: Final = re.compile(r"\$(\d+)")

_KIND_BY_STATE: Final[Mapping[str, type[SkepError]]] = {"SK400": BadRequest, "SK403": Refused}
"""What the SQL functions for applications raise, by SQLSTATE."""


class NoTransaction(BadRequest):
    """No transaction is open: begin one, and the messages belong to it."""

    code: ClassVar[str] = "no_transaction"


class UnknownConnection(BadRequest):
    """This is no connection that can be joined."""

    code: ClassVar[str] = "unknown_connection"


class WrongCall(BadRequest):
    """A synchronous call on an asynchronous connection, or the other way round."""

    code: ClassVar[str] = "wrong_call"


class UserTransaction:
    """A transaction of an application. It ends when the application ends it."""

    def __init__(self, connection: Any) -> None:
        self._connection: Final = connection

    def check(self) -> None:
        """Make sure, where that takes no waiting, that a transaction is or will be open.

        Raises:
            NoTransaction: Every statement would be committed by itself.
        """

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Any]:
        """Run a statement and return its rows, each of them a sequence of values.

        Raises:
            NoTransaction: Every statement would be committed by itself.
            WrongCall: The connection is synchronous; use `fetch_sync`.
            BadRequest, Refused: A function of Skep refused it.
            Exception: Whatever the driver raises.
        """
        del sql, arguments
        raise WrongCall("the connection is synchronous: use the synchronous call")

    def fetch_sync(self, sql: str, *arguments: object) -> Sequence[Any]:
        """Run a statement and return its rows, on a synchronous connection.

        Raises:
            NoTransaction, BadRequest, Refused, Exception: As `fetch` does.
            WrongCall: The connection is asynchronous; use `fetch`.
        """
        del sql, arguments
        raise WrongCall("the connection is asynchronous: await the asynchronous call")


class _Spelling(UserTransaction):
    """A transaction in a database in which the schema of the installation has another name."""

    def __init__(self, transaction: UserTransaction, schema: Schema) -> None:
        self._transaction: Final = transaction
        self._schema: Final = schema

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Any]:
        return await self._transaction.fetch(self._schema.spelled(sql), *arguments)

    def fetch_sync(self, sql: str, *arguments: object) -> Sequence[Any]:
        return self._transaction.fetch_sync(self._schema.spelled(sql), *arguments)


def join(connection: Any, schema: Schema = _DEFAULT) -> UserTransaction:
    """Join the transaction that is open on a connection.

    Args:
        connection: Of one of the drivers above.
        schema: Of the installation that statements are for.

    Raises:
        NoTransaction: The connection commits every statement by itself.
        UnknownConnection: It is no connection, or none of a driver that is known here.
    """
    for ancestor in type(connection).__mro__:
        package = ancestor.__module__.partition(".")[0]
        kind = _KIND_BY_CLASS.get((package, ancestor.__name__))
        if kind is not None:
            transaction = kind(connection)
            transaction.check()
            return transaction if schema.is_default else _Spelling(transaction, schema)
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
    def check(self) -> None:
        if not self._connection.is_in_transaction():
            raise NoTransaction

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Any]:
        self.check()
        try:
            return await self._connection.fetch(sql, *arguments)
        except Exception as error:
            _raise_refusal(error)
            raise


class _PsycopgConnection(UserTransaction):
    """What both kinds of psycopg connections have in common."""

    def check(self) -> None:
        # Without autocommit psycopg begins a transaction by itself, with the first statement.
        is_idle = self._connection.info.transaction_status == 0
        if self._connection.autocommit and is_idle:
            raise NoTransaction

    def _cursor(self) -> Any:
        from psycopg.rows import tuple_row  # noqa: PLC0415 -- only who uses it has it

        return self._connection.cursor(row_factory=tuple_row)


class _PsycopgTransaction(_PsycopgConnection):
    def fetch_sync(self, sql: str, *arguments: object) -> Sequence[Any]:
        self.check()
        try:
            with self._cursor() as cursor:
                cursor.execute(with_named_placeholders(sql), name_arguments(arguments))
                return cursor.fetchall() if cursor.description else []
        except Exception as error:
            _raise_refusal(error)
            raise


class _AsyncPsycopgTransaction(_PsycopgConnection):
    async def fetch(self, sql: str, *arguments: object) -> Sequence[Any]:
        self.check()
        try:
            async with self._cursor() as cursor:
                await cursor.execute(with_named_placeholders(sql), name_arguments(arguments))
                return await cursor.fetchall() if cursor.description else []
        except Exception as error:
            _raise_refusal(error)
            raise


class _SqlalchemyTransaction(UserTransaction):
    def fetch_sync(self, sql: str, *arguments: object) -> Sequence[Any]:
        return _run_on_sqlalchemy(self._connection, sql, arguments)


class _SqlalchemySession(UserTransaction):
    def fetch_sync(self, sql: str, *arguments: object) -> Sequence[Any]:
        return _run_on_sqlalchemy(self._connection.connection(), sql, arguments)


class _AsyncSqlalchemyTransaction(UserTransaction):
    async def fetch(self, sql: str, *arguments: object) -> Sequence[Any]:
        rows: Sequence[Any] = await self._connection.run_sync(_run_on_sqlalchemy, sql, arguments)
        return rows


class _AsyncSqlalchemySession(UserTransaction):
    async def fetch(self, sql: str, *arguments: object) -> Sequence[Any]:
        connection = await self._connection.connection()
        rows: Sequence[Any] = await connection.run_sync(_run_on_sqlalchemy, sql, arguments)
        return rows


class _DjangoTransaction(UserTransaction):
    def check(self) -> None:
        if self._connection.vendor != "postgresql":
            raise UnknownConnection("the database of this connection is not PostgreSQL")
        if self._connection.get_autocommit():
            raise NoTransaction("no transaction is open: use transaction.atomic()")

    def fetch_sync(self, sql: str, *arguments: object) -> Sequence[Any]:
        self.check()
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(with_named_placeholders(sql), name_arguments(arguments))
                return cursor.fetchall() if cursor.description else []
        except Exception as error:
            _raise_refusal(error)
            raise


_KIND_BY_CLASS: Final[Mapping[tuple[str, str], Callable[[Any], UserTransaction]]] = {
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
    try:
        if connection.dialect.paramstyle == "numeric_dollar":
            result = connection.exec_driver_sql(sql, tuple(arguments))
        else:
            named = name_arguments(arguments)
            result = connection.exec_driver_sql(with_named_placeholders(sql), named)
        return [tuple(row) for row in result] if result.returns_rows else []
    except Exception as error:
        _raise_refusal(error)
        raise


def _raise_refusal(error: Exception) -> None:
    """Raise what a function of Skep refused, if it is that; wrappers of drivers are looked into."""
    cause: BaseException | None = error
    while cause is not None:
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        inner = getattr(cause, "orig", None) or cause.__cause__
        if state in _KIND_BY_STATE and (inner is None or not _has_state(inner)):
            _refuse(_KIND_BY_STATE[state], cause, error)
        cause = inner


def _has_state(error: BaseException) -> bool:
    return bool(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None))


def _refuse(kind: type[SkepError], cause: BaseException, error: Exception) -> NoReturn:
    said = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    raise kind(said.partition("\n")[0]) from error
