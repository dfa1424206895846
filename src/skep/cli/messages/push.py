"""`skep push`: store messages from arguments, stdin or a file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from skep.cli.shared.connection import complete_queue, with_client
from skep.cli.shared.output import Format, Output, print_rows
from skep.model.errors import BadRequest
from skep.model.limits import PUSH_ITEMS_MAX

if TYPE_CHECKING:
    from skep.cli.messages.push_lines import ItemPattern
    from skep.client import Client

FILE_ENDINGS: Final = frozenset({".ndjson", ".jsonl"})


@with_client
def push(
    client: "Client",
    queue: Annotated[
        str,
        Argument(
            metavar="QUEUE|FILE",
            help="Queue name; or an NDJSON file, which goes to the queue of its name.",
            autocompletion=complete_queue,
        ),
    ],
    payloads: Annotated[
        list[str] | None, Argument(metavar="PAYLOAD", help="JSON; default: lines from stdin.")
    ] = None,
    *,
    file: Annotated[
        str | None, Option("--file", "-f", help="NDJSON, one message per line; `-` is stdin.")
    ] = None,
    partition: Annotated[str | None, Option(help="Partition of all messages.")] = None,
    partition_key: Annotated[
        str | None, Option(metavar="FIELD", help="Payload field that names the partition.")
    ] = None,
    header: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="Message header; repeatable.")
    ] = None,
    delay: Annotated[float | None, Option(min=0, help="Deliver after (seconds).")] = None,
    ttl: Annotated[float | None, Option(min=0, help="Expire after (seconds).")] = None,
    transaction_id: Annotated[
        str | None, Option(help="Transaction id of a single payload; a repeated id is a duplicate.")
    ] = None,
    id_field: Annotated[
        str | None, Option(metavar="FIELD", help="Payload field that is the transaction id.")
    ] = None,
    id_prefix: Annotated[
        str | None,
        Option(help="Prefix of transaction ids, before the line number; default: a file's digest."),
    ] = None,
    text: Annotated[bool, Option("--text", help="Payloads are plain text, not JSON.")] = False,
    batch: Annotated[int, Option(min=1, max=PUSH_ITEMS_MAX, help="Messages per request.")] = 500,
    rejects: Annotated[
        Path | None, Option(help="File for rejected lines, with the reasons.")
    ] = None,
    give_up: Annotated[
        float, Option(min=0, help="Seconds to wait for an unreachable broker.")
    ] = 300.0,
    output: Output = "table",
) -> None:
    """Push messages: payloads, lines of stdin, or lines of a file.

    Pushing a file again stores nothing twice, even if the broker restarts meanwhile.
    """
    from skep.cli.messages.push_lines import ItemPattern

    if not payloads and file is None and Path(queue).suffix in FILE_ENDINGS:
        queue, file = _queue_of_file(queue), queue
        typer.echo(f"Pushing {file} to queue {queue}", err=True)
    _check_together(payloads, file, partition, partition_key, transaction_id, id_field, id_prefix)
    pattern = ItemPattern(
        queue=queue,
        partition=partition,
        partition_key=partition_key,
        id_prefix=id_prefix,
        id_field=id_field,
        headers=_headers(header or []),
        delay_s=delay,
        ttl_s=ttl,
        is_text=text,
    )
    if payloads:
        _push_payloads(client, payloads, pattern, transaction_id, output)
    else:
        from skep.cli.messages.push_lines import STDIN, FilePush

        FilePush(client, pattern, batch, give_up).run(file or STDIN, rejects, output)


def _check_together(
    payloads: list[str] | None,
    file: str | None,
    partition: str | None,
    partition_key: str | None,
    transaction_id: str | None,
    id_field: str | None,
    id_prefix: str | None,
) -> None:
    if payloads and file is not None:
        raise BadRequest("pass payloads or --file, not both")
    if partition is not None and partition_key is not None:
        raise BadRequest("pass --partition or --partition-key, not both")
    if sum(each is not None for each in (transaction_id, id_field, id_prefix)) > 1:
        raise BadRequest("pass only one of --transaction-id, --id-field and --id-prefix")
    if transaction_id is not None and len(payloads or []) != 1:
        raise BadRequest("--transaction-id takes a single payload; use --id-field for several")
    if not payloads and file is None and (sys.stdin is None or sys.stdin.isatty()):
        raise BadRequest("nothing to push: pass payloads, --file, or lines on stdin")


def _queue_of_file(file: str) -> str:
    path = Path(file)
    if not path.is_file():
        raise BadRequest(f"file {file} does not exist; if it is a queue, pass --file -")
    return path.stem


def _headers(given: list[str]) -> dict[str, Any] | None:
    headers: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise BadRequest(f"--header must be NAME=VALUE, not {each!r}")
        headers[name] = value
    return headers or None


def _push_payloads(
    client: "Client",
    payloads: list[str],
    pattern: "ItemPattern",
    transaction_id: str | None,
    output: Format,
) -> None:
    from skep.cli.messages.push_lines import Line

    items = [pattern.make(Line(place, text.encode())) for place, text in enumerate(payloads, 1)]
    if transaction_id is not None:
        items[0].transaction_id = transaction_id
    results = client.push_items(items)
    print_rows(list(results), ("status", "message_id", "transaction_id", "error"), output)
    results.raise_for_failures()
