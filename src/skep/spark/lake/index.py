"""The segments of the lake in the order of their addresses, for readers that take some at a time.

The log can be asked where a micro-batch of so many messages ends; the lake has to be looked at.
Files are looked at in the order of their transactions, only at the columns of the address, and
only until enough was found. A segment lies in one file; it is handed on when no later file can hold
an earlier one.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from skep.spark.lake.lake import LakeFile
from skep.spark.lake.read import Choice, segments_of, wanted_rows
from skep.spark.lake.storage import Storage
from skep.spark.source.log import Size
from skep.spark.source.positions import Address

LAST_OF_TRANSACTION: Final = 2**63 - 1


class IndexedSegment(NamedTuple):
    """A segment of the lake: where it lay, how many messages of it there are, about how large."""

    address: Address
    messages: int
    bytes: int

    def size(self) -> Size:
        """Return it as a portion of one segment."""
        return Size(self.address, 1, self.messages, self.bytes)


def segments_in_order(
    storage: Storage, files: Sequence[LakeFile], choice: Choice
) -> Iterator[IndexedSegment]:
    """Yield the wanted segments of files, in the order of addresses.

    Args:
        storage: Where the files lie.
        files: In the order of their first transactions.
        choice: What is wanted.
    """
    waiting: list[IndexedSegment] = []
    for number, file in enumerate(files):
        for segment in _segments(storage, file, choice):
            heapq.heappush(waiting, segment)
        bound = files[number + 1].xid_min if number + 1 < len(files) else None
        while waiting and (bound is None or waiting[0].address.xid < bound):
            yield heapq.heappop(waiting)


def _segments(storage: Storage, file: LakeFile, choice: Choice) -> list[IndexedSegment]:
    counts: Counter[Address] = Counter()
    for rows in wanted_rows(storage, [file.address], choice, ()):
        counts.update(dict(segments_of(rows)))
    message_bytes = file.bytes // max(file.messages, 1) + 1
    return [IndexedSegment(address, n, n * message_bytes) for address, n in counts.items()]


def whole_size(files: Sequence[LakeFile], choice: Choice) -> Size:
    """Return about how much files hold, without looking at them."""
    last_xid = min(max(file.xid_max for file in files), choice.span.upto.xmax - 1)
    return Size(
        Address(last_xid, LAST_OF_TRANSACTION, LAST_OF_TRANSACTION),
        len(files),
        sum(file.messages for file in files),
        sum(file.bytes for file in files),
    )
