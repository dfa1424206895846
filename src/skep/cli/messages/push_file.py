"""A push of many lines, from the first to the exact counts at the end."""

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import msgspec
import typer

from skep.cli.messages.push_bar import push_bar
from skep.cli.messages.push_items import Batch, ItemPattern, Line, batches_of, digest_of
from skep.cli.messages.upload import Patience, Upload
from skep.cli.shared.output import Format, print_record
from skep.model.errors import BadRequest, SkepError

if TYPE_CHECKING:
    from skep.client import Client

STDIN: Final = "-"


class FilePush:
    """One push of lines, from the first to the counts at the end."""

    def __init__(
        self, client: "Client", pattern: ItemPattern, batch: int, give_up_s: float
    ) -> None:
        self._client: Final = client
        self._pattern: Final = pattern
        self._batch: Final = batch
        self._give_up_s: Final = give_up_s
        self._first_reject: str | None = None

    def run(self, file: str, rejects: Path | None, output: Format) -> None:
        """Push all lines, and print what became of them.

        Raises:
            BadRequest: Lines were rejected, or the file cannot be read.
            SkepError: The broker is away for too long, or does not let us in.
        """
        began = monotonic()
        with (
            _opened_lines(file) as lines,
            _opened_rejects(rejects) as rejected,
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
            raise BadRequest(f"{upload.counts.failed:,} were rejected, first {self._first_reject}")

    def _batches(self, file: str, lines: Iterable[bytes]) -> Iterable[Batch]:
        pattern = self._pattern
        has_ids = pattern.id_prefix is not None or pattern.id_field is not None
        if not has_ids and file != STDIN and Path(file).is_file():
            pattern = replace(pattern, id_prefix=digest_of(Path(file)))
        return batches_of(lines, pattern, self._batch)

    def _note_reject(self, file: IO[bytes] | None, line: Line, reason: str) -> None:
        if self._first_reject is None:
            self._first_reject = f"line {line.number}: {reason}"
        if file is not None:
            file.write(_spell_reject(line, reason))


def _spell_reject(line: Line, reason: str) -> bytes:
    members: dict[str, Any] = {"line": line.number, "error": reason}
    try:
        members["payload"] = msgspec.json.decode(line.text, type=msgspec.Raw)
    except msgspec.DecodeError:
        members["text"] = line.text.decode(errors="replace")
    return msgspec.json.encode(members) + b"\n"


@contextmanager
def _opened_lines(file: str) -> Generator[Iterable[bytes]]:
    if file == STDIN:
        yield sys.stdin.buffer
        return
    with _opened(Path(file), "rb") as source:
        yield source


@contextmanager
def _opened_rejects(path: Path | None) -> Generator[IO[bytes] | None]:
    if path is None:
        yield None
        return
    with _opened(path, "wb") as target:
        yield target


def _opened(path: Path, mode: Literal["rb", "wb"]) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise BadRequest(f"{path} cannot be opened: {error.strerror}") from error


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
    broken_off = "" if is_whole else "; broken off, run it again to go on"
    typer.echo(f"{counts.total:,} lines of {source}: {parts} ({rate:,.0f}/s){broken_off}")


def _title_and_size(file: str) -> tuple[str, int | None]:
    path = Path(file)
    if file == STDIN:
        return "stdin", None
    return path.name, path.stat().st_size if path.is_file() else None
