"""Lines of JSON, each a message: spelled by an export, and taken apart by an import.

Payloads go through as the bytes they are: numbers keep their digits, and a payload that is a string
stays one. A line that cannot be taken apart becomes a payload as it is, which the writer rejects by
its row if it is no JSON.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from skep.spark.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LINE_COLUMNS: Final = (
    "partition string, offset bigint, transaction_id string, headers map<string,string>, "
    "payload string"
)
"""What `cut_lines` makes of lines, as Spark's DDL spells it."""
_KNOWN: Final = (
    "to_json(struct(queue, partition, offset, message_id, transaction_id, created_at, headers)) "
    "as known"
)
# A payload may have been sent on several lines; outside of strings they are mere space, and inside
# of strings JSON has none.
_ONE_LINE: Final = "translate(payload, '\\n\\r', '  ')"

_ARROW: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("transaction_id", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("payload", pa.string()),
    ]
)


class Line(msgspec.Struct):
    """A message as a line has it."""

    payload: msgspec.Raw
    partition: str | None = None
    offset: int | None = None
    transaction_id: str | None = None
    headers: dict[str, str] | None = None


_decode: Final = msgspec.json.Decoder(Line).decode


def spell_lines(frame: "DataFrame") -> "DataFrame":
    """Return messages as lines, in a column `value`."""
    spelled = frame.selectExpr(_KNOWN, "payload")
    opened = "substr(known, 1, length(known) - 1)"
    return spelled.selectExpr(f"concat({opened}, ',\"payload\":', {_ONE_LINE}, '}}') as value")


def cut_lines(batches: Iterable[Any]) -> Iterator[Any]:
    """Take lines of messages apart, a record batch at a time."""
    for batch in batches:
        yield _columns([_cut(text) for text in batch.column(0).to_pylist()])


def _cut(text: str) -> Line:
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return Line(msgspec.Raw(text.encode()))


def _columns(lines: list[Line]) -> Any:
    values = {
        "partition": [line.partition for line in lines],
        "offset": [line.offset for line in lines],
        "transaction_id": [line.transaction_id for line in lines],
        "headers": [line.headers and list(line.headers.items()) for line in lines],
        "payload": [bytes(line.payload).decode() for line in lines],
    }
    arrays = [pa.array(values[field.name], field.type) for field in _ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
