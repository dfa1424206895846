"""`skep push`: store messages, from arguments, from stdin or from a file of a million lines."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from skep.cli.shared.completion import complete_queue
from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Format, Output, print_rows
from skep.model.errors import BadRequest
from skep.model.limits import PUSH_ITEMS_MAX

if TYPE_CHECKING:
    from skep.cli.messages.push_items import ItemPattern
    from skep.client import Client

FILE_ENDINGS: Final = frozenset({".ndjson", ".jsonl"})


@with_client
def push(
    client: "Client",
    queue: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE|FILE",
            help="The queue; or only a file of NDJSON, which goes to the queue of its name.",
            autocompletion=complete_queue,
        ),
    ],
    payloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="PAYLOAD", help="JSON; without any, lines from stdin."),
    ] = None,
    *,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="NDJSON, a message per line; `-` is stdin.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="The partition of all of them.")] = None,
    partition_key: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="The partition is what this field of the payload says."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Delivered with each message.")
    ] = None,
    delay: Annotated[float | None, typer.Option(min=0, help="Seconds until delivery.")] = None,
    ttl: Annotated[float | None, typer.Option(min=0, help="Seconds until it is worthless.")] = None,
    transaction_id: Annotated[
        str | None, typer.Option(help="Of the one payload: the same id stores nothing twice.")
    ] = None,
    id_field: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="The transaction id is what this field says."),
    ] = None,
    id_prefix: Annotated[
        str | None,
        typer.Option(
            help="Transaction ids are this and the number of the line; of a file its content "
            "instead, so that pushing it again stores nothing twice."
        ),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Payloads are texts, not JSON.")] = False,
    batch: Annotated[
        int, typer.Option(min=1, max=PUSH_ITEMS_MAX, help="Messages per request.")
    ] = 500,
    rejects: Annotated[
        Path | None, typer.Option(help="Write lines that are refused here, with the reason.")
    ] = None,
    give_up: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a broker that is away.")
    ] = 300.0,
    output: Output = "table",
) -> None:
    """Store messages: payloads, lines of stdin, or lines of a file.

    A file may be pushed again, and a broker may be restarted meanwhile: nothing is stored twice.
    """
    from skep.cli.messages.push_items import ItemPattern

    if not payloads and file is None and Path(queue).suffix in FILE_ENDINGS:
        queue, file = _queue_of_file(queue), queue
        typer.echo(f"pushing {file} to the queue {queue}", err=True)
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
        from skep.cli.messages.push_file import STDIN, FilePush

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
        raise BadRequest("give payloads or --file, not both")
    if partition is not None and partition_key is not None:
        raise BadRequest("give --partition or --partition-key, not both")
    if sum(each is not None for each in (transaction_id, id_field, id_prefix)) > 1:
        raise BadRequest("--transaction-id, --id-field and --id-prefix exclude each other")
    if transaction_id is not None and len(payloads or []) != 1:
        raise BadRequest("--transaction-id is for one payload; --id-field serves many")
    if not payloads and file is None and (sys.stdin is None or sys.stdin.isatty()):
        raise BadRequest("nothing to push: give payloads, --file, or lines on stdin")


def _queue_of_file(file: str) -> str:
    path = Path(file)
    if not path.is_file():
        raise BadRequest(f"there is no file {file}; if that is a queue, say --file - for stdin")
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
    from skep.cli.messages.push_items import Line

    items = [pattern.make(Line(place, text.encode())) for place, text in enumerate(payloads, 1)]
    if transaction_id is not None:
        items[0].transaction_id = transaction_id
    results = client.push_items(items)
    print_rows(list(results), ("status", "message_id", "transaction_id", "error"), output)
    results.raise_for_failures()
