"""Lines of JSON, each a message: spelled by an export, and taken apart by an import.

Payloads go through as the bytes they are: numbers keep their digits, and a payload that is a string
stays one. A line that cannot be taken apart becomes a payload as it is, which the writer rejects by
its row if it is no JSON.
"""

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LINE_COLUMNS: Final = (
    "partition string, offset bigint, transaction_id string, headers map<string,string>, "
    "payload string"
)
"""What lines are taken apart into, as Spark's DDL spells it."""
_KNOWN: Final = (
    "to_json(struct(queue, partition, offset, message_id, transaction_id, created_at, headers)) "
    "as known"
)
# A payload may have been sent on several lines; outside of strings they are mere space, and inside
# of strings JSON has none.
_ONE_LINE: Final = "translate(payload, '\\n\\r', '  ')"


class Line(msgspec.Struct):
    """A message as a line has it."""

    payload: msgspec.Raw
    partition: str | None = None
    offset: int | None = None
    transaction_id: str | None = None
    headers: dict[str, str] | None = None


Cut: TypeAlias = tuple[str | None, int | None, str | None, dict[str, str] | None, str]
"""A row of `LINE_COLUMNS`."""

_decode: Final = msgspec.json.Decoder(Line).decode


def spell_lines(frame: "DataFrame") -> "DataFrame":
    """Return messages as lines, in a column `value`."""
    spelled = frame.selectExpr(_KNOWN, "payload")
    opened = "substr(known, 1, length(known) - 1)"
    return spelled.selectExpr(f"concat({opened}, ',\"payload\":', {_ONE_LINE}, '}}') as value")


def cut_lines(lines: "DataFrame") -> "DataFrame":
    """Take lines, in a column `value`, apart into messages.

    By plain Python functions: those on Arrow want pandas, which nothing else here does.
    """
    rows: Any = lines.rdd
    session: Any = lines.sparkSession
    return session.createDataFrame(rows.map(_cut_row), LINE_COLUMNS, verifySchema=False)


def cut_line(text: str) -> Cut:
    """Return partition, offset, transaction id, headers and payload of a line."""
    try:
        line = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None, None, None, None, text
    payload = bytes(line.payload).decode()
    return line.partition, line.offset, line.transaction_id, line.headers, payload


def _cut_row(row: tuple[str]) -> Cut:
    return cut_line(row[0])
