"""A push of many lines: items made of lines, sent batch by batch, counted exactly.

The transaction ids of a file are made of its content and the line number: the same file yields the
same messages however often it is pushed, another file yields others, and equal lines stay apart.

One request at a time keeps the order of lines within their partitions. A broker that is unreachable
or full is waited for, and a request whose answer was lost is repeated: its items keep their
transaction ids, so nothing is stored twice. A request that is refused as a whole is halved until
the refused item is found; the others are stored.
"""

import hashlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import typer

from skep.cli.shared.output import Format, print_record, progress_bar
from skep.client import Item, PushCounts, PushResults, Stopped
from skep.client.pushes import Headers
from skep.model.errors import BadRequest, Overloaded, Refused, SkepError, Unavailable
from skep.model.plurals import counted

if TYPE_CHECKING:
    from skep.client import Client

STDIN: Final = "-"
REQUEST_BYTES_MAX: Final = 4 << 20
PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 2.0
_DIGEST_BYTES: Final = 12
_READ_BYTES: Final = 1 << 20

_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode
_decode: Final = msgspec.json.Decoder().decode


class Line(NamedTuple):
    """One line as it was read."""

    number: int
    text: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPattern:
    """What all items of a push have in common, and what they take from their payloads."""

    queue: str
    partition: str | None = None
    partition_key: str | None = None
    """The payload field that names the partition; `a.b` is field b of field a."""
    id_prefix: str | None = None
    """The prefix of transaction ids; the line number follows."""
    id_field: str | None = None
    """The payload field that is the transaction id."""
    headers: Headers | None = None
    delay_s: float | None = None
    ttl_s: float | None = None
    is_text: bool = False
    """Whether lines are plain text rather than JSON."""

    def make(self, line: Line) -> Item:
        """Return the item of a line.

        Raises:
            BadRequest: The line is not JSON, or lacks a field.
        """
        raw = msgspec.json.encode(line.text.decode()) if self.is_text else line.text
        partition, transaction_id = self.partition, None
        try:
            if self.partition_key is None and self.id_field is None:
                _check_json(raw)
            else:
                payload = _decode(raw)
                if self.partition_key is not None:
                    partition = _field(payload, self.partition_key)
                if self.id_field is not None:
                    transaction_id = _field(payload, self.id_field)
        except msgspec.DecodeError as error:
            raise BadRequest(f"not JSON: {error}") from None
        if self.id_prefix is not None:
            transaction_id = f"{self.id_prefix}-{line.number}"
        return Item(
            self.queue,
            msgspec.Raw(raw),
            partition,
            transaction_id,
            headers=self.headers,
            ttl_seconds=self.ttl_s,
            delay_seconds=self.delay_s,
        )


def _field(payload: Any, path: str) -> str:
    value: Any = payload
    for name in path.split("."):
        value = value.get(name) if hasattr(value, "get") else None
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise BadRequest(f"field {path} is not text or a number")
    return str(value)


@dataclass(slots=True)
class Batch:
    """Lines of one request, and those that cannot be pushed."""

    lines: list[Line] = field(default_factory=list[Line])
    items: list[Item] = field(default_factory=list[Item])
    refused: list[tuple[Line, str]] = field(default_factory=list[tuple[Line, str]])
    """With the reason."""
    size: int = 0
    """Bytes read for it, blank lines included."""

    def add(self, line: Line, pattern: ItemPattern) -> None:
        """Make the item of a line."""
        try:
            item = pattern.make(line)
        except BadRequest as error:
            self.refused.append((line, error.message))
        else:
            self.lines.append(line)
            self.items.append(item)


def batches_of(lines: Iterable[bytes], pattern: ItemPattern, count_max: int) -> Iterator[Batch]:
    """Gather lines for requests of at most so many items; blank lines are skipped."""
    batch = Batch()
    for number, read in enumerate(lines, 1):
        batch.size += len(read)
        text = read.strip()
        if text:
            batch.add(Line(number, text), pattern)
        if len(batch.items) >= count_max or batch.size >= REQUEST_BYTES_MAX:
            yield batch
            batch = Batch()
    if batch.size:
        yield batch


