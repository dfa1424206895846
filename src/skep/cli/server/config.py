"""`skep config` and `skep openapi`: the settings in force, and the document of the HTTP API."""

from typing import Annotated

import msgspec
import typer
from typer import Option

from skep.cli.shared.exits import require_server_extra
from skep.cli.shared.options import ConfigFile, effective_settings


def config(
    *,
    config_file: ConfigFile = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the effective settings and where each comes from. Passwords are hidden."""
    effective = effective_settings(config_file)
    values, origins = effective.settings.printable(), effective.origins
    if as_json:
        entries = {name: {"value": v, "origin": origins[name]} for name, v in values.items()}
        typer.echo(msgspec.json.format(msgspec.json.encode(entries)).decode())
        return
    for name, value in values.items():
        typer.echo(f"{name:<28}{'' if value is None else value!s:<40} {origins[name]}")


def openapi() -> None:
    """Print the OpenAPI document of the HTTP API. Needs no database."""
    require_server_extra()
    from skep.app.parts.interface import describe_api

    typer.echo(msgspec.json.format(msgspec.json.encode(describe_api())).decode())
