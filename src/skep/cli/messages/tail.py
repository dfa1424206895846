"""`skep tail`: watch the messages of a queue as they arrive, without consuming them."""

import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Option

from skep.cli.messages.messages import OnlyHeader, OnlyPayload
from skep.cli.shared import connection
from skep.cli.shared.exits import Nothing
from skep.cli.shared.options import read_moment
from skep.cli.shared.output import Format, Output, is_exact, print_record, to_json
from skep.settings.connection import ConnectionChoice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.text import Text

_TIME: Final = slice(len("2026-01-31T"), len("2026-01-31T12:00:00.000"))


def _read_start(text: str) -> str:
    return text if text in ("now", "start") else read_moment(text).isoformat()


@connection.with_connection
def tail(
    choice: ConnectionChoice,
    queue: connection.QueueName,
    *,
    start: Annotated[
        str,
        Option(
            "--from",
            parser=_read_start,
            metavar="TIME",
            help="Where to start: `now`, `start`, ISO 8601, or `2h`.",
        ),
    ] = "now",
    partition: connection.OnlyPartition = None,
    header: OnlyHeader = None,
    payload: OnlyPayload = None,
    limit: Annotated[int | None, Option(min=1, help="Stop after this many messages.")] = None,
    idle: Annotated[
        float | None, Option(min=0.1, help="Stop after this many seconds without a message.")
    ] = None,
    output: Output = "table",
) -> None:
    """Watch the messages of a queue without consuming them. Survives restarts of the broker.

    A line has the time, the partition and the begin of the payload; `-o wide` has all.
    """
    from skep.cli.messages.event_stream import EventStream
    from skep.client.endpoints import path_of

    server = connection.find_server(choice)
    which = {"from": start, "header": header, "payload": payload}
    path = path_of("stream/queue", queue, "events", **which)
    stream = EventStream(
        server.urls,
        server.token,
        path,
        idle_s=idle,
        on_wait=lambda reason: typer.echo(f"skep: waiting: {reason}", err=True),
    )
    messages = _of_partition((event.data for event in stream.events()), partition)
    shown = _show(islice(messages, limit), output)
    if shown == 0:
        raise Nothing(f"no message arrived in {queue}")


def _of_partition(messages: "Iterable[bytes]", partition: str | None) -> "Iterator[bytes]":
    import msgspec

    for message in messages:
        if partition is None or msgspec.json.decode(message)["partition"] == partition:
            yield message


def _show(messages: "Iterable[bytes]", output: Format) -> int:
    """Print messages as they arrive; return their number."""
    import msgspec
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    width = console.width if console.is_terminal else None
    count = 0
    for count, message in enumerate(messages, 1):  # noqa: B007 (the last count is returned)
        if output == "ndjson":
            typer.echo(message.replace(b"\n", b" ").decode())
        elif output == "table":
            decoded = msgspec.json.decode(message)
            console.print(message_line(decoded, width=width, is_exact=is_exact()))
        else:
            if output == "yaml":
                typer.echo("---")
            print_record(msgspec.Raw(message), output)
        sys.stdout.flush()
    return count


def message_line(
    message: dict[str, Any], *, width: int | None = None, is_exact: bool = False
) -> "Text":
    """Return a message as one line for people, cut to the width unless all is to be exact."""
    from rich.text import Text

    at = message["createdAt"]
    line = Text.assemble(
        (at if is_exact else at[_TIME], "dim"),
        "  ",
        (message["partition"], "cyan"),
        "  ",
        (f"{message['transactionId']}  " if is_exact else "", "dim"),
        (f"[{message['error']}] " if message.get("error") else "", "red"),
        to_json(message.get("data")),
    )
    if width is not None and not is_exact:
        line.truncate(width, overflow="ellipsis")
    return line
