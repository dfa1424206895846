"""The bodies of requests, as they are sent."""

from collections.abc import Sequence

import msgspec

from skep.client.items import Item


class PushBody(msgspec.Struct):
    """The body of a push."""

    items: Sequence[Item]


class PushOperation(msgspec.Struct, tag_field="type", tag="push"):
    """Items to store, as sent."""

    items: Sequence[Item]


class AckOperation(msgspec.Struct, tag_field="type", tag="ack", rename="camel", omit_defaults=True):
    """A message to acknowledge, as sent."""

    transaction_id: str
    partition_id: str
    status: str
    lease_id: str
    consumer_group: str
    error: str | None = None


class TransactionBody(msgspec.Struct, rename="camel"):
    """The body of a transaction."""

    operations: Sequence[PushOperation | AckOperation]
    required_leases: Sequence[str]
