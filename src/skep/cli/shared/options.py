"""The flags of settings that commands share. A flag is described by its setting.

A command that works on a database is decorated by `with_database_flags` and gets, as its first
argument, what was said about it. `skep.cli.jobs.database` has the same for job chains.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

import typer

from skep.cli.shared.flags import show_flags
from skep.settings import EffectiveSettings, Settings, load_settings
from skep.settings.fields import description

P = ParamSpec("P")
T = TypeVar("T")

ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", help="TOML file with settings; without it `./skep.toml` if it exists."
    ),
]
DatabaseUrl: TypeAlias = Annotated[str | None, typer.Option(help=description("database_url"))]
DatabaseSchema: TypeAlias = Annotated[str | None, typer.Option(help=description("database_schema"))]
DataDir: TypeAlias = Annotated[Path | None, typer.Option(help=description("data_dir"))]
PostgresBin: TypeAlias = Annotated[Path | None, typer.Option(help=description("postgres_bin"))]

_DATABASE_FLAGS: Final[Mapping[str, Any]] = {
    "database_url": DatabaseUrl,
    "database_schema": DatabaseSchema,
    "data_dir": DataDir,
    "postgres_bin": PostgresBin,
    "config_file": ConfigFile,
}


@dataclass(frozen=True, slots=True)
class DatabaseFlags:
    """What the command line says about the database, and about where settings are."""

    config_file: Path | None
    values: Mapping[str, object]

    def settings(self, **others: object) -> Settings:
        """Find the settings in force.

        Args:
            others: Further settings that the command has flags of, by their names.
        """
        return effective_settings(self.config_file, **self.values, **others).settings


def with_database_flags(command: Callable[Concatenate[DatabaseFlags, P], T]) -> Callable[..., T]:
    """Give a command the flags that say which database, and what they say as its first argument."""
    return with_settings_flags(command, _DATABASE_FLAGS)


def with_settings_flags(
    command: Callable[Concatenate[DatabaseFlags, P], T], flags: Mapping[str, Any]
) -> Callable[..., T]:
    """Give a command flags of settings, `config_file` among them, and what they say."""

    @wraps(command)
    def run(*args: Any, config_file: Path | None = None, **kwargs: Any) -> T:
        values = {name: kwargs.pop(name) for name in flags if name in kwargs}
        return command(DatabaseFlags(config_file, values), *args, **kwargs)

    show_flags(run, command, flags)
    return run


def effective_settings(config_file: Path | None, **flags: object) -> EffectiveSettings:
    """Find the settings in force, and show their warnings to the person at the terminal."""
    effective = load_settings(config_file=config_file, flags=flags)
    for warning in effective.warnings:
        typer.echo(f"skep: warning: {warning}", err=True)
    return effective
