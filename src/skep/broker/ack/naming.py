"""Which message an acknowledgment means: by its id, its offset or its transaction id."""

from skep.model.errors import BadRequest
from skep.model.ids import OFFSET_MAX, parse_address, parse_partition_uuid
from skep.model.wire import AckItem


def is_named(item: AckItem) -> bool:
    """Tell whether an item says which message it is about."""
    if item.message_id or item.id:
        return True
    has_name = item.transaction_id is not None or item.offset is not None
    return has_name and item.partition_id is not None


def named_message(item: AckItem) -> tuple[int, int | None]:
    """Return the partition id, and the offset unless only the transaction id tells the message.

    Raises:
        BadRequest: An id is malformed, or two contradict each other.
    """
    message_id = item.message_id or item.id
    if message_id:
        address = parse_address(message_id)
        if address is None or not address[0] or not address[1]:
            raise BadRequest(f"Message not found: {message_id!r} is not a message id")
        if item.partition_id and parse_partition_uuid(item.partition_id) != address[0]:
            place = f"{message_id!r} is not of partition {item.partition_id!r}"
            raise BadRequest(f"Message not found: {place}")
        return address
    if not is_named(item):
        raise BadRequest("an ack needs a messageId, or a partitionId and a transactionId or offset")
    partition_id = parse_partition_uuid(item.partition_id or "")
    if partition_id is None:
        raise BadRequest(f"Message not found: {item.partition_id!r} is not a partition id")
    if item.offset is not None and not 1 <= item.offset <= OFFSET_MAX:
        raise BadRequest(f"Message not found: {item.offset} is not an offset")
    return partition_id, item.offset


def named_partition(item: AckItem) -> int | None:
    """Return the partition id; None for a malformed one."""
    try:
        return named_message(item)[0]
    except BadRequest:
        return None
