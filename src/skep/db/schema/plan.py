"""Compare a database with the SQL files of this code: the pure half of the migration runner.

A ledger is the database's record of the files that made it.
"""

from dataclasses import dataclass

from skep.db.schema.catalog import Kind, SqlSource, SqlText, path_of
from skep.model.errors import Refused

SERVER_VERSION_MIN = 14


class PostgresTooOld(Refused):
    """This PostgreSQL is older than Skep supports."""

    code = "postgres_too_old"


class SchemaTooNew(Refused):
    """The schema is newer than this skep; upgrade skep."""

    code = "schema_too_new"


class MigrationChanged(Refused):
    """A migration was changed after it had been applied."""

    code = "migration_changed"


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was applied: migrations by number as (name, checksum), code by (kind, name)."""

    migrations: dict[int, tuple[str, str]]
    code: dict[tuple[Kind, str], str]


@dataclass(frozen=True, slots=True)
class CodeChange:
    """The functions and views to drop and to create, in order.

    Views may use functions and each other, and there are few: any change recreates all of them.
    """

    drop_views: tuple[str, ...]
    drop_functions: tuple[str, ...]
    create: tuple[SqlText, ...]
    removed: tuple[tuple[Kind, str], ...]

    @property
    def removed_paths(self) -> tuple[str, ...]:
        """The files that are gone."""
        return tuple(path_of(kind, name) for kind, name in self.removed)

    @property
    def steps(self) -> tuple[str, ...]:
        """What happens, a line for each file."""
        created = (f"create {sql.path}" for sql in self.create)
        return (*created, *(f"drop {path}" for path in self.removed_paths))


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """How a database differs from a source.

    Attributes:
        unknown: names of migrations that the database has and the source does not.
        altered: paths of migrations whose text is no longer the one that was applied.
        pending: migrations to apply, in order.
        differences: paths of everything to apply, create or drop.
        code: changes of functions and views; None if there are none.
    """

    unknown: tuple[str, ...]
    altered: tuple[str, ...]
    pending: tuple[SqlText, ...]
    differences: tuple[str, ...]
    code: CodeChange | None

    def require_known(self) -> None:
        """Refuse a database that a newer skep has migrated."""
        if self.unknown:
            raise SchemaTooNew(
                "the schema is newer than this skep, which does not know "
                f"{', '.join(self.unknown)}: upgrade skep"
            )

    def require_unaltered(self) -> None:
        """Refuse migrations that were edited after they had been applied."""
        if self.altered:
            raise MigrationChanged(
                f"{', '.join(self.altered)} differs from what was applied to this database: "
                "restore the file, and put the change into a new migration"
            )


def require_supported(server_version_num: int) -> None:
    """Refuse a server that is too old; the number is PostgreSQL's own, say 180006 for 18.6."""
    if server_version_num < SERVER_VERSION_MIN * 10000:
        raise PostgresTooOld(
            f"Skep needs PostgreSQL {SERVER_VERSION_MIN} or newer, and this server is "
            f"PostgreSQL {server_version_num // 10000}: upgrade it, or start skep without a "
            "database URL to use the embedded one"
        )


def plan_schema(source: SqlSource, ledger: Ledger) -> SchemaPlan:
    """Compare the files of `source` with the `ledger` of a database."""
    migrations = {migration.number: migration for migration in source.migrations()}
    applied = ledger.migrations
    pending = tuple(sql for number, sql in migrations.items() if number not in applied)
    functions, views = source.functions(), source.views()
    changed = [
        sql for sql in (*functions, *views) if ledger.code.get((sql.kind, sql.name)) != sql.checksum
    ]
    removed = sorted(ledger.code.keys() - {(sql.kind, sql.name) for sql in (*functions, *views)})
    return SchemaPlan(
        unknown=tuple(name for number, (name, _) in applied.items() if number not in migrations),
        altered=tuple(
            sql.path
            for number, sql in migrations.items()
            if number in applied and applied[number] != (sql.name, sql.checksum)
        ),
        pending=pending,
        differences=(
            *(sql.path for sql in (*pending, *changed)),
            *(path_of(kind, name) for kind, name in removed),
        ),
        code=_change_code(changed, views, removed, ledger) if changed or removed else None,
    )


def _change_code(
    changed: list[SqlText],
    views: list[SqlText],
    removed: list[tuple[Kind, str]],
    ledger: Ledger,
) -> CodeChange:
    functions = [sql for sql in changed if sql.kind == "function"]
    return CodeChange(
        drop_views=tuple(
            sorted({name for kind, name in ledger.code if kind == "view"} | {v.name for v in views})
        ),
        drop_functions=tuple(
            [sql.name for sql in functions] + [name for kind, name in removed if kind == "function"]
        ),
        create=(*functions, *views),
        removed=tuple(removed),
    )