OnReject: TypeAlias = Callable[[Line, str], None]
OnProgress: TypeAlias = Callable[[Batch], None]
OnWait: TypeAlias = Callable[[str], None]
"""Called with the reason of a pause."""


class Patience:
    """Growing pauses between tries, until nothing has worked for too long."""

    def __init__(
        self, give_up_s: float, *, on_wait: OnWait, clock: Callable[[], float] = monotonic
    ) -> None:
        self._give_up_s: Final = give_up_s
        self._on_wait: Final = on_wait
        self._clock: Final = clock
        self._stop: Final = Event()
        self._since: float | None = None
        self._pause_s = PAUSE_S_MIN

    def end(self) -> None:
        """End a pause, and all later ones."""
        self._stop.set()

    def succeed(self) -> None:
        """Start over: a try worked."""
        self._since, self._pause_s = None, PAUSE_S_MIN

    def wait(self, error: SkepError) -> None:
        """Pause because of an error.

        Raises:
            SkepError: The error itself, when nothing has worked for too long.
            Stopped: `end` was called.
        """
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._give_up_s:
            raise error
        self._on_wait(error.message)
        asked_s = float(error.retry_after_s) if isinstance(error, Overloaded) else 0.0
        if self._stop.wait(max(self._pause_s, asked_s)):
            raise Stopped
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)


class Upload:
    """Sends batches to a broker, and counts the outcomes of their items."""

    def __init__(
        self,
        push: Callable[[list[Item]], PushResults],
        patience: Patience,
        *,
        on_reject: OnReject,
        on_progress: OnProgress,
    ) -> None:
        self._push: Final = push
        self._patience: Final = patience
        self._on_reject: Final = on_reject
        self._on_progress: Final = on_progress
        self.counts: Final = PushCounts()
        """Outcomes so far; lines that are not JSON have failed."""

    def run(self, batches: Iterable[Batch]) -> None:
        """Push all batches. The next one is made while one is being sent."""
        with ThreadPoolExecutor(1, "upload") as sender:
            in_flight: Future[None] | None = None
            try:
                for batch in batches:
                    if in_flight is not None:
                        in_flight.result()
                    in_flight = sender.submit(self._send, batch)
                if in_flight is not None:
                    in_flight.result()
            except BaseException:
                self._patience.end()  # the executor waits for its thread
                raise

    def _send(self, batch: Batch) -> None:
        for line, reason in batch.refused:
            self._reject(line, reason)
        if batch.items:
            self._store(batch.lines, batch.items)
        self._on_progress(batch)

    def _store(self, lines: list[Line], items: list[Item]) -> None:
        try:
            results = self._push_patiently(items)
        except (BadRequest, Refused) as error:
            if len(items) == 1:
                self._reject(lines[0], error.message)
                return
            half = len(items) // 2
            self._store(lines[:half], items[:half])
            self._store(lines[half:], items[half:])
            return
        counts = results.counts
        if counts.failed:
            for line, result in zip(lines, results, strict=True):
                if not result.is_stored:
                    self._reject(line, result.error or "refused")
            counts.failed = 0
        self.counts.add(counts)

    def _push_patiently(self, items: list[Item]) -> PushResults:
        while True:
            try:
                results = self._push(items)
            except (Unavailable, Overloaded) as error:
                self._patience.wait(error)
            else:
                self._patience.succeed()
                return results

    def _reject(self, line: Line, reason: str) -> None:
        self.counts.failed += 1
        self._on_reject(line, reason)


class PushBar:
    """The progress of a push in the terminal."""

    def __init__(self, progress: Any, title: str, size: int | None) -> None:
        self._progress: Final = progress
        self._task: Final = progress.add_task(title, total=size, lines=0, said="")

    def advance(self, batch: Batch) -> None:
        """Count a batch that was sent."""
        task = self._progress.tasks[self._task]
        lines = task.fields["lines"] + len(batch.lines) + len(batch.refused)
        rate = lines / max(task.elapsed or 0, 0.001)
        self._progress.update(
            self._task,
            advance=batch.size,
            lines=lines,
            said=f"{counted(lines, 'line')}, {rate:,.0f}/s",
        )

    def wait(self, reason: str) -> None:
        """Show why the push pauses."""
        lines = self._progress.tasks[self._task].fields["lines"]
        self._progress.update(self._task, said=f"{counted(lines, 'line')}; waiting: {reason}")


