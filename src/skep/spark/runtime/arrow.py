"""PyArrow for this package, and views of the bytes of its string columns.

PyArrow has no types of its own; named `Any` once, it need not be excused at every use. One pass
over the bytes of a column shows whether it holds quotes, control characters or long names, many
times faster than checking each string.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow
from pyspark.sql.pandas import types

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

pa: Final[Any] = pyarrow
_conversions: Final[Any] = types


def arrow_schema(schema: "StructType") -> Any:
    """Return the schema that Spark expects of record batches, to the letter."""
    return _conversions.to_arrow_schema(schema, timezone="UTC")


_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_FIRST_PRINTABLE: Final = ord(" ")

PIECE_ROWS: Final = 8192
"""So many objects stay in the cache, and their memory is used again for the next ones."""


def text_offsets(values: Any) -> Any:
    """Return where the strings of an array begin in their buffer, and where the last one ends."""
    is_large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    offsets = np.frombuffer(values.buffers()[1], np.int64 if is_large else np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]


def text_bytes(values: Any) -> Any:
    """Return the bytes of all strings of an array, one behind the other."""
    buffer = values.buffers()[2]
    if buffer is None or len(values) == 0:
        return np.empty(0, np.uint8)
    offsets = text_offsets(values)
    return np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]]


def text_lengths(values: Any) -> Any:
    """Return the length of each string in bytes; what it is for a null does not matter."""
    return np.diff(text_offsets(values)) if len(values) else np.empty(0, np.int32)


def has_control_characters(values: Any) -> bool:
    """Tell whether a string may hold a character that JSON does not allow as it is."""
    return bool((text_bytes(values) < _FIRST_PRINTABLE).any())


def needs_no_escapes(values: Any) -> bool:
    """Tell whether all strings are spelled in JSON as they are, between quotes."""
    found = text_bytes(values)
    return not (
        (found < _FIRST_PRINTABLE).any() or (found == _QUOTE).any() or (found == _BACKSLASH).any()
    )


def byte_strings(values: Any) -> Iterator[list[bytes]]:
    """Yield the strings of an array in pieces: objects of all at once take twice as long."""
    for start in range(0, len(values), PIECE_ROWS):
        yield values.slice(start, PIECE_ROWS).cast(pa.binary()).to_pylist()


def slices_of(values: Any, starts: Any) -> Any:
    """Return an array of binaries, each of several neighbouring strings, without a copy.

    `starts` has the first string of each binary, ascending from 0.
    """
    offsets = text_offsets(values)
    bounds = np.append(offsets[:-1][starts], offsets[-1]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(bounds), values.buffers()[2]]
    )
