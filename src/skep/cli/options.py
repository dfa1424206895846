"""The flags that commands share. A flag of a setting is described by the setting itself."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from skep.settings import EffectiveSettings, load_settings
from skep.settings.fields import description

ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", help="TOML file with settings; without it `./skep.toml` if it exists."
    ),
]
DatabaseUrl: TypeAlias = Annotated[str | None, typer.Option(help=description("database_url"))]
DataDir: TypeAlias = Annotated[Path | None, typer.Option(help=description("data_dir"))]
PostgresBin: TypeAlias = Annotated[Path | None, typer.Option(help=description("postgres_bin"))]


def effective_settings(config_file: Path | None, **flags: object) -> EffectiveSettings:
    """Find the settings in force, and show their warnings to the person at the terminal."""
    effective = load_settings(config_file=config_file, flags=flags)
    for warning in effective.warnings:
        typer.echo(f"skep: warning: {warning}", err=True)
    return effective
