"""The SQL texts of Skep, found by name.

A source is a directory of SQL files:

    migrations/NNNN_slug.sql        steps of the schema, applied once each in numerical order
    functions/<topic>/<name>.sql    the function skep.<name>
    views/<name>.sql                the view skep.<name>
    statements/<name>.sql           a statement with parameters $1, $2, run by code that names it

`bundled` is the source inside the package. This module only reads; `migrate` applies.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise
from typing import Literal, LiteralString, cast

from skep.model.errors import Defect

Kind = Literal["migration", "function", "view"]

_NAMES: dict[Kind, re.Pattern[str]] = {
    "migration": re.compile(r"\d{4}_[a-z0-9_]+"),
    "function": re.compile(r"[a-z_][a-z0-9_]*"),
    "view": re.compile(r"[a-z_][a-z0-9_]*"),
}
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SqlText:
    """One SQL file; `name` is the file's name without its suffix."""

    kind: Kind
    name: str
    text: str
    folder: str = ""
    """Below the directory of its kind, with a slash at its end."""

    @property
    def path(self) -> str:
        """Where the file lies in its source."""
        return path_of(self.kind, self.folder + self.name)

    @property
    def checksum(self) -> str:
        """The SHA-256 of the text, by which a change is noticed."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def number(self) -> int:
        """The place of a migration in the order; unique within a source."""
        return int(self.name[:4])


class SqlSource:
    """The SQL files below one directory."""

    def __init__(self, root: Traversable) -> None:
        self._root = root

    def migrations(self) -> list[SqlText]:
        """Return the migrations in ascending order.

        Raises:
            Defect: a file is not named `NNNN_slug.sql`, or two share a number.
        """
        migrations = self._read("migration")
        numbers = {migration.number: migration.path for migration in migrations}
        for migration in migrations:
            if numbers[migration.number] != migration.path:
                raise Defect(f"{migration.path} and {numbers[migration.number]} share a number")
        return migrations

    def functions(self) -> list[SqlText]:
        """Return the functions; they can be created in any order."""
        return self._read("function")

    def views(self) -> list[SqlText]:
        """Return the views, each after the views that its text names."""
        views = {view.name: view for view in self._read("view")}
        uses = {name: _names_in(view.text, views.keys() - {name}) for name, view in views.items()}
        try:
            return [views[name] for name in TopologicalSorter(uses).static_order()]
        except CycleError as error:
            raise Defect(f"views name each other in a circle: {error.args[1]}") from error

    def statement(self, name: str) -> LiteralString:
        """Return the text of `statements/<name>.sql`.

        Raises:
            Defect: there is no such file.
        """
        file = self._root / "statements" / f"{name}.sql"
        if not file.is_file():
            raise Defect(f"there is no SQL file statements/{name}.sql")
        # The files are part of the program, like literals.
        return cast("LiteralString", file.read_text("utf-8"))

    def _read(self, kind: Kind) -> list[SqlText]:
        directory = self._root / f"{kind}s"
        if not directory.is_dir():
            return []
        texts = sorted(_read_below(kind, directory), key=lambda sql: sql.name)
        for sql in texts:
            if not _NAMES[kind].fullmatch(sql.name):
                raise Defect(f"{sql.path} should be named like {_NAMES[kind].pattern}")
        for sql, other in pairwise(texts):
            if sql.name == other.name:
                raise Defect(f"{sql.path} and {other.path} define the same {kind}")
        return texts


def _read_below(kind: Kind, directory: Traversable, folder: str = "") -> Iterator[SqlText]:
    for file in directory.iterdir():
        if file.is_dir():
            yield from _read_below(kind, file, f"{folder}{file.name}/")
        elif file.name.endswith(".sql"):
            yield SqlText(kind, file.name.removesuffix(".sql"), file.read_text("utf-8"), folder)


def path_of(kind: Kind, name: str) -> str:
    """Return where the file of that name lies in its source."""
    return f"{kind}s/{name}.sql"


def _names_in(text: str, names: Iterable[str]) -> list[str]:
    code = _COMMENT.sub(" ", text)
    return [name for name in sorted(names) if re.search(rf"\bskep\.{name}\b", code)]


bundled = SqlSource(files("skep.db") / "sql")


@cache
def statement(name: str) -> LiteralString:
    """Return a bundled statement; see `SqlSource.statement`."""
    return bundled.statement(name)
