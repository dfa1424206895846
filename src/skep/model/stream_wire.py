"""The shapes that the streams SDK sends to and expects from `/streams/v1`.

Queen spells these in snake case; the items to push and the ack inside a cycle are those of the
other routes and keep their camel case. Payloads and state values stay raw.
"""

import msgspec

from skep.model.wire import JSON_NULL, PushItem


class RegisterBody(msgspec.Struct, gc=False):
    """Body of `POST /streams/v1/queries`."""

    name: str
    source_queue: str
    config_hash: str
    sink_queue: str | None = None
    reset: bool = False


class StateOperation(msgspec.Struct, gc=False):
    """A change of one state row."""

    type: str
    key: str
    value: msgspec.Raw = JSON_NULL
    version: int | None = None
    """The version the row must have, as `state/get` told it; 0 if it must not exist."""


class CycleAck(msgspec.Struct, rename="camel", gc=False):
    """How far the source was processed.

    The last message is named as in an `AckItem`; its partition and group are those of the cycle.
    """

    transaction_id: str | None = None
    lease_id: str | None = None
    status: str | None = None
    error: str | None = None
    count: int = 1
    message_id: str | None = None
    id: str | None = None
    """The same as `messageId`: the name it has in a delivered message."""
    offset: int | None = None


class CycleBody(msgspec.Struct, gc=False):
    """Body of `POST /streams/v1/cycle`."""

    query_id: str
    partition_id: str
    consumer_group: str | None = None
    release_lease: bool = True
    release_delay_ms: int = 0
    """What is not acknowledged is served again after this time."""
    state_ops: list[StateOperation] | None = None
    push_items: list[PushItem] | None = None
    ack: CycleAck | None = None


class StateBody(msgspec.Struct, gc=False):
    """Body of `POST /streams/v1/state/get`."""

    query_id: str
    partition_id: str
    keys: list[str] | None = None
    key_prefix: str | None = None
    ripe_at_or_before: float | None = None


class Registered(msgspec.Struct, kw_only=True):
    """A query as it is registered, or why it is not."""

    success: bool
    query_id: str
    name: str
    config_hash: str | msgspec.UnsetType = msgspec.UNSET
    fresh: bool | msgspec.UnsetType = msgspec.UNSET
    reset: bool | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET


class CyclePush(msgspec.Struct, kw_only=True):
    """Where a pushed item is stored."""

    index: int
    transaction_id: str
    status: str
    message_id: str | None
    partition_id: str | None
    trace_id: str | None
    queue_name: str = msgspec.field(name="queueName")


class CycleAcked(msgspec.Struct, kw_only=True):
    """What became of the source."""

    success: bool
    count: int
    lease_released: bool
    dlq: bool


class CycleAnswer(msgspec.Struct, kw_only=True):
    """All of a cycle happened, or, without success, nothing."""

    success: bool
    query_id: str
    partition_id: str
    queue_name: str | None = msgspec.field(name="queueName", default=None)
    state_ops_applied: int = 0
    push_results: list[CyclePush] = []
    ack_result: CycleAcked | None = None
    replayed: bool | msgspec.UnsetType = msgspec.UNSET
    """The source was acknowledged up to there before; this cycle was done then."""
    error: str | msgspec.UnsetType = msgspec.UNSET


class StateRow(msgspec.Struct, kw_only=True):
    """One row of a shard's state."""

    key: str
    value: msgspec.Raw
    version: int
    updated_at: str


class StateAnswer(msgspec.Struct, kw_only=True):
    """The rows asked for, by key."""

    success: bool = True
    rows: list[StateRow]


class QueryInfo(msgspec.Struct, kw_only=True):
    """A registered query and the size of its state."""

    query_id: str
    name: str
    source_queue: str
    sink_queue: str | None
    config_hash: str
    created_at: str
    updated_at: str
    partitions: int
    state_rows: int
    state_bytes: int


class QueryPage(msgspec.Struct, kw_only=True):
    """Some of the registered queries, by name."""

    queries: list[QueryInfo]
    total: int
    limit: int
    offset: int
