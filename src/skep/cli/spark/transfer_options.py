"""What `skep replay`, `skep import` and `skep export` share: flags, and the progress."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

if TYPE_CHECKING:
    from skep.spark.transfer.jobs import Outcome, Reached

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
