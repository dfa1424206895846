"""A directory of spill files: one log, appended to by many processes and drained by one.

    <base>.spill     records from the position `base` on (hexadecimal, so names sort)
    board            numbers that all processes share (see `board`)
    members.lock     share-locked by every process that uses the directory
    append.lock      held while records are added, or the directory is opened
    drain.lock       held by the process that drains
    rejected/        what could not be drained, with the reason beside it

One log for all worker processes, and not one each, because order is promised across them: a client
that gets its answer from one worker may send its next message to another.

Promises: `append` returns after the records are in the file; they are durable after `sync`. What
was not appended whole is never read: the board says how far the log reaches, and a process that
dies while it writes leaves bytes beyond that, which the next writer cuts. After a crash of all
processes the torn end of the last file is cut when the directory is opened.

Everything here blocks; it runs in threads.
"""

import fcntl
import logging
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, NamedTuple
from uuid import UUID, uuid4

from skep.model.errors import Unavailable
from skep.spill.board import NO_FILE, Board
from skep.spill.records import (
    FILE_HEAD_BYTES,
    Damaged,
    FileHead,
    Found,
    Piece,
    SpillRecord,
    decode_file_head,
    encode_body,
    encode_file_head,
    frame,
    scan,
)

_log = logging.getLogger(__name__)

FILE_BYTES: Final = 64 << 20
"""A file that has reached this is not appended to any more."""


class SpillRefused(Unavailable):
    """PostgreSQL is away, and the message cannot be kept on disk either."""

    code: ClassVar[str] = "spill_refused"


class Portion(NamedTuple):
    """Consecutive pieces of one file."""

    file_id: UUID
    start: int
    end: int
    pieces: list[Piece]


class SpillFile(NamedTuple):
    """A file of the log, and where in the log it ends."""

    path: Path
    head: FileHead
    end: int


