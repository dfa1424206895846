"""The options of a queue: what each means, its type and its default.

`QueueOptions` is what a queue has, `OptionChanges` what a caller wants changed. The descriptions
are those of the API document.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

AckMode: TypeAlias = Literal["cumulative", "individual"]
Overflow: TypeAlias = Literal["reject", "drop_oldest"]
Deferral: TypeAlias = Literal["asked", "always", "never"]
LakeTable: TypeAlias = Literal["raw", "typed"]


class QueueOptions(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """All options of a queue, with their defaults."""

    lease_time: Annotated[
        int, Meta(description="Seconds that a consumer holds what it popped, unless the poll says.")
    ] = 300
    max_size: Annotated[
        int,
        Meta(
            description="Messages that may wait for the slowest group; `overflow` says what "
            "happens beyond. 0: any number. Approximate by what arrives within 200 ms."
        ),
    ] = 0
    ttl: Annotated[
        int,
        Meta(
            description="Seconds after which a message is not delivered any more; 0: never. Queen "
            "showed 3600 here and did not act on it."
        ),
    ] = 0
    retry_limit: Annotated[
        int, Meta(description="Times that a message may fail before it becomes a dead letter.")
    ] = 3
    retry_delay: Annotated[
        int,
        Meta(
            description="Milliseconds from the first failure to the next delivery, which double "
            "with each failure; 0: at once. Queen showed 1000 here and did not act on it."
        ),
    ] = 0
    dead_letter_queue: Annotated[
        bool,
        Meta(
            description="Keep messages that were given up as dead letters. Only when this and "
            "`dlqAfterMaxRetries` are both false they are dropped."
        ),
    ] = True
    dlq_after_max_retries: Annotated[
        bool, Meta(description="Keep messages whose retries are used up as dead letters; as above.")
    ] = True
    priority: Annotated[
        int,
        Meta(description="Queues of a higher priority go first in polls of a namespace or task."),
    ] = 0
    delayed_processing: Annotated[
        int, Meta(description="Seconds that every message waits before its first delivery.")
    ] = 0
    window_buffer: Annotated[
        int, Meta(description="Seconds that a partition must be quiet before it is delivered.")
    ] = 0
    retention_seconds: Annotated[
        int, Meta(description="Seconds after which messages may be deleted, read or not; 0: never.")
    ] = 0
    completed_retention_seconds: Annotated[
        int, Meta(description="Seconds after which messages every group has read may be deleted.")
    ] = 0
    retention_enabled: Annotated[
        bool, Meta(description="Whether the two retentions are in force.")
    ] = False
    encryption_enabled: Annotated[
        bool, Meta(description="Encrypt the payloads at rest. Refused by a broker without a key.")
    ] = False
    max_wait_time_seconds: Annotated[
        int, Meta(description="Seconds after which an unclaimed message may be evicted.")
    ] = 0
    dedup_window_seconds: Annotated[
        int, Meta(description="Seconds in which a transaction id is stored once; 0: no check.")
    ] = 3600
    max_deliveries: Annotated[
        int,
        Meta(
            description="Deliveries without an outcome after which a message becomes a dead "
            "letter, because it may be what kills its consumers. 0: any number."
        ),
    ] = 0
    retry_delay_max: Annotated[
        int, Meta(description="Milliseconds that the doubling retryDelay does not exceed.")
    ] = 300_000
    ack_mode: Annotated[
        AckMode,
        Meta(
            description="`cumulative`: completing a message completes those before it in its "
            "partition. `individual`: each message is completed by itself."
        ),
    ] = "cumulative"
    overflow: Annotated[
        Overflow,
        Meta(
            description="What a push into a full queue does: `reject` answers 429 with "
            "Retry-After, `drop_oldest` makes room by deleting the oldest messages, read or not."
        ),
    ] = "reject"
    json_schema: Annotated[
        dict[str, Any] | None,
        Meta(
            description="JSON Schema that every payload must fulfil; null: any payload. References "
            "to other documents are refused, formats are checked."
        ),
    ] = None
    archive_after_seconds: Annotated[
        int,
        Meta(
            description="Seconds after which `skep archive run` copies messages to the lake; those "
            "that every group has read then leave the log. 0: no archive."
        ),
    ] = 0
    archive_before_delete: Annotated[
        bool,
        Meta(
            description="With an archive: nothing is deleted, by whatever rule, before it is there."
        ),
    ] = False
    lake_table: Annotated[
        LakeTable,
        Meta(
            description="Where the archive puts messages: `raw` in the table of all queues, "
            "`typed` in a table of its own, with a column for each property of `jsonSchema`."
        ),
    ] = "raw"
    deferral: Annotated[
        Deferral,
        Meta(
            description="Who gets a 202 when the broker has no room for a push or a batch of acks, "
            "which is then done as soon as there is: `asked` those who send `Prefer: "
            "respond-async`, `always` all, `never` none. Others wait, and get 429 in the end."
        ),
    ] = "asked"
    strict: Annotated[
        bool,
        Meta(
            description="Refuse pushed items with unknown fields or without a payload. Otherwise "
            "the fields are ignored and the payload is null, as in Queen."
        ),
    ] = False


if TYPE_CHECKING:

    class OptionChanges(msgspec.Struct):
        """The options a caller sets. Null restores the default."""

else:
    OptionChanges = msgspec.defstruct(
        "OptionChanges",
        [
            # The JSON schema has a null of its own.
            (
                each.name,
                (each.type if each.default is None else each.type | None) | UnsetType,
                UNSET,
            )
            for each in msgspec.structs.fields(QueueOptions)
        ],
        namespace={"__doc__": "The options a caller sets. Null restores the default."},
        module=__name__,
        rename="camel",
        frozen=True,
        kw_only=True,
    )
