"""`skep pop` and `skep ack`: take messages, and say what became of them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from skep.cli.shared.completion import QueueName
from skep.cli.shared.connection import with_client
from skep.cli.shared.exits import Nothing
from skep.cli.shared.output import Output, print_rows
from skep.model.errors import BadRequest
from skep.model.limits import POP_BATCH_MAX
from skep.model.wire import QUEUE_MODE

if TYPE_CHECKING:
    from skep.client import Client, Message

_MESSAGE_COLUMNS: Final = ("createdAt", "partition", "transactionId", "data")
_LEASED_COLUMNS: Final = (*_MESSAGE_COLUMNS, "partitionId", "leaseId")
_ACK_COLUMNS: Final = ("transactionId", "success", "noop", "dlq", "error")


@with_client
def pop(
    client: "Client",
    queue: QueueName,
    *,
    group: Annotated[
        str | None, typer.Option(help="Of consumers; each group gets every message.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Only of this partition.")] = None,
    batch: Annotated[int, typer.Option(min=1, max=POP_BATCH_MAX, help="Messages at most.")] = 1,
    partitions: Annotated[int, typer.Option(min=0, help="Partitions at most; 0: any.")] = 0,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for a message.")] = 0.0,
    auto_ack: Annotated[
        bool, typer.Option("--auto-ack", help="They are done when they are delivered.")
    ] = False,
    lease: Annotated[
        float, typer.Option(min=1, help="Seconds until they come again if nobody says `skep ack`.")
    ] = 60.0,
    output: Output = "table",
) -> None:
    """Take messages. Without --auto-ack say what became of them with `skep ack`."""
    messages = client.pop(
        queue,
        group=group,
        partition=partition,
        batch=batch,
        partitions=partitions,
        wait_s=wait,
        lease_s=lease,
        auto_ack=auto_ack,
    )
    if not messages:
        raise Nothing(f"there is no message in {queue}")
    columns = _MESSAGE_COLUMNS if auto_ack else _LEASED_COLUMNS
    print_rows([_wire_form(message) for message in messages], columns, output)


def _wire_form(message: "Message") -> dict[str, Any]:
    """Return a message as the broker sent it; its payload byte for byte."""
    return {
        "id": message.id,
        "transactionId": message.transaction_id,
        "traceId": message.trace_id,
        "data": message.raw,
        "headers": message.headers,
        "createdAt": message.created_at,
        "queue": message.queue,
        "partition": message.partition,
        "partitionId": message.partition_id,
        "leaseId": message.lease_id or None,
        "consumerGroup": message.consumer_group,
        "deliveryAttempt": message.delivery_attempt,
        "retryCount": message.retry_count,
        "producerSub": message.producer_sub,
    }


@with_client
def ack(
    client: "Client",
    transaction_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TRANSACTION_ID",
            help="Of messages of one partition; without any, lines of `skep pop -o ndjson`.",
        ),
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Those lines from a file, not from stdin.")
    ] = None,
    partition_id: Annotated[str | None, typer.Option(help="As `skep pop` shows it.")] = None,
    lease_id: Annotated[str | None, typer.Option(help="As `skep pop` shows it.")] = None,
    group: Annotated[str | None, typer.Option(help="Of consumers, as it was popped.")] = None,
    status: Annotated[
        Literal["completed", "failed", "retry", "dlq"],
        typer.Option(help="What became of them; dlq gives them up."),
    ] = "completed",
    error: Annotated[str | None, typer.Option(help="Why, if they did not succeed.")] = None,
    output: Output = "table",
) -> None:
    """Say what became of messages that were popped."""
    if transaction_ids:
        if partition_id is None:
            raise BadRequest("--partition-id is needed: transaction ids are of one partition")
        if file is not None:
            raise BadRequest("give transaction ids or --file, not both")
        named = [
            {"transactionId": each, "partitionId": partition_id, "leaseId": lease_id}
            for each in transaction_ids
        ]
        by_group = {group or QUEUE_MODE: named}
    else:
        by_group = _read_popped(file, group)
    results: list[dict[str, Any]] = []
    for name, items in by_group.items():
        settled = [{**item, "status": status, "error": error} for item in items]
        body = {"acknowledgments": settled, "consumerGroup": name}
        results += client.request("POST", "/api/v1/ack/batch", body)
    print_rows(results, _ACK_COLUMNS, output)
    refused = [result for result in results if not result["success"]]
    if refused:
        raise BadRequest(f"{len(refused)} of {len(results)} were refused: {refused[0]['error']}")


def _read_popped(file: Path | None, group: str | None) -> dict[str, list[dict[str, Any]]]:
    """Read messages as they were popped; return what names them, by the group that popped them."""
    import msgspec

    from skep.model.wire import AckItem

    try:
        text = sys.stdin.buffer.read() if file is None else file.read_bytes()
        popped = msgspec.json.Decoder(AckItem).decode_lines(text)
    except OSError as error:
        raise BadRequest(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise BadRequest(f"these are no lines of `skep pop -o ndjson`: {error}") from error
    if not popped:
        raise Nothing("there is nothing to acknowledge")
    by_group: dict[str, list[dict[str, Any]]] = {}
    for each in popped:
        by_group.setdefault(group or each.consumer_group or QUEUE_MODE, []).append(
            {
                "transactionId": each.transaction_id,
                "partitionId": each.partition_id,
                "leaseId": each.lease_id,
            }
        )
    return by_group
