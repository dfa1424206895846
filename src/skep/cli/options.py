"""The flags that commands share. A flag of a setting is described by the setting itself."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from skep.model.errors import BadRequest
from skep.settings import EffectiveSettings, Settings, load_settings
from skep.settings.fields import description

ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", help="TOML file with settings; without it `./skep.toml` if it exists."
    ),
]
DatabaseUrl: TypeAlias = Annotated[str | None, typer.Option(help=description("database_url"))]
JobsUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        help="The PostgreSQL that has the jobs, as `postgresql://user:password@..."
        "`; by default that of the settings.",
    ),
]
DatabaseSchema: TypeAlias = Annotated[str | None, typer.Option(help=description("database_schema"))]
DataDir: TypeAlias = Annotated[Path | None, typer.Option(help=description("data_dir"))]
PostgresBin: TypeAlias = Annotated[Path | None, typer.Option(help=description("postgres_bin"))]


def effective_settings(config_file: Path | None, **flags: object) -> EffectiveSettings:
    """Find the settings in force, and show their warnings to the person at the terminal."""
    effective = load_settings(config_file=config_file, flags=flags)
    for warning in effective.warnings:
        typer.echo(f"skep: warning: {warning}", err=True)
    return effective


def jobs_dsn(settings: Settings) -> str:
    """Return the database that has the jobs.

    Raises:
        BadRequest: nothing names it; the embedded one belongs to the broker that runs it.
    """
    if settings.database_url is None:
        raise BadRequest("name the database that has the jobs: --database-url or SKEP_DATABASE_URL")
    return settings.installation(settings.database_url)
