"""`skep fetch`: read messages by their offset, without consuming them."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Option

from skep.cli.shared.connection import QueueName, with_client
from skep.cli.shared.exits import Nothing
from skep.cli.shared.options import time_option
from skep.cli.shared.output import Output, print_found
from skep.model.wire import DEFAULT_PARTITION

if TYPE_CHECKING:
    from skep.client import Client
    from skep.client.values import FetchedMessage

_COLUMNS: Final = ("offset", "ts as stored", "transactionId", "payload")


@with_client
def fetch(
    client: "Client",
    queue: QueueName,
    *,
    partition: Annotated[str, Option(help="Partition to read.")] = DEFAULT_PARTITION,
    offset: Annotated[int, Option(min=0, help="First offset; 0: the beginning of the log.")] = 0,
    start: Annotated[
        datetime | None,
        time_option("--from", summary="Start at this time instead: ISO 8601, or `2h`."),
    ] = None,
    limit: Annotated[int, Option(min=1, help="Maximum messages.")] = 100,
    wait: Annotated[float, Option(min=0, max=30, help="Seconds to wait for a message.")] = 0.0,
    output: Output = "table",
) -> None:
    """Read messages of a partition by offset, consuming none."""
    import msgspec

    if start is not None:
        found = client.queues.offset_at(queue, start, partition=partition)
        offset = found.high_watermark if found.offset is None else found.offset
    messages: list[FetchedMessage] = []
    while len(messages) < limit:
        fetched = client.fetch(queue, partition, offset, wait_s=0.0 if messages else wait)
        messages += fetched.records
        offset = fetched.next_offset or offset
        if not fetched.records or offset >= fetched.high_watermark:
            break
    if not messages:
        raise Nothing(f"no message in {queue}/{partition} from offset {offset} on")
    del messages[limit:]
    rows = msgspec.to_builtins(messages)
    print_found(rows, _COLUMNS, output, empty="")
    typer.echo(f"Next offset: {messages[-1].offset + 1}", err=True)
