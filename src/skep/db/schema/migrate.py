"""Migrate a database to the schema of this code.

* A migration is applied once, in its own transaction, and never changes afterwards: its checksum is
  recorded, and another text under the same number is refused.
* A function or view whose text differs from the recorded checksum is dropped with all its overloads
  and created again, so that arguments and result may change freely. All code changes in one
  transaction. An object whose file is gone is dropped. Dropping loses grants, so give them as
  default privileges.

Checksums are of the source texts, before the name of the installation's schema is put in.

Runners may race: an advisory lock lets one through, and the others find nothing to do. Live traffic
is not stalled: a step waits briefly for its locks, gives up, and tries again. Migrations only go
up, and run inside a transaction. The runner needs its own session, not a transaction pooler's.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

import asyncpg

from skep.db.access.connection import Connection, as_sent, connect
from skep.db.schema.catalog import SqlSource, SqlText, bundled, statement
from skep.db.schema.plan import CodeChange, Ledger, plan_schema, require_supported
from skep.model.errors import Refused, Unavailable
from skep.model.schema_name import Schema, split_schema

_Subject = TypeVar("_Subject")

_DEFAULT = Schema()
_LOCK_KEYS = 2**63 - 25
"""A prime, so that every letter of a name counts."""
_OTHER_RUNNER_WAIT = "10min"
_LOCK_WAIT = "1s"
_LOCK_ATTEMPTS = 20
_LOCK_PAUSE_S = 0.5
_CLOSE_S = 10.0

_IN_THE_WAY = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)


class MigrationFailed(Refused):
    """A migration failed; nothing of it was kept."""

    code = "migration_failed"


class MigrationBlocked(Unavailable):
    """A migration could not get its locks; nothing of it was kept."""

    code = "migration_blocked"


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What a run did, as paths of SQL files, in the order in which it happened."""

    applied: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def has_changes(self) -> bool:
        """Whether there was anything to do."""
        return bool(self.applied or self.created or self.dropped)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """How a database compares with this code.

    `migrate` fixes `behind`. `ahead` means that a newer skep migrated it. `differences` names the
    files that only one side has.
    """

    verdict: Literal["current", "behind", "ahead"]
    differences: tuple[str, ...] = ()


async def migrate(
    dsn: str, *, source: SqlSource = bundled, on_step: Callable[[str], None] | None = None
) -> MigrationReport:
    """Apply what the database lacks and return what was done.

    Each step is kept or undone as a whole; steps before a failed one are kept. `on_step` gets a
    line for each file, before it is applied.

    Raises:
        PostgresTooOld, SchemaTooNew, MigrationChanged: refused; nothing was changed.
        MigrationFailed: PostgreSQL rejected a file; the message says which, and where in it.
        MigrationBlocked: other sessions held locks for too long; safe to repeat.
        Unavailable: the database cannot be reached.
    """
    async with _session(dsn) as connection:
        await _lock_out_other_runners(connection, split_schema(dsn)[1])
        plan = plan_schema(source, await _read_ledger(connection))
        plan.require_known()
        plan.require_unaltered()
        await _make_ledger(connection)
        for migration in plan.pending:
            if on_step:
                on_step(f"apply {migration.path}")
            await _in_transaction(connection, _apply, migration)
        if (code := plan.code) is not None:
            if on_step:
                for step in code.steps:
                    on_step(step)
            await _in_transaction(connection, _replace_code, code)
    return MigrationReport(
        applied=tuple(sql.path for sql in plan.pending),
        created=tuple(sql.path for sql in code.create) if code else (),
        dropped=code.removed_paths if code else (),
    )


async def schema_state(dsn: str, *, source: SqlSource = bundled) -> SchemaState:
    """Compare the database with this code; change nothing.

    Raises:
        PostgresTooOld, MigrationChanged, Unavailable: as `migrate` does.
    """
    async with _session(dsn) as connection:
        plan = plan_schema(source, await _read_ledger(connection))
    if plan.unknown:
        return SchemaState("ahead", plan.unknown)
    plan.require_unaltered()
    return SchemaState("behind" if plan.differences else "current", plan.differences)


def migration_script(source: SqlSource = bundled, schema: Schema = _DEFAULT) -> str:
    """Return the SQL that `migrate` would run on an empty database, to run it by hand.

    It fills the ledger too, so that `migrate` then finds nothing to do.
    """
    parts = ["-- For an empty database; stop at the first error (psql -v ON_ERROR_STOP=1).\n"]
    parts += ["begin;\n", statement("create_ledger"), "commit;\n"]
    for migration in source.migrations():
        parts += [f"\n-- {migration.path}\nbegin;\n", migration.text, _migration_record(migration)]
        parts += ["commit;\n"]
    parts += ["\nbegin;\nset local check_function_bodies = off;\n"]
    for sql in (*source.functions(), *source.views()):
        parts += [f"\n-- {sql.path}\n", sql.text, _code_record(sql)]
    return schema.spelled("".join([*parts, "commit;\n"]))


def _migration_record(sql: SqlText) -> str:
    # Names and checksums hold letters, digits and underscores only: quoting them is safe.
    values = f"({sql.number}, '{sql.name}', '{sql.checksum}')"
    return f"\ninsert into skep.migration (number, name, checksum) values {values};\n"


