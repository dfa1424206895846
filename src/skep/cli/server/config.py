"""`skep config` and `skep openapi`: the settings in force, and the document of the HTTP API."""

import msgspec
import typer

from skep.cli.shared.exits import require_server_extra
from skep.cli.shared.options import ConfigFile, effective_settings
from skep.cli.shared.output import Output, print_record, print_rows


def config(*, config_file: ConfigFile = None, output: Output = "table") -> None:
    """Print the effective settings and where each comes from. Passwords are hidden."""
    effective = effective_settings(config_file)
    values, origins = effective.settings.printable(), effective.origins
    if output != "table":
        entries = {name: {"value": v, "origin": origins[name]} for name, v in values.items()}
        print_record(entries, output)
        return
    rows = [
        {"setting": name, "value": _spelled(value), "from": origins[name]}
        for name, value in values.items()
    ]
    print_rows(rows, ("setting", "value", "from"), output)


def _spelled(value: object) -> str:
    """Spell a value as the settings file takes it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def openapi() -> None:
    """Print the OpenAPI document of the HTTP API. Needs no database."""
    require_server_extra()
    from skep.app.parts.interface import describe_api

    typer.echo(msgspec.json.format(msgspec.json.encode(describe_api())).decode())
