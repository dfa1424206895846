"""`skep config`: which settings are in force, and why."""

from typing import Annotated

import typer

from skep.cli.shared.options import ConfigFile, effective_settings


def config(
    *,
    config_file: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    reference: Annotated[
        bool, typer.Option("--reference", help="Print the reference of all settings as Markdown.")
    ] = False,
) -> None:
    """Print the settings in force and where each value comes from. Passwords are hidden."""
    if reference:
        from skep.cli.server.settings_page import render_settings_page

        typer.echo(render_settings_page(), nl=False)
        return
    effective = effective_settings(config_file)
    values, origins = effective.settings.printable(), effective.origins
    if as_json:
        from msgspec import json

        entries = {name: {"value": v, "origin": origins[name]} for name, v in values.items()}
        typer.echo(json.format(json.encode(entries)).decode())
        return
    for name, value in values.items():
        typer.echo(f"{name:<28}{'' if value is None else value!s:<40} {origins[name]}")