@contextmanager
def push_bar(title: str, size: int | None) -> Generator[PushBar]:
    """Show the progress of a push until the end of the block."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    with progress_bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    ) as progress:
        yield PushBar(progress, title, size)


class FilePush:
    """One push of lines, from the first line to the counts at the end."""

    def __init__(
        self, client: "Client", pattern: ItemPattern, batch: int, give_up_s: float
    ) -> None:
        self._client: Final = client
        self._pattern: Final = pattern
        self._batch: Final = batch
        self._give_up_s: Final = give_up_s
        self._first_reject: str | None = None

    def run(self, file: str, rejects: Path | None, output: Format) -> None:
        """Push all lines, and print the counts."""
        began = monotonic()
        with (
            nullcontext(sys.stdin.buffer) if file == STDIN else _opened(Path(file), "rb") as lines,
            nullcontext() if rejects is None else _opened(rejects, "wb") as rejected,
            push_bar(*_title_and_size(file)) as bar,
        ):
            upload = Upload(
                self._client.push_items,
                Patience(self._give_up_s, on_wait=bar.wait),
                on_reject=lambda line, reason: self._note_reject(rejected, line, reason),
                on_progress=bar.advance,
            )
            try:
                upload.run(self._batches(file, lines))
            except (SkepError, KeyboardInterrupt):
                _print_counts(file, upload, monotonic() - began, output, is_whole=False)
                raise
        _print_counts(file, upload, monotonic() - began, output, is_whole=True)
        if self._first_reject is not None:
            raise BadRequest(
                f"rejected {counted(upload.counts.failed, 'line')}, first {self._first_reject}"
            )

    def _batches(self, file: str, lines: Iterable[bytes]) -> Iterable[Batch]:
        pattern = self._pattern
        has_ids = pattern.id_prefix is not None or pattern.id_field is not None
        if not has_ids and file != STDIN and Path(file).is_file():
            pattern = replace(pattern, id_prefix=_digest_of(Path(file)))
        return batches_of(lines, pattern, self._batch)

    def _note_reject(self, file: IO[bytes] | None, line: Line, reason: str) -> None:
        if self._first_reject is None:
            self._first_reject = f"line {line.number}: {reason}"
        if file is None:
            return
        members: dict[str, Any] = {"line": line.number, "error": reason}
        try:
            members["payload"] = msgspec.json.decode(line.text, type=msgspec.Raw)
        except msgspec.DecodeError:
            members["text"] = line.text.decode(errors="replace")
        file.write(msgspec.json.encode(members) + b"\n")


def _title_and_size(file: str) -> tuple[str, int | None]:
    path = Path(file)
    if file == STDIN:
        return "stdin", None
    return path.name, path.stat().st_size if path.is_file() else None


def _digest_of(file: Path) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    with file.open("rb") as source:
        while part := source.read(_READ_BYTES):
            digest.update(part)
    return digest.hexdigest()


def _opened(path: Path, mode: Literal["rb", "wb"]) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise BadRequest(f"cannot open {path}: {error.strerror}") from error


def _print_counts(
    file: str, upload: Upload, seconds: float, output: Format, *, is_whole: bool
) -> None:
    counts = upload.counts
    said: dict[str, Any] = {
        "lines": counts.total,
        "queued": counts.queued,
        "duplicate": counts.duplicate,
        "scheduled": counts.scheduled,
        "buffered": counts.buffered,
        "rejected": counts.failed,
    }
    if output != "table":
        print_record({**said, "complete": is_whole, "seconds": round(seconds, 3)}, output)
        return
    source = "stdin" if file == STDIN else file
    parts = ", ".join(f"{said[name]:,} {name}" for name in list(said)[1:])
    rate = counts.total / max(seconds, 0.001)
    interrupted = "" if is_whole else "; interrupted, run it again to continue"
    typer.echo(f"{counted(counts.total, 'line')} of {source}: {parts} ({rate:,.0f}/s){interrupted}")