class SpillLog:
    """The spill directory as one process sees it; made, readable by this user only, if needed."""

    def __init__(self, directory: Path, *, bytes_max: int, file_bytes: int = FILE_BYTES) -> None:
        self.directory: Final = directory
        self._bytes_max: Final = bytes_max
        self._file_bytes: Final = file_bytes
        self._rejected: Final = directory / "rejected"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._rejected.mkdir(exist_ok=True, mode=0o700)
        self._append_lock: Final = _open_lock(directory / "append.lock")
        self._drain_lock: Final = _open_lock(directory / "drain.lock")
        self._members: Final = _open_lock(directory / "members.lock")
        self.board: Final = Board(directory / "board")
        self._active: tuple[SpillFile, int] | None = None
        with self._appending():
            if _try_lock(self._members):
                self._recover()
            fcntl.flock(self._members, fcntl.LOCK_SH)

    def close(self) -> None:
        """Release the directory."""
        self._leave_active()
        self.board.close()
        for lock in (self._append_lock, self._drain_lock, self._members):
            os.close(lock)

    def append(self, records: Sequence[SpillRecord]) -> None:
        """Add records to the end of the log, all of them or none."""
        bodies = [encode_body(record) for record in records]
        with self._appending():
            board = self.board
            start = board.end
            if start - board.drained + sum(map(len, bodies)) > self._bytes_max:
                raise SpillRefused("the spill is full: spill_bytes_max is reached")
            try:
                file, descriptor = self._file_to_append(start)
                framed = [frame(body, file.head.file_id) for body in bodies]
                end = start
                for record, text in zip(records, framed, strict=True):
                    end += len(text)
                    board.announce(record.address, end)
                _write(descriptor, b"".join(framed), start - file.head.base + FILE_HEAD_BYTES)
            except OSError as error:
                raise SpillRefused(f"cannot write the spill: {error}") from error
            board.note_appended(len(records), end)

    def sync(self) -> None:
        """Return when everything this process appended is durable.

        Raises:
            SpillRefused: It may not be; the file is not appended to any more.
        """
        if self._active is None:
            return
        file, descriptor = self._active
        try:
            os.fsync(descriptor)
        except OSError as error:
            with self._appending():
                if self.board.base == file.head.base:
                    self.board.base = NO_FILE
            raise SpillRefused(f"cannot sync the spill: {error}") from error

    def try_lock_for_drain(self) -> bool:
        """Become the process that drains, unless another one is."""
        return _try_lock(self._drain_lock)

    def unlock_for_drain(self) -> None:
        """Let another process drain."""
        fcntl.flock(self._drain_lock, fcntl.LOCK_UN)

    def files(self) -> list[SpillFile]:
        """Return the files of the log in order."""
        found: list[SpillFile] = []
        limit = NO_FILE
        for path in sorted(self.directory.glob("*.spill"), reverse=True):
            with suppress(FileNotFoundError):
                size = path.stat().st_size
                head = decode_file_head(_read_at(path, 0, FILE_HEAD_BYTES))
                if head is None:
                    self._put_away(path)
                    continue
                # A writer that died may have left bytes where the next file begins.
                end = min(head.base + size - FILE_HEAD_BYTES, limit)
                found.append(SpillFile(path, head, end))
                limit = head.base
        return found[::-1]

    def read(self, position: int, end: int, *, bytes_max: int) -> Portion | None:
        """Return about `bytes_max` bytes of the log from `position` to `end`; None if it is empty.

        A record that is larger is returned whole.
        """
        for file in self.files():
            start, stop = max(position, file.head.base), min(file.end, end)
            if start < stop:
                return self._read_file(file, start, stop, bytes_max)
        return None

    def read_raw(self, start: int, end: int) -> bytes:
        """Return the bytes between two positions of one file."""
        for file in self.files():
            if file.head.base <= start < file.end:
                return _read_at(file.path, FILE_HEAD_BYTES + start - file.head.base, end - start)
        return b""

    def remove_drained(self) -> list[UUID]:
        """Delete the files PostgreSQL has whole, and return their ids."""
        removed: list[UUID] = []
        with self._appending():
            for file in self.files():
                if file.end > self.board.drained:
                    break
                if file.head.base == self.board.base:
                    self.board.base = NO_FILE
                file.path.unlink()
                removed.append(file.head.file_id)
        return removed

    def set_aside(self, file_id: UUID, position: int, data: bytes, reason: str) -> Path:
        """Keep bytes that cannot be drained, and why, for an operator."""
        path = self._rejected / f"{file_id}-{position:016x}.rejected"
        path.write_bytes(data)
        path.with_suffix(".reason").write_text(reason + "\n")
        _sync_directory(self._rejected)
        return path

    def rejected(self) -> tuple[int, int]:
        """Return how many rejected files there are, and their bytes."""
        sizes = [path.stat().st_size for path in self._rejected.glob("*.rejected")]
        return len(sizes), sum(sizes)

    @contextmanager
    def _appending(self) -> Generator[None]:
        fcntl.flock(self._append_lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._append_lock, fcntl.LOCK_UN)

    def _recover(self) -> None:
        """Rebuild the board from the files; no other process uses the directory."""
        files = self.files()
        board = self.board
        board.reset(position=files[0].head.base if files else 0)
        for number, file in enumerate(files, start=1):
            pieces = _pieces(file)
            if number == len(files) and pieces and isinstance(pieces[-1], Damaged):
                torn = pieces.pop()
                _log.warning("cut %d torn bytes of %s", torn.end - torn.start, file.path)
                os.truncate(file.path, FILE_HEAD_BYTES + torn.start)
            self._learn(file, pieces)
        if board.has_backlog:
            _log.warning("%d spilled messages in %s to drain", board.pending, self.directory)

    def _learn(self, file: SpillFile, pieces: Iterable[Piece]) -> None:
        end, count = file.head.base, 0
        for piece in pieces:
            end = file.head.base + piece.end
            if isinstance(piece, Found):
                count += 1
                self.board.announce(piece.record.address, end)
        self.board.note_appended(count, end)

    def _file_to_append(self, position: int) -> tuple[SpillFile, int]:
        """Return the file to add to, with nothing in it beyond the position."""
        base = self.board.base
        if base == NO_FILE or position - base >= self._file_bytes:
            self._leave_active()
            self._active = self._make_file(position)
            self.board.base = position
            return self._active
        active = self._active
        if active is None or not _is_same_file(active, base):
            self._leave_active()
            active = self._active = self._open_file(base)
        size = FILE_HEAD_BYTES + position - base
        if os.fstat(active[1]).st_size > size:
            os.ftruncate(active[1], size)
        return active

    def _make_file(self, base: int) -> tuple[SpillFile, int]:
        path = self._path_of(base)
        file = SpillFile(path, FileHead(uuid4(), base), base)
        unfinished = path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _write(descriptor, encode_file_head(file.head), 0)
            os.fsync(descriptor)
            unfinished.rename(path)
            _sync_directory(self.directory)
        except BaseException:
            os.close(descriptor)
            raise
        return file, descriptor

    def _open_file(self, base: int) -> tuple[SpillFile, int]:
        path = self._path_of(base)
        descriptor = os.open(path, os.O_RDWR)
        head = decode_file_head(os.pread(descriptor, FILE_HEAD_BYTES, 0))
        if head is None:
            os.close(descriptor)
            raise OSError(f"{path} is damaged")
        return SpillFile(path, head, base), descriptor

    def _leave_active(self) -> None:
        if self._active is not None:
            # No later sync covers what this process wrote to it.
            with suppress(OSError):
                os.fsync(self._active[1])
            os.close(self._active[1])
            self._active = None

    def _path_of(self, base: int) -> Path:
        return self.directory / f"{base:016x}.spill"

    def _read_file(self, file: SpillFile, start: int, stop: int, bytes_max: int) -> Portion:
        base, size = file.head.base, bytes_max
        while True:
            is_all = start + size >= stop
            data = _read_at(file.path, FILE_HEAD_BYTES + start - base, min(size, stop - start))
            pieces = scan(data, file.head.file_id, is_all=is_all)
            if pieces or is_all:
                end = start + pieces[-1].end if pieces else stop
                return Portion(file.head.file_id, start, end, pieces)
            size *= 2

    def _put_away(self, path: Path) -> None:
        """Move a file with a damaged head, which cannot be drained, to the rejected ones."""
        target = self._rejected / f"{path.name}.rejected"
        _log.error("%s is not a spill file; moved it to %s", path, target)
        path.rename(target)


def _pieces(file: SpillFile) -> list[Piece]:
    data = _read_at(file.path, FILE_HEAD_BYTES, file.end - file.head.base)
    return scan(data, file.head.file_id, is_all=True)


def _is_same_file(active: tuple[SpillFile, int], base: int) -> bool:
    """Whether an open file is the one that begins there, and not one that was deleted since."""
    return active[0].head.base == base and os.fstat(active[1]).st_nlink > 0


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_at(path: Path, position: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read(size)


def _write(descriptor: int, data: bytes, position: int) -> None:
    """Write all of it, or leave the file as long as it was."""
    view = memoryview(data)
    try:
        while view:
            written = os.pwrite(descriptor, view, position + len(data) - len(view))
            view = view[written:]
    except OSError:
        os.ftruncate(descriptor, position)
        raise


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
