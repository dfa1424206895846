"""What `skep replay`, `skep import` and `skep export` share: flags, the session, the progress."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from skep.model.errors import BadRequest
from skep.settings.fields import description

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skep.spark.transfer_jobs import Outcome, Reached

Master: TypeAlias = Annotated[
    str | None, typer.Option(help="Where Spark runs: `local[*,4]`, `spark://host:7077` and so on.")
]
StorageText: TypeAlias = Annotated[
    str | None, typer.Option("--storage", help=description("archive_storage"))
]
Where: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Only messages for which this holds, in Spark SQL: "
        "`get_json_object(payload, '$.total') > 100`."
    ),
]
Name: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Under which name it is done; the same name is never done twice."),
]
OnError: TypeAlias = Annotated[
    Literal["fail", "dead-letter"],
    typer.Option(help="What becomes of rows that cannot be stored."),
]
Decrypt: TypeAlias = Annotated[
    bool, typer.Option("--decrypt", help="Encrypted messages may become readable where they go.")
]


def moment(option: str, text: str | None) -> datetime | None:
    """Read a time; without a zone it is UTC.

    Raises:
        BadRequest: It is none.
    """
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{option} must be a time such as 2026-01-31T12:00:00Z") from None
    return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)


def session(name: str, master: str | None) -> "SparkSession":
    """Start Spark for one command; what it has to say is said by us."""
    from skep.spark.session import DEFAULT_MASTER, spark_session

    return spark_session(name, master=master or DEFAULT_MASTER, config={"spark.log.level": "ERROR"})


def summary(done: "Outcome", verb: str) -> str:
    """Say in one line what came of a job."""
    if done.is_repeated and done.committed_at is not None:
        return (
            f"nothing to do: this was {verb} at {done.committed_at.isoformat()}, "
            f"{done.messages:,} messages; give another --name to do it again"
        )
    said = f"{verb} {done.messages:,} messages"
    if done.duplicates:
        said += f"; {done.duplicates:,} were there already"
    if done.rejected:
        said += f"; {done.rejected:,} could not be stored and are dead letters with their reason"
    return said


class TransferBar:
    """The progress of a job in the terminal: its tasks, and the messages written so far."""

    def __init__(self, progress: Any, title: str) -> None:
        self._progress: Final = progress
        self._task: Final = progress.add_task(title, total=None, said="")

    def reach(self, reached: "Reached") -> None:
        """Be told how far it is."""
        seconds = max(self._progress.tasks[self._task].elapsed or 0, 0.001)
        said = f"{reached.messages:,} messages, {reached.messages / seconds:,.0f} messages/s"
        self._progress.update(
            self._task,
            total=reached.tasks or None,
            completed=reached.tasks_done,
            said=said if reached.messages else "reading",
        )


@contextmanager
def transfer_bar(title: str) -> Generator[TransferBar]:
    """Show the progress of a job until the end of the block."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks, {task.fields[said]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield TransferBar(progress, title)
