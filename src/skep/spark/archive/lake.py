"""The lake: Iceberg tables of messages, whose catalog lies beside the log in PostgreSQL.

One table is for all queues. A queue with `lakeTable: typed` has one of its own besides
(`skep.spark.archive.typed_table`), into which its messages go instead.

Committing files to the table is an update of a row of the catalog, so it can be part of a
transaction that does other things as well: `Lake.transaction` lends the catalog a connection that
is in one. Nothing of it counts until that transaction commits.

All files lie below a directory that is named after the database, so that a copy of
the database, restored elsewhere, never takes the files of the original for its own.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Self

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from sqlalchemy import Connection, event, make_url, text
from sqlalchemy.exc import InterfaceError, OperationalError, ProgrammingError, SQLAlchemyError

from skep.model.errors import NotFound, Refused, SkepError, Unavailable
from skep.model.schema_name import Schema, split_schema
from skep.spark.archive.erasures import LakeFile, planned_files
from skep.spark.archive.schema import PARTITIONING, TABLE_PROPERTIES, TABLE_SCHEMA
from skep.spark.archive.storage import Storage, warehouse_address
from skep.spark.archive.typed_table import RESULTS, find_typed_table, tables_of, typed_tables
from skep.spark.runtime.arrow import pa

CATALOG: Final = "skep"
CATALOG_SCHEMA: Final = "skep_lake"
NAMESPACE: Final = "skep"
TABLE: Final = f"{NAMESPACE}.messages"
ORPHAN_AGE: Final = timedelta(days=3)
"""The default of Iceberg: how long the writing of a file and its commit may be apart."""

# In one order: several processes that commit at a time must not wait for each other in a circle.
LOCK_TABLES: Final = (
    "select from skep_lake.iceberg_tables order by table_namespace, table_name for update"
)
# The name stands in the text, where that of another schema takes the place of `skep`.
LOCK: Final = "select pg_try_advisory_lock(hashtext('skep.{name}'))"
UNLOCK: Final = "select pg_advisory_unlock(hashtext('skep.{name}'))"
SYSTEM: Final = "select skep.system_identity()"
OPEN_RUNS: Final = "select id::text from skep.archive_run"


class CannotArchive(Refused):
    """The database or the storage of the lake refused something."""


class RowsDeleted(Refused):
    """Files hold rows that were deleted from the table."""


class WrongWarehouse(Refused):
    """The archive has a warehouse, and it is another one."""


class ForeignArchive(Refused):
    """The archive belongs to the server from which this database was restored."""


FOREIGN: Final = (
    "the archive belongs to another server. After pg_upgrade run `skep adopt`. If this database "
    "was restored from a dump, run `select skep.forget_archive()` in it once to begin a new "
    "archive; the files of the old one stay where they are"
)
"""What to do about a `ForeignArchive`."""


class Expired(NamedTuple):
    """What was forgotten of a table."""

    snapshots: int
    files: set[str]
    """No other snapshot knows these."""


class Lake:
    """The table and its catalog."""

    def __init__(self, url: str, storage: Mapping[str, str]) -> None:
        """Connect to the catalog; see `skep.spark.archive.storage` for how files are reached."""
        plain, schema = split_schema(url)
        address = make_url(plain).set(drivername="postgresql+psycopg")
        given = address.query.get("options", "")
        given = given if isinstance(given, str) else " ".join(given)
        address = address.update_query_dict(
            {"options": f"{given} -csearch_path={schema.called(CATALOG_SCHEMA)}".strip()}
        )
        self.storage: Final = Storage(storage)
        self.catalog: Final = SqlCatalog(
            CATALOG,
            uri=address.render_as_string(hide_password=False),
            init_catalog_tables="false",
            **storage,
        )
        """Also for tables beside that of the messages; part of a `transaction` in one."""
        self._engine: Final = self.catalog.engine
        if not schema.is_default:
            _spell_all(self._engine, schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    def connect(self) -> Connection:
        """Open a connection to the database of the catalog."""
        return self._engine.connect()

    @contextmanager
    def transaction(self) -> Generator[Connection]:
        """Run the catalog in a transaction that commits at the end.

        It locks the rows of the tables first: no other process is about to commit files that the
        catalog does not know yet, even if the advisory lock of the archive was lost.
        """
        with self._engine.connect() as connection, connection.begin():
            connection.execute(text(LOCK_TABLES))
            lent: Any = connection
            self.catalog.engine = lent
            try:
                yield connection
            finally:
                self.catalog.engine = self._engine

    def table(self) -> Table:
        """Return the table as it is now; raise `NotFound` if nothing has ever been archived."""
        try:
            return self.catalog.load_table(TABLE)
        except NoSuchTableError:
            raise NotFound("there is no archive in this database yet") from None

    def tables(self) -> list[Table]:
        """Return all tables of messages, and those that pipelines write; raise `NotFound`."""
        results = tables_of(self, RESULTS)
        messages = self.message_tables() if self.has_table() or not results else []
        return [*messages, *results]

    def message_tables(self) -> list[Table]:
        """Return the table of all queues, and the typed ones."""
        return [self.table(), *typed_tables(self)]

    def has_table(self) -> bool:
        """Tell whether something was ever archived."""
        return self.catalog.table_exists(TABLE)

    def root(self, warehouse: str | None) -> str:
        """Return where the tables of this database lie: beside the archive, or in a warehouse.

        Raises `WrongWarehouse` if there is neither, `ForeignArchive` if that is not ours.
        """
        if self.has_table():
            table = self.table()
            if self.is_foreign(table):
                raise ForeignArchive(FOREIGN)
            return table.location().rpartition("/")[0]
        if warehouse is None:
            raise WrongWarehouse(
                "There is no warehouse yet: pass --warehouse, or set archive_warehouse"
            )
        return f"{warehouse_address(warehouse)}/{self._directory()}"

    def is_foreign(self, table: Table) -> bool:
        """Tell whether files are of the server from which this database was restored."""
        return self._directory() not in table.location().split("/")

    def _directory(self) -> str:
        return self.system().replace(":", "-")

    def system(self) -> str:
        """Return the name of the database, as positions have it."""
        with self.connect() as connection:
            return str(connection.scalar(text(SYSTEM)))

    def ensure_table(self, warehouse: str | None) -> Table:
        """Return the table; make it in a warehouse if there is none.

        Raises `WrongWarehouse` if the files lie somewhere else, or there is neither a table nor a
        warehouse.
        """
        wanted = None if warehouse is None else warehouse_address(warehouse)
        if not self.has_table():
            location = f"{self.root(warehouse)}/messages"
            self.catalog.create_namespace_if_not_exists(NAMESPACE)
            catalog: Any = self.catalog  # its signature names types of PyArrow
            catalog.create_table(
                TABLE, TABLE_SCHEMA, location, PARTITIONING, properties=TABLE_PROPERTIES
            )
        table = self.table()
        if missing := {
            each: TABLE_PROPERTIES[each] for each in TABLE_PROPERTIES.keys() - table.properties
        }:
            with table.transaction() as change:
                change.set_properties(missing)
            self.force(table)
        if wanted is not None and not table.location().startswith(wanted + "/"):
            raise WrongWarehouse(
                f"the archive lies at {table.location()}, not below {wanted}: leave the warehouse "
                "out, or give that one"
            )
        return table

    def files(
        self,
        queue: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        xid_min: int | None = None,
        xid_end: int | None = None,
    ) -> list[LakeFile]:
        """Return the files that may hold such messages, in the order of transactions.

        `since` and `xid_min` are inclusive, `until` and `xid_end` are not.
        """
        bounds = [
            (_equal, "queue", queue),
            (not_below, "created_at", since and since.isoformat()),
            (below, "created_at", until and until.isoformat()),
            (not_below, "xid", xid_min),
            (below, "xid", xid_end),
        ]
        filters = (compare(column, bound) for compare, column, bound in bounds if bound is not None)
        chosen = list(filters)
        typed = [] if queue is None else [self.table(), find_typed_table(self, queue)]
        tables = typed or self.message_tables()
        found = [
            each.described()
            for table in tables
            if table is not None
            for each in planned_files(table, *chosen)
        ]
        return sorted(found, key=lambda file: file.order)

    def plain_files(
        self,
        queue: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[LakeFile]:
        """Return files for programs that read them as they are, and know of no deleted rows.

        Raises `RowsDeleted` if they would read some.
        """
        return without_erasures(self.files(queue, since=since, until=until))

    def add(
        self,
        table: Table,
        addresses: Iterable[str],
        notes: Mapping[str, str],
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Commit new files, in the transaction that is under way.

        `notes` describe the snapshot; `properties` of the table change with it.
        """
        chosen = list(addresses)
        if chosen:
            with table.transaction() as change:
                change.add_files(
                    chosen,
                    snapshot_properties=dict(notes),
                    check_duplicate_files=False,  # their names are new, and looking reads all
                )
                if properties:
                    change.set_properties(dict(properties))
        self.force(table)

    def replace(self, table: Table, old: Iterable[DataFile], new: Iterable[str]) -> None:
        """Commit files that hold the same messages as others, and take those out."""
        with table.transaction() as change, change.update_snapshot().overwrite() as update:
            for file in old:
                update.delete_data_file(file)
            for address in new:
                update.append_data_file(
                    parquet_file_to_data_file(table.io, table.metadata, address)
                )
        self.force(table)

    def force(self, table: Table) -> None:
        """Make sure that the description of the table survives a crash of the machine."""
        self.storage.force([table.metadata_location, *snapshot_files(table, current_only=True)])

    def expire(self, table: Table, older_than: datetime) -> Expired:
        """Forget snapshots that were replaced before a moment, in the transaction under way.

        What only they knew is to be removed once that has committed.
        """
        current, limit_ms = table.current_snapshot(), older_than.timestamp() * 1000
        expired = [
            snapshot.snapshot_id
            for snapshot in table.metadata.snapshots
            if snapshot != current and _replaced_at(table, snapshot) < limit_ms
        ]
        if not expired:
            return Expired(0, set())
        before = known_files(table)
        table.maintenance.expire_snapshots().by_ids(expired).commit()
        self.force(table)
        return Expired(len(expired), before - known_files(table))

    def remove_unreferenced(self, older_than: datetime) -> int:
        """Remove files that no snapshot and no run knows; return how many.

        A young one may be of another program, which commits it in a moment. Only the decision keeps
        commits waiting: files may be many, and what nothing knows by then is never committed.
        """
        found = self._listed(older_than)
        with self.transaction():
            orphans = self._unknown(found)
        self.storage.remove(orphans)
        return len(orphans)

    def unreferenced(self, older_than: datetime | None = None) -> list[str]:
        """Return the files below the tables that no snapshot and no run under way knows."""
        return self._unknown(self._listed(older_than))

    def _listed(self, older_than: datetime | None) -> dict[str, list[str]]:
        """Return the files below the tables, by the places of these."""
        places = [each.location() for each in self.tables()]
        return {each: self.storage.list(each, older_than=older_than) for each in places}

    def _unknown(self, found: Mapping[str, Sequence[str]]) -> list[str]:
        """Return those files that no snapshot and no run under way knows."""
        # Now that they are listed: the run of each of them had been planned by then.
        with self.connect() as connection:
            runs = connection.scalars(text(OPEN_RUNS)).all()
        unknown: list[str] = []
        for table in self.tables():
            place = table.location()
            under_way = tuple(f"{place}/data/{run}/" for run in runs)
            rest = [each for each in found.get(place, ()) if not each.startswith(under_way)]
            unknown += _without_known(rest, table)
        return unknown

    def orphans(self, table: Table, older_than: datetime | None = None) -> list[str]:
        """Return the files below a table that none of its snapshots knows."""
        return _without_known(self.storage.list(table.location(), older_than=older_than), table)

    @contextmanager
    def locked(self, name: str, busy: SkepError) -> Generator[Connection]:
        """Hold an advisory lock; every statement is a transaction of its own.

        Raises `busy` if another process holds it.
        """
        with self.connect() as opened:
            connection = opened.execution_options(isolation_level="AUTOCOMMIT")
            if not connection.scalar(text(LOCK.format(name=name))):
                raise busy
            try:
                yield connection
            finally:
                # Given back first: the server notices the end of a connection a little later, and
                # the next process would find it taken. The pool would keep the connection.
                if not connection.invalidated:
                    with suppress(SQLAlchemyError):
                        connection.execute(text(UNLOCK.format(name=name)))
                connection.invalidate()


