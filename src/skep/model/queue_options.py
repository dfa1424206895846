"""The options of a queue: what each means, its type and its default.

`QueueOptions` is what a queue has, `OptionChanges` what a caller wants changed. The descriptions
are those of the API document.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

AckMode: TypeAlias = Literal["cumulative", "individual"]
Overflow: TypeAlias = Literal["reject", "drop_oldest"]
Deferral: TypeAlias = Literal["asked", "always", "never"]

LeaseTime = Annotated[
    int, Meta(description="Seconds that a consumer holds what it popped, unless the poll says.")
]
MaxSize = Annotated[
    int,
    Meta(
        description="Messages that may wait for the slowest group; `overflow` says what happens "
        "beyond. 0: any number. Approximate by what arrives within 200 ms."
    ),
]
Ttl = Annotated[
    int,
    Meta(
        description="Seconds after which a message is not delivered any more; 0: never. Queen "
        "showed 3600 here and did not act on it."
    ),
]
RetryLimit = Annotated[
    int, Meta(description="Times that a message may fail before it becomes a dead letter.")
]
RetryDelay = Annotated[
    int, Meta(description="Milliseconds from the first failure to the next delivery; doubles.")
]
RetryDelayMax = Annotated[
    int, Meta(description="Milliseconds that the doubling retryDelay does not exceed.")
]
MaxDeliveries = Annotated[
    int,
    Meta(
        description="Deliveries without an outcome after which a message becomes a dead letter, "
        "because it may be what kills its consumers. 0: any number."
    ),
]
AckModeOption = Annotated[
    AckMode,
    Meta(
        description="`cumulative`: completing a message completes those before it in its "
        "partition. `individual`: each message is completed by itself."
    ),
]
DeadLetterQueue = Annotated[
    bool,
    Meta(
        description="Keep messages that were given up as dead letters. Only when this and "
        "`dlqAfterMaxRetries` are both false they are dropped."
    ),
]
DlqAfterMaxRetries = Annotated[
    bool, Meta(description="Keep messages whose retries are used up as dead letters; as above.")
]
Priority = Annotated[
    int, Meta(description="Queues of a higher priority go first in polls of a namespace or task.")
]
DelayedProcessing = Annotated[
    int, Meta(description="Seconds that every message waits before its first delivery.")
]
WindowBuffer = Annotated[
    int, Meta(description="Seconds that a partition must be quiet before it is delivered.")
]
RetentionSeconds = Annotated[
    int, Meta(description="Seconds after which messages may be deleted, read or not; 0: never.")
]
CompletedRetentionSeconds = Annotated[
    int, Meta(description="Seconds after which messages every group has read may be deleted.")
]
RetentionEnabled = Annotated[bool, Meta(description="Whether the two retentions are in force.")]
EncryptionEnabled = Annotated[
    bool, Meta(description="Encrypt the payloads at rest. Refused by a broker without a key.")
]
MaxWaitTimeSeconds = Annotated[
    int, Meta(description="Seconds after which an unclaimed message may be evicted.")
]
DedupWindowSeconds = Annotated[
    int, Meta(description="Seconds in which a transaction id is stored once; 0: no check.")
]
OverflowOption = Annotated[
    Overflow,
    Meta(
        description="What a push into a full queue does: `reject` answers 429 with Retry-After, "
        "`drop_oldest` makes room by deleting the oldest messages, read or not."
    ),
]
DeferralOption = Annotated[
    Deferral,
    Meta(
        description="Who gets a 202 when the broker has no room for a push or a batch of acks, "
        "which is then done as soon as there is: `asked` those who send `Prefer: respond-async`, "
        "`always` all, `never` none. Others wait, and get 429 in the end."
    ),
]
JsonSchema = Annotated[
    dict[str, Any] | None,
    Meta(
        description="JSON Schema that every payload must fulfil; null: any payload. References "
        "to other documents are refused, formats are checked."
    ),
]

ArchiveAfterSeconds = Annotated[
    int,
    Meta(
        description="Seconds after which `skep archive run` copies messages to the lake; those "
        "that every group has read then leave the log. 0: no archive."
    ),
]
ArchiveBeforeDelete = Annotated[
    bool,
    Meta(description="With an archive: nothing is deleted, by whatever rule, before it is there."),
]


class QueueOptions(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """All options of a queue, with their defaults."""

    lease_time: LeaseTime = 300
    max_size: MaxSize = 0
    ttl: Ttl = 0
    retry_limit: RetryLimit = 3
    retry_delay: RetryDelay = 1000
    dead_letter_queue: DeadLetterQueue = True
    dlq_after_max_retries: DlqAfterMaxRetries = True
    priority: Priority = 0
    delayed_processing: DelayedProcessing = 0
    window_buffer: WindowBuffer = 0
    retention_seconds: RetentionSeconds = 0
    completed_retention_seconds: CompletedRetentionSeconds = 0
    retention_enabled: RetentionEnabled = False
    encryption_enabled: EncryptionEnabled = False
    max_wait_time_seconds: MaxWaitTimeSeconds = 0
    dedup_window_seconds: DedupWindowSeconds = 3600
    max_deliveries: MaxDeliveries = 0
    retry_delay_max: RetryDelayMax = 300_000
    ack_mode: AckModeOption = "cumulative"
    overflow: OverflowOption = "reject"
    json_schema: JsonSchema = None
    archive_after_seconds: ArchiveAfterSeconds = 0
    archive_before_delete: ArchiveBeforeDelete = False
    deferral: DeferralOption = "asked"


class OptionChanges(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The options a caller sets. Null restores the default."""

    lease_time: LeaseTime | UnsetType | None = UNSET
    max_size: MaxSize | UnsetType | None = UNSET
    ttl: Ttl | UnsetType | None = UNSET
    retry_limit: RetryLimit | UnsetType | None = UNSET
    retry_delay: RetryDelay | UnsetType | None = UNSET
    dead_letter_queue: DeadLetterQueue | UnsetType | None = UNSET
    dlq_after_max_retries: DlqAfterMaxRetries | UnsetType | None = UNSET
    priority: Priority | UnsetType | None = UNSET
    delayed_processing: DelayedProcessing | UnsetType | None = UNSET
    window_buffer: WindowBuffer | UnsetType | None = UNSET
    retention_seconds: RetentionSeconds | UnsetType | None = UNSET
    completed_retention_seconds: CompletedRetentionSeconds | UnsetType | None = UNSET
    retention_enabled: RetentionEnabled | UnsetType | None = UNSET
    encryption_enabled: EncryptionEnabled | UnsetType | None = UNSET
    max_wait_time_seconds: MaxWaitTimeSeconds | UnsetType | None = UNSET
    dedup_window_seconds: DedupWindowSeconds | UnsetType | None = UNSET
    max_deliveries: MaxDeliveries | UnsetType | None = UNSET
    retry_delay_max: RetryDelayMax | UnsetType | None = UNSET
    ack_mode: AckModeOption | UnsetType | None = UNSET
    overflow: OverflowOption | UnsetType | None = UNSET
    json_schema: JsonSchema | UnsetType = UNSET
    archive_after_seconds: ArchiveAfterSeconds | UnsetType | None = UNSET
    archive_before_delete: ArchiveBeforeDelete | UnsetType | None = UNSET
    deferral: DeferralOption | UnsetType | None = UNSET
