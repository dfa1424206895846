"""Every bound the wire has, with its reason. Settings may lower or raise the ones marked so."""

from typing import Final

NAME_CHARS_MAX: Final = 255
"""Queue, partition, group, namespace and task names: Queen's column width."""

TRANSACTION_ID_CHARS_MAX: Final = 255
"""Queen's column width; also keeps an envelope's fixed part small."""

ERROR_TEXT_CHARS_MAX: Final = 8_192
"""Error text kept with a dead letter; longer text is cut, not refused."""

PUSH_ITEMS_MAX: Final = 10_000
"""Items in one push request. More would hold a partition's flush for too long."""

ACK_ITEMS_MAX: Final = 10_000
"""Acknowledgments in one batch."""

POP_BATCH_MAX: Final = 10_000
"""Messages one pop may return; larger values are lowered to it, not refused."""

POP_PARTITIONS_MAX: Final = 1_000
"""Partitions one pop may claim; larger values are lowered to it."""

LEASE_SECONDS_MAX: Final = 86_400 * 7
"""A lease longer than a week is a mistake, and a stuck partition for its group."""

WAIT_MS_MAX: Final = 300_000
"""A long poll parks at most this long, so that dead peers are noticed."""

DISCOVERED_QUEUES_MAX: Final = 1_000
"""Queues one poll by namespace or task looks at; those of lower priority beyond are not reached."""
TRACE_NAMES_MAX: Final = 100
"""Names one trace may be filed under; each is a row and a lock."""

PAGE_ROWS_MAX: Final = 1_000
"""Rows of one page of any list."""
TRANSACTION_OPERATIONS_MAX: Final = 10_000
"""Pushes and acks in one transaction, which holds its partitions until all of them are done."""

REQUIRED_LEASES_MAX: Final = 1_000
"""Leases one transaction may depend on; each is looked up."""

STREAM_STATE_OPERATIONS_MAX: Final = 10_000
"""State operations in one cycle."""

STREAM_STATE_KEY_CHARS_MAX: Final = 1_024
"""A state key is a window's tag and time and a user's key; it is also part of an index."""

STREAM_STATE_VALUE_BYTES_MAX: Final = 1 << 20
"""One state row. An accumulator that grows without end is a mistake in the pipeline."""

STREAM_SHARD_BYTES_MAX: Final = 64 << 20
"""All state of a query for one partition: the client loads it whole with every cycle."""
JSON_SCHEMA_BYTES_MAX: Final = 65_536
"""A queue's JSON Schema; it travels with the queue's options and is compiled by every worker."""

SCHEDULE_SECONDS_MAX: Final = 86_400 * 366
"""A message may wait for its time for a year; what is meant for later belongs into a calendar."""

HEADERS_MAX: Final = 64
HEADERS_BYTES_MAX: Final = 8 * 1024
TTL_SECONDS_MAX: Final = 10 * 366 * 24 * 3600

PIPELINE_SILENT_S: Final = 15.0
"""A pipeline whose runner has not reported for so long is taken for dead."""