def _code_record(sql: SqlText) -> str:
    values = f"('{sql.kind}', '{sql.name}', '{sql.checksum}')"
    return f"\ninsert into skep.code_object (kind, name, checksum) values {values};\n"


@asynccontextmanager
async def _session(dsn: str) -> AsyncGenerator[Connection]:
    try:
        connection = await connect(dsn)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise Unavailable(f"cannot connect to PostgreSQL: {error}") from error
    try:
        require_supported(int(await connection.fetchval("show server_version_num")))
        # The role may have a statement timeout, which is not meant for migrations.
        await connection.execute("set statement_timeout = 0")
        yield connection
    except asyncpg.InsufficientPrivilegeError as error:
        raise MigrationFailed(
            f"{error}: the role must own schema {split_schema(dsn)[1].name}, or be allowed to "
            "create it"
        ) from error
    except (ConnectionError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError) as error:
        raise Unavailable(f"the connection to PostgreSQL broke: {error}") from error
    except asyncpg.PostgresError as error:
        raise MigrationFailed(str(error)) from error
    finally:
        await connection.close(timeout=_CLOSE_S)


async def _lock_out_other_runners(connection: Connection, schema: Schema) -> None:
    """Wait for the advisory lock of runners; the session holds it until it ends."""
    await connection.execute(f"set lock_timeout = '{_OTHER_RUNNER_WAIT}'")
    # The name in ASCII, as a number. Only other software in this database could collide.
    key = int.from_bytes(schema.name.encode()) % _LOCK_KEYS
    try:
        await connection.execute("select pg_advisory_lock($1)", key)
    except asyncpg.LockNotAvailableError as error:
        raise MigrationBlocked(
            f"another migration of this database has run for {_OTHER_RUNNER_WAIT}"
        ) from error
    await connection.execute(f"set lock_timeout = '{_LOCK_WAIT}'")


async def _read_ledger(connection: Connection) -> Ledger:
    if not await connection.fetchval(statement("has_ledger")):
        return Ledger({}, {})
    migrations = await connection.fetch(statement("list_migrations"))
    code = await connection.fetch(statement("list_code_objects"))
    return Ledger(
        {row["number"]: (row["name"], row["checksum"]) for row in migrations},
        {(row["kind"], row["name"]): row["checksum"] for row in code},
    )


async def _make_ledger(connection: Connection) -> None:
    if not await connection.fetchval(statement("has_ledger")):
        async with connection.transaction():
            await connection.execute(statement("create_ledger"))


async def _in_transaction(
    connection: Connection,
    step: Callable[[Connection, _Subject], Awaitable[None]],
    subject: _Subject,
) -> None:
    """Run `step` in a transaction; while other sessions block it, undo it and retry.

    Sessions queue behind a waiting DDL command: hence short waits, with pauses that let them pass.
    """
    for attempt in range(1, _LOCK_ATTEMPTS + 1):
        try:
            async with connection.transaction():
                await step(connection, subject)
        except _IN_THE_WAY as error:
            if attempt == _LOCK_ATTEMPTS:
                raise MigrationBlocked(
                    f"other sessions were in the way {attempt} times: {error}"
                ) from error
            await asyncio.sleep(_LOCK_PAUSE_S)
        else:
            return


async def _apply(connection: Connection, migration: SqlText) -> None:
    await connection.execute(
        statement("record_migration"), migration.number, migration.name, migration.checksum
    )
    await _run_file(connection, migration)


async def _replace_code(connection: Connection, code: CodeChange) -> None:
    await connection.execute("set local check_function_bodies = off")
    await _drop(connection, "drop_views_command", code.drop_views)
    await _drop(connection, "drop_functions_command", code.drop_functions)
    for sql in code.create:
        await _run_file(connection, sql)
        await connection.execute(statement("record_code_object"), sql.kind, sql.name, sql.checksum)
    for kind, name in code.removed:
        await connection.execute(statement("forget_code_object"), kind, name)
    await _require_created(connection, code)


async def _drop(connection: Connection, finder: str, names: tuple[str, ...]) -> None:
    command = await connection.fetchval(statement(finder), names)
    if command is None:
        return
    try:
        await connection.execute(command)
    except asyncpg.DependentObjectsStillExistError as error:
        raise MigrationFailed(
            f"{error}: {getattr(error, 'detail', '')}. Drop what depends on it, migrate, and "
            "create it again"
        ) from error


async def _require_created(connection: Connection, code: CodeChange) -> None:
    """Check that each file made the object it is named after: the next change drops by name."""
    names = {kind: [s.name for s in code.create if s.kind == kind] for kind in ("function", "view")}
    missing = await connection.fetch(statement("list_uncreated"), names["function"], names["view"])
    if missing:
        raise MigrationFailed(
            f"{', '.join(row[0] for row in missing)}: a file must create the object it is named "
            "after, in the schema of the installation"
        )


async def _run_file(connection: Connection, sql: SqlText) -> None:
    try:
        await connection.execute(sql.text)
    except (*_IN_THE_WAY, asyncpg.PostgresConnectionError):
        raise
    except asyncpg.PostgresError as error:
        sent = as_sent(connection, sql.text)
        raise MigrationFailed(f"{sql.path}{_line(sent, error)}: {error}") from error


def _line(sent: str, error: asyncpg.PostgresError) -> str:
    position = getattr(error, "position", None)
    return f", line {len(sent[: int(position)].splitlines())}" if position else ""
