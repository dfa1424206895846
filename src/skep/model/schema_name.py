"""The schema of PostgreSQL that an installation lives in.

All SQL of this program says `skep.`. Where another name was chosen (`database_schema`) it is put
into each text as the text leaves Python, at the lowest layer: `Schema.spelled`. What belongs to one
installation is named after its schema, so that several of them share a database and nothing else:

    skep.push_messages    tables, functions, sequences, custom settings, the names of locks
    skep_lake.tables      the schema of the archive's catalog
    'skep_pushed'         channels of notifications
    'skep', schema skep   the schema itself, in look-ups of the catalogue and in DDL

The texts are ours: what users say is always a parameter and never part of them. For the default
name nothing is done at all.

An installation is named by one URL: `postgresql://host/database?schema=billing`. Drivers do not
know that parameter, so code that connects removes it first (`split_schema`).
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from skep.model.errors import BadRequest

DEFAULT_SCHEMA: Final = "skep"
LENGTH_MAX: Final = 40
"""PostgreSQL cuts names at 63 bytes, and channels are longer than the schema they belong to."""

_PARAMETER: Final = "schema="
_NAME: Final = re.compile(rf"[a-z_][a-z0-9_]{{0,{LENGTH_MAX - 1}}}")
_REFERENCE: Final = re.compile(
    r"\bskep(?=\.|_lake\.)|(?<=')skep(?='|_[a-z_]*')"
    r"|(?<=schema )skep(?=\b|_lake\b)|(?<=schema if not exists )skep\b"
)
_OTHERS: Final = frozenset({"public", "information_schema"})
_LAKE: Final = "_lake"
_RESERVED_WORDS: Final = """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast
    check collate collation column concurrently constraint create cross current_catalog
    current_date current_role current_schema current_time current_timestamp current_user
    default deferrable desc distinct do else end except false fetch for foreign freeze from
    full grant group having ilike in initially inner intersect into is isnull join lateral
    leading left like limit localtime localtimestamp natural not notnull null offset on only
    or order outer overlaps placing primary references returning right select session_user
    similar some symmetric system_user table tablesample then to trailing true union unique
    user using variadic verbose when where window with
"""
_RESERVED: Final = frozenset(_RESERVED_WORDS.split())
"""Words that PostgreSQL, in one version or another, does not take for a name unless quoted."""


class InvalidSchemaName(BadRequest):
    """The schema of an installation cannot be called that."""

    code: ClassVar[str] = "invalid_schema_name"


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema by its name, which is checked; see `schema_named`."""

    name: str = DEFAULT_SCHEMA

    @property
    def is_default(self) -> bool:
        """Whether the texts can stay as they are."""
        return self.name == DEFAULT_SCHEMA

    def spelled(self, sql: str) -> str:
        """Return a text of ours as it is said in this schema; the default's is the text itself."""
        return sql if self.is_default else _spelled(self.name, sql)

    def called(self, name: str) -> str:
        """Return what `skep_pushed`, `skep_lake` and the like are called beside this schema."""
        is_ours = name.startswith(f"{DEFAULT_SCHEMA}_")
        return self.name + name.removeprefix(DEFAULT_SCHEMA) if is_ours else name


@lru_cache(512)
def _spelled(name: str, sql: str) -> str:
    return _REFERENCE.sub(name, sql)


@lru_cache(64)
def schema_named(name: str) -> Schema:
    """Return the schema of that name."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise InvalidSchemaName(
            f"the schema must be a plain name of lower-case letters, digits and underscores, at "
            f"most {LENGTH_MAX}, and no word of SQL, not {name!r}"
        )
    if name.startswith("pg_") or name in _OTHERS:
        raise InvalidSchemaName(f"the schema {name} belongs to PostgreSQL or to everybody")
    if name.endswith(_LAKE):
        raise InvalidSchemaName(f"the schema {name} is that of another installation's archive")
    return Schema(name)


def with_schema(url: str, name: str) -> str:
    """Return the URL of the installation in that schema of a database."""
    plain, said = split_schema(url)
    chosen = schema_named(name)
    if chosen.is_default or chosen == said:
        return url
    if not said.is_default:
        raise InvalidSchemaName(f"the URL says schema {said.name}, and the settings say {name}")
    return f"{plain}{'&' if '?' in plain else '?'}{_PARAMETER}{name}"


def split_schema(url: str) -> tuple[str, Schema]:
    """Return the URL that drivers know, and the schema that it named."""
    address, _, query = url.partition("?")
    parts = query.split("&")
    names = [part.removeprefix(_PARAMETER) for part in parts if part.startswith(_PARAMETER)]
    if not names:
        return url, Schema()
    kept = "&".join(part for part in parts if not part.startswith(_PARAMETER))
    return f"{address}?{kept}" if kept else address, schema_named(names[-1])
