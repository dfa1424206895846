"""Acknowledgments as the bytes they are sent as. Pure.

Most messages are completed, many of one partition together. Then only their transaction ids differ,
and the rest of the text is put between them at once, which costs a third of encoding each.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec

from skep.client.settling import Verdict

_encode: Final = msgspec.json.Encoder().encode


class AckItem(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """An acknowledgment, as it is sent."""

    transaction_id: str
    partition_id: str
    status: str
    lease_id: str
    error: str | None = None


def ack_text(transaction_id: str, partition_id: str, lease_id: str, verdict: Verdict) -> bytes:
    """Say of one message what became of it."""
    return _encode(AckItem(transaction_id, partition_id, verdict.status, lease_id, verdict.error))


def completed_text(
    transaction_ids: Sequence[str], partition_ids: Sequence[str], lease_id: str
) -> bytes:
    """Say of many messages of one lease that they are done; commas stand between.

    Args:
        transaction_ids: At least one.
        partition_ids: The partition of each.
        lease_id: Of all.
    """
    if partition_ids.count(partition_ids[0]) == len(partition_ids):
        return _completed_in_partition(transaction_ids, partition_ids[0], lease_id)
    runs = groupby(zip(partition_ids, transaction_ids, strict=True), key=lambda pair: pair[0])
    return b",".join(
        _completed_in_partition([name for _, name in pairs], partition_id, lease_id)
        for partition_id, pairs in runs
    )


def _completed_in_partition(
    transaction_ids: Sequence[str], partition_id: str, lease_id: str
) -> bytes:
    rest = _encode(AckItem("", partition_id, "completed", lease_id)).decode()
    opening, closing = rest[: len(_OPENING)], rest[len(_OPENING) :]
    names = "".join(transaction_ids)
    # As long as before, but for its quotation marks: then nothing in them is spelled otherwise.
    if len(_encode(names)) != len(names) + 2:
        transaction_ids = [_encode(name)[1:-1].decode() for name in transaction_ids]
    return f"{opening}{f'{closing},{opening}'.join(transaction_ids)}{closing}".encode()


_OPENING: Final = '{"transactionId":"'


def ack_body(items: bytes, group: str) -> bytes:
    """Return the body of a request with these acknowledgments, all of one group."""
    return b'{"acknowledgments":[%b],"consumerGroup":%b}' % (items, _encode(group))
