"""Listings: the page asked for, rows as structs, and cursors."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from skep.db.access.functions import Functions
from skep.model.errors import BadRequest

T = TypeVar("T", bound=msgspec.Struct)
Place = TypeVar("Place")


class Page(msgspec.Struct, frozen=True):
    """Which part of a list: so many entries, after skipping so many."""

    limit: int
    offset: int


def from_row(shape: type[T], row: Any, **members: Any) -> T:
    """Build a struct: the members given, and all others from the columns of the same names."""
    names = (name for name in shape.__struct_fields__ if name not in members)
    return shape(**members, **{name: row[name] for name in names})


async def rows_and_total(
    sql: Functions, function: str, *arguments: object
) -> tuple[Sequence[Any], int]:
    """Return the rows of a page and the total, which every row tells; also behind the last.

    The last arguments are the limit and the offset of the page.
    """
    rows = await sql.rows(function, *arguments)
    counted = rows or await sql.rows(function, *arguments[:-2], 1, 0)
    return rows, counted[0]["total"] if counted else 0


def encode_cursor(place: object) -> str:
    """Return the text by which a client continues a listing at a place."""
    return urlsafe_b64encode(msgspec.json.encode(place)).decode()


def decode_cursor(decoder: msgspec.json.Decoder[Place], cursor: str) -> Place:
    """Return the place that a cursor stands for."""
    try:
        return decoder.decode(urlsafe_b64decode(cursor))
    except (NotBase64, ValueError, msgspec.MsgspecError):
        raise BadRequest("cursor must be the nextCursor of an earlier page") from None
