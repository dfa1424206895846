"""`skep transaction`: the pushes and acknowledgments of a file, all or none."""

from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Struct, ValidationError, convert
from typer import Argument

from skep.cli.shared.connection import with_client
from skep.cli.shared.options import read_input
from skep.cli.shared.output import Output, print_rows
from skep.model.errors import BadRequest

if TYPE_CHECKING:
    from skep.client import Client

_COLUMNS: Final = (
    *("type", "success as done", "transactionId", "queueName as queue", "messageId", "error"),
)


class _Transaction(Struct):
    """The required part; the broker checks the rest."""

    operations: list[dict[str, Any]]


@with_client
def transaction(
    client: "Client",
    file: Annotated[str, Argument(help="JSON or YAML file with `operations`; `-` is stdin.")],
    *,
    output: Output = "table",
) -> None:
    """Execute the operations of a file, all or none.

    The file is the body of `POST /api/v1/transaction`. Pushes without a transaction id get one from
    the file's content, so that running it again pushes nothing twice.
    """
    from skep.client import TransactionFailed

    text = read_input(file)
    answer = client.request("POST", "/api/v1/transaction", with_push_ids(_parse(file, text), text))
    if not answer["success"]:
        raise TransactionFailed(f"the transaction was rolled back: {answer.get('error')}")
    print_rows(answer["results"], _COLUMNS, output)


def with_push_ids(body: Any, text: bytes) -> Any:
    """Give the pushes of a transaction ids that are the same when it is repeated."""
    prefix = blake2b(text, digest_size=12).hexdigest()
    try:
        parsed = convert(body, _Transaction)
    except ValidationError as error:
        raise BadRequest(f"invalid transaction: {error}") from error
    pushes = [item for each in parsed.operations for item in _pushed(each)]
    for place, item in enumerate(pushes, 1):
        if not item.get("transactionId"):
            item["transactionId"] = f"{prefix}-{place}"
    return {**body, "operations": parsed.operations}


def _pushed(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a push: a list of them, or the operation itself."""
    if operation.get("type") != "push":
        return []
    return operation.get("items") or [operation]


def _parse(file: str, text: bytes) -> Any:
    # JSON first: it is faster, and YAML reads some texts in surprising ways.
    import msgspec
    import yaml

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        pass
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadRequest(f"{file} is neither JSON nor YAML: {error}") from error
