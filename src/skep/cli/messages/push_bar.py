"""How far a push of many lines is, for the person at the terminal."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from skep.cli.messages.push_items import Batch


class PushBar:
    """The progress of a push in the terminal."""

    def __init__(self, progress: Any, title: str, size: int | None) -> None:
        self._progress: Final = progress
        self._task: Final = progress.add_task(title, total=size, lines=0, said="")

    @property
    def said(self) -> str:
        """What stands beside the bar."""
        return self._progress.tasks[self._task].fields["said"]

    def advance(self, batch: "Batch") -> None:
        """Be told that a batch is done."""
        task = self._progress.tasks[self._task]
        lines = task.fields["lines"] + len(batch.lines) + len(batch.refused)
        rate = lines / max(task.elapsed or 0, 0.001)
        self._progress.update(
            self._task, advance=batch.size, lines=lines, said=f"{lines:,} lines, {rate:,.0f}/s"
        )

    def wait(self, reason: str) -> None:
        """Be told that nothing goes on, and why."""
        lines = self._progress.tasks[self._task].fields["lines"]
        self._progress.update(self._task, said=f"{lines:,} lines; waiting: {reason}")


@contextmanager
def push_bar(title: str, size: int | None) -> Generator[PushBar]:
    """Show the progress of a push until the end of the block."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    console = Console(stderr=True)
    # Into a file or a pipe a bar would be written as lines that nobody reads.
    is_hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as progress:
        yield PushBar(progress, title, size)
