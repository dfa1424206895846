"""`skep kv`: keys and values."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from skep.cli.shared.connection import with_client
from skep.cli.shared.declare import listing
from skep.cli.shared.help import Commands
from skep.cli.shared.options import json_argument
from skep.cli.shared.output import Output, print_found, print_record
from skep.model.errors import NotFound, Refused

if TYPE_CHECKING:
    from skep.client import Client
    from skep.client.values import Changed

kv_app: Final = Commands("kv", "List, show, store, count and delete keys and their values.")

Namespace = Annotated[str, Argument(metavar="NAMESPACE", help="Namespace of the key.")]
Key = Annotated[str, Argument(help="Key.")]
Expect = Annotated[
    int | None, Option(min=0, help="Only if the key has this version; 0: if it does not exist.")
]
Ttl = Annotated[int | None, Option(min=1, help="Expire after (seconds); default: never.")]

_COLUMNS: Final = ("key", "value", "version", "expiresAt as expires", "updatedAt as updated")
_BROWSE: Final = "/api/v1/resources/kv"


@kv_app.command("namespaces")
@with_client
def list_namespaces(client: "Client", *, output: Output = "table") -> None:
    """List the namespaces that have keys."""
    found = client.request("GET", f"{_BROWSE}/namespaces")["namespaces"]
    print_found(found, ("namespace", "keys"), output, empty="no namespace has keys")


@kv_app.command("list")
@listing(_COLUMNS, empty="no key of {namespace} matches", cursor="cursor")
def list_keys(
    client: "Client",
    limit: int,
    cursor: str | None,
    namespace: Namespace,
    *,
    prefix: Annotated[str, Option(help="Only keys that begin with this.")] = "",
) -> Any:
    """List the keys of a namespace, with their values."""
    asked = {"namespace": namespace, "prefix": prefix, "after": cursor, "limit": limit}
    page = client.request("POST", f"{_BROWSE}/list", asked)
    return page["rows"], page["nextAfter"]


@kv_app.command("get")
@with_client
def get_key(client: "Client", namespace: Namespace, key: Key, *, output: Output = "table") -> None:
    """Show a key."""
    entry = client.kv.get(namespace, key)
    if entry is None:
        raise NotFound(f"namespace {namespace} has no key {key}")
    print_record(entry, output)


@kv_app.command("put")
@with_client
def put_key(
    client: "Client",
    namespace: Namespace,
    key: Key,
    value: Annotated[str, Argument(help="JSON.")],
    *,
    ttl: Ttl = None,
    expect: Expect = None,
) -> None:
    """Store a value under a key."""
    changed = client.kv.put(namespace, key, json_argument("value", value), ttl_s=ttl, expect=expect)
    _tell(f"Stored {namespace} {key}", changed)


@kv_app.command("incr")
@with_client
def add_to_key(
    client: "Client",
    namespace: Namespace,
    key: Key,
    delta: Annotated[int, Argument(help="What to add; may be negative.")] = 1,
    *,
    ttl: Ttl = None,
    maximum: Annotated[int | None, Option("--max", help="Not beyond this.")] = None,
) -> None:
    """Add to the number under a key."""
    changed = client.kv.incr(namespace, key, delta, ttl_s=ttl, max=maximum)
    _tell(f"{namespace} {key} is {changed.value}", changed)


@kv_app.command("delete")
@with_client
def delete_key(client: "Client", namespace: Namespace, key: Key, *, expect: Expect = None) -> None:
    """Delete a key."""
    _tell(f"Deleted {namespace} {key}", client.kv.delete(namespace, key, expect=expect))


_REASONS: Final = {
    "exists": "the key exists",
    "absent": "the key does not exist",
    "version": "the key has another version",
    "limit": "the sum would be out of bounds",
    "type": "the value is not a number",
}


def _tell(done: str, changed: "Changed") -> None:
    """Say what was done, or why not."""
    if not changed:
        raise Refused(f"{_REASONS[changed.reason or 'version']}; its version is {changed.version}")
    typer.echo(f"{done}, version {changed.version}")
