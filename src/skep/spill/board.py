"""What all processes that share a spill directory know of it at every moment.

A small file that each of them maps. Reading it costs as much as reading a variable, so every push
can check whether its partition has to wait. `end` and everything that belongs to appending is
written under the append lock, `drained` and what belongs to draining by the process that drains.

Nothing here has to survive: the first process that opens the directory rebuilds it from the files.
"""

import mmap
import os
from pathlib import Path
from typing import Final

import xxhash

BUCKETS: Final = 16_384
"""Partitions share buckets. One that shares a bucket with a partition that waits, waits as well."""

_END, _DRAINED, _BASE, _CLOSING, _APPENDED, _TAKEN = range(6)
_FIRST_BUCKET: Final = 16
_BYTES: Final = 8 * (_FIRST_BUCKET + BUCKETS)

NO_FILE: Final = 2**64 - 1
"""The base while there is no file to append to."""


def bucket_of(partition: tuple[str, str]) -> int:
    """Return the bucket of a queue's partition; the same in every process."""
    return xxhash.xxh3_64_intdigest("\0".join(partition).encode()) % BUCKETS


class Board:
    """The numbers all processes share. Positions are those of the log."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_size < _BYTES:
                # Written, not only made longer: a page without a block would kill when it is used.
                os.pwrite(descriptor, bytes(_BYTES), 0)
            self._map: Final = mmap.mmap(descriptor, _BYTES)
        finally:
            os.close(descriptor)
        self._numbers: Final = memoryview(self._map).cast("Q")

    def close(self) -> None:
        """Unmap it."""
        self._numbers.release()
        self._map.close()

    def reset(self, *, position: int) -> None:
        """Forget everything: the log is empty and stands at this position."""
        self._map[:] = bytes(_BYTES)
        numbers = self._numbers
        numbers[_END] = numbers[_DRAINED] = position
        numbers[_BASE] = NO_FILE

    @property
    def has_backlog(self) -> bool:
        """Whether there is anything that PostgreSQL does not have yet."""
        return self._numbers[_END] != self._numbers[_DRAINED]

    def is_waiting(self, partition: tuple[str, str]) -> bool:
        """Whether the partition has records that are not drained."""
        numbers = self._numbers
        return numbers[_FIRST_BUCKET + bucket_of(partition)] > numbers[_DRAINED]

    @property
    def end(self) -> int:
        """Where the next record goes."""
        return self._numbers[_END]

    @property
    def drained(self) -> int:
        """PostgreSQL has every record before this position."""
        return self._numbers[_DRAINED]

    @property
    def base(self) -> int:
        """Where the file that is appended to begins; `NO_FILE` when the next one is to be made."""
        return self._numbers[_BASE]

    @base.setter
    def base(self, position: int) -> None:
        self._numbers[_BASE] = position

    @property
    def is_closing(self) -> bool:
        """The backlog is nearly drained: pushes that can wait a moment should not add to it."""
        return bool(self._numbers[_CLOSING])

    @is_closing.setter
    def is_closing(self, value: bool) -> None:
        self._numbers[_CLOSING] = int(value)

    @property
    def pending(self) -> int:
        """Messages on disk that PostgreSQL does not have."""
        if not self.has_backlog:
            return 0  # a process that died half way may have counted less
        return max(0, self._numbers[_APPENDED] - self._numbers[_TAKEN])

    @property
    def drained_messages(self) -> int:
        """Messages that went into PostgreSQL since the directory was opened."""
        return self._numbers[_TAKEN]

    def announce(self, partition: tuple[str, str], end: int) -> None:
        """Let pushes into a partition wait until the log is drained up to `end`."""
        self._numbers[_FIRST_BUCKET + bucket_of(partition)] = end

    def note_appended(self, count: int, end: int) -> None:
        """The log reaches up to `end`, by so many messages more."""
        self._numbers[_APPENDED] += count
        self._numbers[_END] = end

    def note_drained(self, count: int, position: int) -> None:
        """PostgreSQL has everything before the position."""
        self._numbers[_TAKEN] += count
        self._numbers[_DRAINED] = position
