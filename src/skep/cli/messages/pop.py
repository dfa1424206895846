"""`skep pop` and `skep ack`: claim messages, and acknowledge them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from typer import Argument, Option

from skep.cli.shared.connection import OnlyPartition, QueueName, with_client
from skep.cli.shared.exits import Nothing
from skep.cli.shared.options import read_input
from skep.cli.shared.output import Output, print_rows
from skep.model.errors import BadRequest
from skep.model.limits import POP_BATCH_MAX
from skep.model.wire import QUEUE_MODE

if TYPE_CHECKING:
    from skep.client import Client, Message

_MESSAGE_COLUMNS: Final = ("createdAt as stored", "partition", "transactionId", "data")
_LEASED_COLUMNS: Final = (*_MESSAGE_COLUMNS, "partitionId", "leaseId")
_ACK_COLUMNS: Final = (
    *("transactionId", "success as accepted", "noop as done before", "dlq as dead letter", "error"),
)


@with_client
def pop(
    client: "Client",
    queue: QueueName,
    *,
    group: Annotated[
        str | None, Option(help="Consumer group; each group gets every message.")
    ] = None,
    partition: OnlyPartition = None,
    batch: Annotated[int, Option(min=1, max=POP_BATCH_MAX, help="Maximum messages.")] = 1,
    partitions: Annotated[int, Option(min=0, help="Maximum partitions; 0: any number.")] = 0,
    wait: Annotated[float, Option(min=0, help="Seconds to wait for a message.")] = 0.0,
    auto_ack: Annotated[bool, Option("--auto-ack", help="Acknowledge on delivery.")] = False,
    lease: Annotated[
        float, Option(min=1, help="Seconds until unacknowledged messages are redelivered.")
    ] = 60.0,
    output: Output = "table",
) -> None:
    """Claim messages. Without --auto-ack, acknowledge them with `skep ack`."""
    messages = client.pop(
        queue,
        group=group,
        partition=partition,
        batch=batch,
        partitions=partitions,
        wait_s=wait,
        lease_s=lease,
        auto_ack=auto_ack,
        create=False,
    )
    if not messages:
        raise Nothing(f"no message in {queue}")
    columns = _MESSAGE_COLUMNS if auto_ack else _LEASED_COLUMNS
    print_rows([_wire_form(message) for message in messages], columns, output)


def _wire_form(message: "Message") -> dict[str, Any]:
    """Return a message as the broker sent it, with its payload byte for byte."""
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
        Argument(
            metavar="TRANSACTION_ID",
            help="Messages of one partition; default: lines of `skep pop -o ndjson` from stdin.",
        ),
    ] = None,
    *,
    file: Annotated[
        Path | None, Option("--file", "-f", help="Read the lines from a file instead of stdin.")
    ] = None,
    partition_id: Annotated[str | None, Option(help="Partition id from `skep pop`.")] = None,
    lease_id: Annotated[str | None, Option(help="Lease id from `skep pop`.")] = None,
    group: Annotated[str | None, Option(help="Consumer group that popped them.")] = None,
    status: Annotated[
        Literal["completed", "failed", "retry", "dlq"],
        Option(help="Outcome; `dlq` moves them to the dead letters."),
    ] = "completed",
    error: Annotated[str | None, Option(help="Reason of a failure.")] = None,
    output: Output = "table",
) -> None:
    """Acknowledge messages that were popped."""
    if transaction_ids:
        if partition_id is None:
            raise BadRequest("transaction ids require --partition-id")
        if file is not None:
            raise BadRequest("pass transaction ids or --file, not both")
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
    """Read popped messages; return what identifies them, by consumer group."""
    import msgspec

    from skep.broker.ack.naming import is_named
    from skep.model.wire import AckItem

    try:
        popped = msgspec.json.Decoder(AckItem).decode_lines(read_input(str(file or "-")))
    except msgspec.MsgspecError as error:
        raise BadRequest(f"the input is not the output of `skep pop -o ndjson`: {error}") from error
    if not all(map(is_named, popped)):
        raise BadRequest("the input is not the output of `skep pop -o ndjson`: a line has no id")
    if not popped:
        raise Nothing("nothing to acknowledge")
    by_group: dict[str, list[dict[str, Any]]] = {}
    for each in popped:
        by_group.setdefault(group or each.consumer_group or QUEUE_MODE, []).append(
            {
                "messageId": each.message_id or each.id,
                "transactionId": each.transaction_id,
                "partitionId": each.partition_id,
                "leaseId": each.lease_id,
            }
        )
    return by_group
