"""`skep metrics`: the figures of an instance."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Output, print_record
from skep.model.errors import BadRequest

if TYPE_CHECKING:
    from skep.client import Client


@with_client
def metrics(
    client: "Client",
    *,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Everything, as Prometheus reads it.")
    ] = False,
    search: Annotated[
        str | None, typer.Option(help="With --prometheus: only names that contain this.")
    ] = None,
    output: Output = "table",
) -> None:
    """Show the figures of an instance; `skep top` watches them."""
    if search is not None and not prometheus:
        raise BadRequest("--search goes with --prometheus")
    if prometheus:
        _print_exposition(client.fetch("/metrics/prometheus").decode(), search)
        return
    found = client.request("GET", "/metrics")
    print_record(_flat(found) if output == "table" else found, output)


def _print_exposition(text: str, search: str | None) -> None:
    for line in text.splitlines():
        name = line.removeprefix("# HELP ").removeprefix("# TYPE ").split("{")[0].split(" ")[0]
        if search is None or search in name:
            typer.echo(line)


def _flat(found: Any, prefix: str = "") -> dict[str, Any]:
    """Return members of members as `a.b`, so that each has a line."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        flat |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return flat
