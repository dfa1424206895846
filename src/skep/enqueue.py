"""Enqueue messages inside a transaction of your own: they exist if and only if it commits.

    async with connection.transaction():
        await connection.execute("insert into orders ...")
        await enqueue.stage(connection, "orders", {"id": 7}, partition="eu")

`stage` takes no lock: the messages enter the log after the commit, within some milliseconds while
a broker runs. `push` enters them at once and holds their partitions until the transaction ends, so
call it last. Each takes one message and has a variant for many (`stage_many`, `push_many`), and all
have a synchronous variant (`stage_sync` and so on).

The connection is one of asyncpg, psycopg 3, SQLAlchemy 2 or Django; see `skep.db.access.foreign`.
Payloads are values that msgspec encodes; a `msgspec.Raw` is JSON that is encoded already.
`schema` is the one that the installation lives in, where that is not called `skep`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict, Unpack
from uuid import UUID

import msgspec

from skep.db.access.foreign import join
from skep.model.envelopes import Header, check_headers, checked_trace_id
from skep.model.errors import BadRequest
from skep.model.limits import TRANSACTION_ID_CHARS_MAX
from skep.model.names import check_name, check_optional_name, refuse_transaction_id
from skep.model.schema_name import DEFAULT_SCHEMA, schema_named

__all__ = [
    "Message",
    "PushOptions",
    "StageOptions",
    "push",
    "push_many",
    "push_many_sync",
    "push_sync",
    "stage",
    "stage_many",
    "stage_many_sync",
    "stage_sync",
]

_PUSH: Final = (
    "select id::text from unnest(skep.push_messages("
    "$1::text[], $2::text[], $3::text[], $4::text[], $5::text[]::jsonb[], $6::text[]::uuid[], "
    "$7::double precision[])) with ordinality m(id, item) order by item"
)
_STAGE: Final = (
    "select name from unnest(skep.stage_messages("
    "$1::text[], $2::text[], $3::text[], $4::text[], $5::text[]::jsonb[], $6::text[]::uuid[], "
    "$8::timestamptz[], $7::double precision[])) with ordinality m(name, item) order by item"
)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message to enqueue."""

    queue: str
    """Created when it does not exist."""
    payload: Any
    partition: str | None = None
    """None: `Default`."""
    transaction_id: str | None = None
    """Idempotency key: a repeated one is stored once. None: a new id."""
    headers: Mapping[str, Header] | None = None
    trace_id: str | UUID | None = None
    ttl_s: float | None = None
    """Expire after so many seconds."""
    deliver_at: datetime | None = None
    """Not before then; it must have a time zone. Only for messages that are staged."""


class PushOptions(TypedDict, total=False):
    """The members of `Message` that may be left out."""

    partition: str | None
    transaction_id: str | None
    headers: Mapping[str, Header] | None
    trace_id: str | UUID | None
    ttl_s: float | None


class StageOptions(PushOptions, total=False):
    """The members of a staged `Message` that may be left out."""

    deliver_at: datetime | None


async def stage(
    connection: Any,
    queue: str,
    payload: Any,
    *,
    schema: str = DEFAULT_SCHEMA,
    **options: Unpack[StageOptions],
) -> str:
    """Stage a message; return its transaction id. `Message` has the options.

    Raises:
        BadRequest: The message cannot be stored, or no transaction is open.
        Exception: Any error of the driver.
    """
    message = Message(queue=queue, payload=payload, **options)
    return (await stage_many(connection, [message], schema=schema))[0]


async def stage_many(
    connection: Any, messages: Sequence[Message], *, schema: str = DEFAULT_SCHEMA
) -> list[str]:
    """Stage messages in one call; return their transaction ids. Raises as `stage` does."""
    rows = await join(connection, schema_named(schema)).fetch(_STAGE, *_stage_columns(messages))
    return [row[0] for row in rows]


def stage_sync(
    connection: Any,
    queue: str,
    payload: Any,
    *,
    schema: str = DEFAULT_SCHEMA,
    **options: Unpack[StageOptions],
) -> str:
    """Stage a message on a synchronous connection, as `stage` does."""
    message = Message(queue=queue, payload=payload, **options)
    return stage_many_sync(connection, [message], schema=schema)[0]


def stage_many_sync(
    connection: Any, messages: Sequence[Message], *, schema: str = DEFAULT_SCHEMA
) -> list[str]:
    """Stage messages on a synchronous connection, as `stage_many` does."""
    rows = join(connection, schema_named(schema)).fetch_sync(_STAGE, *_stage_columns(messages))
    return [row[0] for row in rows]


async def push(
    connection: Any,
    queue: str,
    payload: Any,
    *,
    schema: str = DEFAULT_SCHEMA,
    **options: Unpack[PushOptions],
) -> str:
    """Push a message; return its id, or that of the message which it repeats.

    Raises:
        BadRequest: The message cannot be stored, or no transaction is open.
        Refused: The queue encrypts, validates or limits its messages; stage them.
        Exception: Any error of the driver.
    """
    message = Message(queue=queue, payload=payload, **options)
    return (await push_many(connection, [message], schema=schema))[0]


async def push_many(
    connection: Any, messages: Sequence[Message], *, schema: str = DEFAULT_SCHEMA
) -> list[str]:
    """Push messages in one call; return their ids. Raises as `push` does."""
    rows = await join(connection, schema_named(schema)).fetch(_PUSH, *_push_columns(messages))
    return [row[0] for row in rows]


def push_sync(
    connection: Any,
    queue: str,
    payload: Any,
    *,
    schema: str = DEFAULT_SCHEMA,
    **options: Unpack[PushOptions],
) -> str:
    """Push a message on a synchronous connection, as `push` does."""
    message = Message(queue=queue, payload=payload, **options)
    return push_many_sync(connection, [message], schema=schema)[0]


def push_many_sync(
    connection: Any, messages: Sequence[Message], *, schema: str = DEFAULT_SCHEMA
) -> list[str]:
    """Push messages on a synchronous connection, as `push_many` does."""
    rows = join(connection, schema_named(schema)).fetch_sync(_PUSH, *_push_columns(messages))
    return [row[0] for row in rows]


def _columns(messages: Sequence[Message]) -> tuple[list[Any], ...]:
    """Return the first seven arguments of both functions."""
    for message in messages:
        _check(message)
    return (
        [message.queue for message in messages],
        [message.partition for message in messages],
        [_json(message.payload) for message in messages],
        [message.transaction_id for message in messages],
        [_json(dict(message.headers)) if message.headers else None for message in messages],
        [checked_trace_id(str(message.trace_id or "")) for message in messages],
        [None if message.ttl_s is None else float(message.ttl_s) for message in messages],
    )


def _check(message: Message) -> None:
    check_name("queue", message.queue)
    check_optional_name("partition", message.partition)
    check_headers(message.headers)
    name = message.transaction_id or ""
    if len(name) > TRANSACTION_ID_CHARS_MAX or "\0" in name:
        refuse_transaction_id(name)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"a payload or header cannot be written as JSON: {error}") from error


def _stage_columns(messages: Sequence[Message]) -> tuple[list[Any], ...]:
    for message in messages:
        if message.deliver_at is not None and message.deliver_at.tzinfo is None:
            raise BadRequest(f"deliver_at {message.deliver_at} has no time zone: add one")
    return (*_columns(messages), [message.deliver_at for message in messages])


def _push_columns(messages: Sequence[Message]) -> tuple[list[Any], ...]:
    if any(message.deliver_at is not None for message in messages):
        raise BadRequest("a message with deliver_at cannot be pushed: stage it")
    return _columns(messages)
