"""Check rows and bring them into the form of messages, a record batch at a time.

What comes out has a fixed schema (`CHECKED`) and only rows that can be stored; the others come out
as rejects, each with its reason. Nothing is looked at row by row unless a column as a whole shows
that something is wrong with it; only JSON that was given as text has to be parsed.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from skep.model import limits
from skep.model.envelopes import HEADER_SEPARATOR
from skep.model.wire import DEFAULT_PARTITION
from skep.spark.runtime.arrow import byte_strings, pa, text_bytes, text_lengths
from skep.spark.sink.columns import (
    DELIVER_AT,
    HEADERS,
    PARTITION,
    PAYLOAD,
    QUEUE,
    TRANSACTION_ID,
)
from skep.spark.sink.json_rows import json_objects, json_texts, pc
from skep.spark.sink.options import WriteOptions
from skep.spark.sink.rules import Validate

EXCERPT_CHARS: Final = 65_536
"""How much of a payload that is no JSON, or too large, is kept with its reject."""

_MOMENT: Final = pa.timestamp("us", tz="UTC")
MADE_UP: Final = "is_made_up"
CHECKED: Final = pa.schema(
    [
        (QUEUE, pa.string()),
        (PARTITION, pa.string()),
        (TRANSACTION_ID, pa.string()),
        (MADE_UP, pa.bool_()),  # the transaction id was
        (PAYLOAD, pa.string()),  # JSON
        (HEADERS, pa.string()),  # JSON, null without any
        (DELIVER_AT, _MOMENT),
    ]
)

_parse: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Reject(NamedTuple):
    """A row that cannot be stored."""

    row: int
    """Counted from 0 in its task."""
    error: str
    queue: str | None
    partition: str
    transaction_id: str
    payload: bytes
    """JSON: the payload, or as much of it as could be kept as a string."""

    def __str__(self) -> str:
        where = f"queue {self.queue}" if self.queue else "no queue"
        return f"row {self.row} ({where}, transaction id {self.transaction_id!r}): {self.error}"


class _Faults:
    """What is wrong with the rows of a batch; of several things, the first that was found."""

    def __init__(self) -> None:
        self.by_row: Final[dict[int, str]] = {}

    def note(self, rows: Iterable[int], error: str) -> None:
        for row in rows:
            self.by_row.setdefault(int(row), error)

    def note_where(self, mask: Any, error: str) -> None:
        if pc.any(mask).as_py():
            self.note(pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist(), error)


class RowChecker:
    """Checks the rows of one task, in their order."""

    def __init__(
        self,
        options: WriteOptions,
        *,
        id_prefix: str,
        validators: Mapping[str, Validate] | None = None,
        now: datetime | None = None,
    ) -> None:
        """Prepare.

        `id_prefix` begins the transaction ids of rows that have none; the number of the row
        follows, so that a repeated task makes the same ids. `validators` are the checks of payloads
        by queue, which may grow between two batches.
        """
        self._options: Final = options
        self._id_prefix: Final = id_prefix
        self._validators: Final[Mapping[str, Validate]] = {} if validators is None else validators
        latest = (now or datetime.now(UTC)) + timedelta(seconds=limits.SCHEDULE_SECONDS_MAX)
        self._latest: Final = pa.scalar(latest, _MOMENT)
        self._rows = 0

    def check(self, batch: Any) -> tuple[Any, list[Reject]]:
        """Return the rows that can be stored, as `CHECKED` has them, and the others."""
        faults = _Faults()
        first, self._rows = self._rows, self._rows + batch.num_rows
        columns = self._columns(batch, first, faults)
        checked = pa.RecordBatch.from_arrays(
            [columns[field.name].cast(field.type) for field in CHECKED], schema=CHECKED
        )
        self._check_schemas(checked, faults)
        if not faults.by_row:
            return checked, []
        mask = np.ones(batch.num_rows, bool)
        mask[list(faults.by_row)] = False
        rejects = [
            self._reject(checked, row, first + row, error)
            for row, error in sorted(faults.by_row.items())
        ]
        return checked.filter(pa.array(mask)), rejects

    def _columns(self, batch: Any, first: int, faults: _Faults) -> dict[str, Any]:
        given = {
            name: _readable(name, batch.column(number), faults)
            for number, name in enumerate(batch.schema.names)
        }
        count = batch.num_rows
        columns = {
            name: _text_column(given.get(name), count)
            for name in (QUEUE, PARTITION, TRANSACTION_ID)
        }
        self._complete_names(columns, faults)
        self._complete_ids(columns, first, faults)
        columns[PAYLOAD] = self._payloads(given[PAYLOAD], faults)
        columns[HEADERS] = _headers(given.get(HEADERS), count, faults)
        columns[DELIVER_AT] = self._moments(given.get(DELIVER_AT), count, faults)
        return columns

    def _complete_names(self, columns: dict[str, Any], faults: _Faults) -> None:
        for name, default in ((QUEUE, self._options.queue), (PARTITION, DEFAULT_PARTITION)):
            values = _or_default(columns[name], default)
            faults.note_where(values.is_null(), f"{name} is null")
            columns[name] = _shortened(values, limits.NAME_CHARS_MAX, name, default, faults)

    def _complete_ids(self, columns: dict[str, Any], first: int, faults: _Faults) -> None:
        given = columns[TRANSACTION_ID]
        usable = _shortened(
            _or_default(given, None), limits.TRANSACTION_ID_CHARS_MAX, TRANSACTION_ID, None, faults
        )
        columns[MADE_UP] = usable.is_null()
        columns[TRANSACTION_ID] = usable
        if usable.null_count:
            numbers = pa.array(np.arange(first, first + len(given))).cast(pa.string())
            made_up = pc.binary_join_element_wise(self._id_prefix, numbers, "")
            columns[TRANSACTION_ID] = pc.coalesce(usable, made_up)

    def _payloads(self, values: Any, faults: _Faults) -> Any:
        is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
        if not is_text or self._options.payload == "text":
            texts = json_texts(values)
        else:
            texts = pc.fill_null(_as_text(values, faults), "null")
            texts = _well_formed(texts, faults)
        limit = self._options.message_bytes_max
        is_too_large = pc.greater(pc.binary_length(texts), limit)
        faults.note_where(is_too_large, f"payload is larger than {limit} bytes")
        return texts

    def _moments(self, values: Any, count: int, faults: _Faults) -> Any:
        if values is None:
            return pa.nulls(count, _MOMENT)
        moments = values.cast(_MOMENT)
        faults.note_where(pc.greater(moments, self._latest), "deliver_at is more than a year ahead")
        return moments

    def _check_schemas(self, checked: Any, faults: _Faults) -> None:
        for queue, validate in self._validators.items():
            rows = pc.indices_nonzero(pc.fill_null(pc.equal(checked.column(QUEUE), queue), False))
            payloads = checked.column(PAYLOAD).take(rows).cast(pa.binary())
            for row, payload in zip(rows.to_pylist(), payloads.to_pylist(), strict=True):
                if row not in faults.by_row and (refusal := validate(payload)):
                    faults.note([row], refusal)

    def _reject(self, checked: Any, row: int, number: int, error: str) -> Reject:
        payload: str = checked.column(PAYLOAD)[row].as_py()
        if len(payload) > EXCERPT_CHARS:
            payload = msgspec.json.encode(payload[:EXCERPT_CHARS]).decode()
        return Reject(
            number,
            error,
            checked.column(QUEUE)[row].as_py(),
            checked.column(PARTITION)[row].as_py(),
            checked.column(TRANSACTION_ID)[row].as_py(),
            payload.encode(),
        )


def _readable(name: str, values: Any, faults: _Faults) -> Any:
    """Replace values that hold no proper text by nulls."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        broken = [row for row in range(len(values)) if not _is_valid(values.take(pa.array([row])))]
        faults.note(broken, f"{name} is not text in UTF-8")
        rows = np.arange(len(values))
        rows = pa.array(rows, mask=np.isin(rows, broken))
        return values.take(rows)
    return values