def without_erasures(files: list[LakeFile]) -> list[LakeFile]:
    """Return files as they are; raise `RowsDeleted` if they hold rows that were deleted."""
    if changed := sum(bool(file.erasures) for file in files):
        raise RowsDeleted(
            f"another program deleted rows of {changed} of {len(files)} files, which still "
            "hold them: run `skep archive compact` first, or read the table by its catalog"
        )
    return files


@contextmanager
def explained() -> Generator[None]:
    """Turn what drivers and file systems raise into one line that says what to do."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        raise Unavailable(f"the database of the archive: {_first_line(error.orig)}") from error
    except ProgrammingError as error:
        raise CannotArchive(
            f"PostgreSQL refused a statement of the archive: {_first_line(error.orig)}. If the "
            "schema is older than this skep, run `skep migrate`"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise CannotArchive(
            f"the storage of the archive: {_first_line(error)}. Check the warehouse, and the "
            "setting archive_storage"
        ) from error


def _first_line(error: BaseException | None) -> str:
    return " ".join((str(error).strip().splitlines() or [type(error).__name__])[0].split())


# Generic classes of pydantic's, whose arguments a type checker cannot see.
_equal: Final[Any] = EqualTo
not_below: Final[Any] = GreaterThanOrEqual
below: Final[Any] = LessThan


def _spell_all(engine: Any, schema: Schema) -> None:
    """Put the name of the schema into every statement of an engine."""

    def spell(
        connection: object, cursor: object, sql: str, parameters: object, *_: object
    ) -> tuple[str, object]:
        del connection, cursor
        return schema.spelled(sql), parameters

    event.listen(engine, "before_cursor_execute", spell, retval=True)


def _replaced_at(table: Table, snapshot: Any) -> int:
    """Return when a snapshot ceased to be the present one: readers may have planned until then."""
    later = [
        other.timestamp_ms
        for other in table.metadata.snapshots
        if other.parent_snapshot_id == snapshot.snapshot_id
    ]
    return max(later, default=snapshot.timestamp_ms)


def _without_known(files: Sequence[str], table: Table) -> list[str]:
    known = known_files(table) if files else set[str]()
    return [each for each in files if each not in known]


def known_files(table: Table) -> set[str]:
    """Return all files that a table refers to, of whatever kind."""
    logged = (entry.metadata_file for entry in table.metadata.metadata_log)
    described = {table.metadata_location, *logged, *snapshot_files(table)}
    return described.union(all_data_files(table))


def snapshot_files(table: Table, *, current_only: bool = False) -> Iterator[str]:
    """Yield the files that describe the snapshots of a table."""
    current = table.current_snapshot()
    chosen = [current] if current_only else table.metadata.snapshots
    for snapshot in chosen:
        if snapshot is not None:
            yield snapshot.manifest_list
            yield from (manifest.manifest_path for manifest in snapshot.manifests(table.io))


def all_data_files(table: Table) -> Iterator[str]:
    """Yield the files with messages, or with deletes of some, that a snapshot of a table reads."""
    manifests = {
        manifest.manifest_path: manifest
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
    }
    for manifest in manifests.values():
        for entry in manifest.fetch_manifest_entry(table.io):
            yield entry.data_file.file_path
