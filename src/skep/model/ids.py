"""Wire ids are addresses: a UUID (version 8) that spells out where the thing lies.

    bits   48            4   12            2    62
          partition_hi  'v8' partition_lo  var  offset

60 bits of partition id and 62 bits of offset, so a message id can be looked up directly and
nothing is stored or indexed for it. A partition's own id is the address of its offset 0, which no
message has. Text is built by hand because a `uuid.UUID` object costs twenty times as much.
"""

import os
import secrets
import time
from functools import lru_cache
from typing import Final
from uuid import UUID

PARTITION_ID_MAX: Final = (1 << 60) - 1
OFFSET_LOW_BITS: Final = (1 << 48) - 1
"""The part of an offset that follows a message id's head."""
OFFSET_MAX: Final = (1 << 62) - 1

_VARIANTS: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""The digit of an RFC 9562 variant for each random digit."""

REMEMBERED_MAX: Final = 16_384
"""Ids whose spelling is remembered, about 2 MB: the same partitions come over and over."""


@lru_cache(REMEMBERED_MAX)
def message_id_prefix(partition_id: int) -> str:
    """Return the first 19 characters that all message ids of a partition share."""
    high, low = partition_id >> 12, partition_id & 0xFFF
    return f"{high >> 16:08x}-{high & 0xFFFF:04x}-8{low:03x}-"


def message_id_suffix(offset: int) -> str:
    """Return the last 17 characters of a message id, which depend on its offset alone."""
    return f"{0x8000 | (offset >> 48):04x}-{offset & 0xFFFF_FFFF_FFFF:012x}"


def message_id_head(partition_id: int, offset: int) -> bytes:
    """Return the first 24 characters of a message id, shared by its neighbours.

    They change every 2**48 offsets, which a partition reaches after nine years at a million
    messages a second; a run of messages can be rendered with one head and twelve digits each.
    """
    return f"{message_id_prefix(partition_id)}{0x8000 | (offset >> 48):04x}-".encode()


def message_id(partition_id: int, offset: int) -> str:
    """Spell the address of a message as a UUID."""
    return message_id_prefix(partition_id) + message_id_suffix(offset)


def partition_uuid(partition_id: int) -> str:
    """Spell the address of a partition as a UUID."""
    return message_id(partition_id, 0)


def parse_address(text: str) -> tuple[int, int] | None:
    """Return (partition id, offset) of a wire id, or None when it is no address of ours."""
    try:
        raw = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return None
    if len(raw) != 16:
        return None
    number = int.from_bytes(raw)
    if (number >> 76) & 0xF != 8 or (number >> 62) & 0b11 != 0b10:
        return None
    partition_id = (number >> 80) << 12 | (number >> 64) & 0xFFF
    return partition_id, number & OFFSET_MAX


@lru_cache(REMEMBERED_MAX)
def parse_partition_uuid(text: str) -> int | None:
    """Return the partition id of a wire partition id, or None when it is not one."""
    address = parse_address(text)
    return address[0] if address is not None and address[1] == 0 and address[0] > 0 else None


def queue_uuid(queue_id: int) -> str:
    """Spell a queue id as a UUID (version 8), apart from those of partitions by its first bits."""
    return f"ffffffff-ffff-8fff-8000-{queue_id:012x}"


def new_transaction_id() -> str:
    """Return a new UUID (version 7) of this moment as text."""
    at = f"{time.time_ns() // 1_000_000:012x}"
    bits = os.urandom(10).hex()
    # The first digit behind the third dash is 8, 9, a or b.
    variant = _VARIANTS[bits[18]]
    return f"{at[:8]}-{at[8:]}-7{bits[:3]}-{variant}{bits[3:6]}-{bits[6:18]}"


def time_ordered_uuid(milliseconds: int) -> UUID:
    """Return a new UUID (version 7) of a moment, given in milliseconds since 1970."""
    number = (milliseconds & (1 << 48) - 1) << 80 | secrets.randbits(74)
    low = number & (1 << 62) - 1
    high = number >> 62 & 0xFFF
    return UUID(int=number >> 80 << 80 | 7 << 76 | high << 64 | 0b10 << 62 | low)