def _is_valid(values: Any) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _text_column(values: Any, count: int) -> Any:
    return pa.nulls(count, pa.string()) if values is None else values.cast(pa.string())


def _or_default(values: Any, default: str | None) -> Any:
    """Return a column in which what is missing or empty is the default."""
    if values.null_count == 0 and text_lengths(values).all():
        return values
    missing = pc.fill_null(pc.equal(values, ""), True)
    return _replaced(values, missing, default)


def _shortened(
    values: Any, length_max: int, name: str, default: str | None, faults: _Faults
) -> Any:
    """Note what cannot be stored as a name, and put the default in its place."""
    is_short = (text_lengths(values) <= length_max).all()  # in bytes, then also in characters
    if is_short and text_bytes(values).all():
        return values
    is_long = pc.fill_null(pc.greater(pc.utf8_length(values), length_max), False)
    has_nul = pc.fill_null(pc.match_substring(values, "\0"), False)
    faults.note_where(is_long, f"{name} is longer than {length_max} characters")
    faults.note_where(has_nul, f"{name} contains a NUL character")
    return _replaced(values, pc.or_(is_long, has_nul), default)


def _replaced(values: Any, mask: Any, default: str | None) -> Any:
    """Put a default where the mask says; most columns need none, and are not copied."""
    if not pc.any(mask).as_py():
        return values
    return pc.if_else(mask, pa.scalar(default, pa.string()), values)


def _as_text(values: Any, faults: _Faults) -> Any:
    if pa.types.is_string(values.type):
        return values
    return _readable(PAYLOAD, values.view(pa.string()), faults)


def _well_formed(texts: Any, faults: _Faults) -> Any:
    """Note what is no JSON, and put a string with its beginning in its place."""
    try:
        for payloads in byte_strings(texts):
            for payload in payloads:
                _parse(payload)
    except (ValueError, RecursionError):
        payloads = texts.cast(pa.binary()).to_pylist()
        return pa.array(
            [_checked_text(row, payload, faults) for row, payload in enumerate(payloads)],
            pa.string(),
        )
    return texts


def _checked_text(row: int, payload: bytes, faults: _Faults) -> str:
    text = payload.decode()
    try:
        _parse(payload)
    except (ValueError, RecursionError) as error:
        faults.note([row], f"payload is not JSON: {error}")
        return msgspec.json.encode(text[:EXCERPT_CHARS]).decode()
    return text


def _headers(values: Any, count: int, faults: _Faults) -> Any:
    """Spell headers as envelopes have them; null where there are none."""
    if values is None or not pa.types.is_map(values.type):
        return pa.nulls(count, pa.string())
    sizes = np.diff(values.offsets.to_numpy())
    if not sizes.any():
        return pa.nulls(count, pa.string())
    texts = json_objects(values.keys, values.items, values.offsets, HEADER_SEPARATOR.decode())
    texts = pc.if_else(pa.array(sizes > 0), texts, pa.scalar(None, pa.string()))
    is_large = pc.greater(pc.binary_length(texts), limits.HEADERS_BYTES_MAX)
    faults.note(
        np.flatnonzero(sizes > limits.HEADERS_MAX), f"more than {limits.HEADERS_MAX} headers"
    )
    faults.note_where(is_large, f"headers are larger than {limits.HEADERS_BYTES_MAX} bytes")
    return texts
