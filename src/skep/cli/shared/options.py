"""Options that many commands share: settings of the database, times, `--yes`.

A decorator such as `with_database_flags`, or `with_client` in `skep.cli.shared.connection`, adds
options to a command and passes what they stand for as its first argument. The option of a setting
is described by the setting.
"""

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
)

import typer
from typer import Option

from skep.model.errors import BadRequest
from skep.settings import EffectiveSettings, Settings, load_settings
from skep.settings.fields import FIELDS, description

P = ParamSpec("P")
T = TypeVar("T")

ConfigFile = Annotated[
    Path | None,
    Option(
        "--config",
        help="TOML settings file; default: `./skep.toml` if it exists.",
        rich_help_panel="Database",
    ),
]


def json_argument(name: str, text: str) -> Any:
    """Return the value that a JSON argument spells."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the {name} is not JSON: {error}. Put a text in quotes") from None


def setting_option(name: str, *, panel: str | None = None) -> Any:
    """Return the option of a setting, with its choices if it has any."""
    kind = FIELDS[name].type
    choices = "|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else None
    return Option(help=description(name), metavar=choices, rich_help_panel=panel)


_PANEL: Final = "Database"
DatabaseUrl = Annotated[str | None, setting_option("database_url", panel=_PANEL)]
DatabaseSchema = Annotated[str | None, setting_option("database_schema", panel=_PANEL)]
DataDir = Annotated[Path | None, setting_option("data_dir", panel=_PANEL)]
PostgresBin = Annotated[Path | None, setting_option("postgres_bin", panel=_PANEL)]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]

_DATABASE_FLAGS: Final[Mapping[str, Any]] = {
    "database_url": DatabaseUrl,
    "database_schema": DatabaseSchema,
    "data_dir": DataDir,
    "postgres_bin": PostgresBin,
    "config_file": ConfigFile,
}
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])(?: ago)?")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def examples(*lines: str) -> str:
    """Return the end of a help text that shows these command lines. A test parses each of them."""
    # A line with only \b keeps typer from rewrapping the lines below it.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def declare_options(
    run: Callable[..., Any],
    command: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    hidden: Collection[str] | None = None,
) -> None:
    """Make typer see further options behind a command's own parameters.

    Args:
        run: What typer calls.
        command: The decorated function, which gives `run` its name, help and parameters.
        options: Types by name.
        defaults: Of options that do not default to None.
        hidden: The command's parameters that a decorator passes; by default the first.
    """
    own = inspect.signature(command).parameters
    hidden = [next(iter(own))] if hidden is None else hidden
    parameters = [each for name, each in own.items() if name not in hidden]
    for name, kind in options.items():
        default = (defaults or {}).get(name)
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )
        )
    shown: Any = wraps(command)(run)
    del shown.__wrapped__
    shown.__signature__ = inspect.Signature(parameters)
    shown.__annotations__ = {each.name: each.annotation for each in parameters}


@dataclass(frozen=True, slots=True)
class DatabaseFlags:
    """The database and the settings file that the command line names."""

    config_file: Path | None
    values: Mapping[str, object]

    def effective(self, **others: object) -> EffectiveSettings:
        """Return the effective settings; `others` are settings with options of the command."""
        return effective_settings(self.config_file, **self.values, **others)

    def settings(self, **others: object) -> Settings:
        """Return the values of the effective settings."""
        return self.effective(**others).settings


def with_database_flags(command: Callable[Concatenate[DatabaseFlags, P], T]) -> Callable[..., T]:
    """Add the options that name a database; their values are the command's first argument."""
    return with_settings_flags(command, _DATABASE_FLAGS)


def with_settings_flags(
    command: Callable[Concatenate[DatabaseFlags, P], T], flags: Mapping[str, Any]
) -> Callable[..., T]:
    """Add options of settings, `config_file` among them."""

    def run(*args: Any, config_file: Path | None = None, **kwargs: Any) -> T:
        values = {name: kwargs.pop(name) for name in flags if name in kwargs}
        return command(DatabaseFlags(config_file, values), *args, **kwargs)

    declare_options(run, command, flags)
    return run


def effective_settings(config_file: Path | None, **flags: object) -> EffectiveSettings:
    """Return the effective settings, and print their warnings to stderr."""
    effective = load_settings(config_file=config_file, flags=flags)
    for warning in effective.warnings:
        typer.echo(f"skep: warning: {warning}", err=True)
    return effective


def confirm(question: str, *, is_answered: bool) -> None:
    """Ask for confirmation, unless `--yes` gave it."""
    if is_answered:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise BadRequest(f"{question} Not a terminal: pass --yes to confirm")
    typer.confirm(question, abort=True, err=True)


def read_input(file: str) -> bytes:
    """Return the bytes of a file; `-` is stdin."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise BadRequest(f"cannot read {file}: {error.strerror}") from error


def read_moment(text: str) -> datetime:
    """Parse a time: ISO 8601 (UTC without a zone), or how long ago, such as `2h`."""
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise BadRequest(
            f"Invalid time: {text!r}. Use an ISO 8601 time such as 2026-07-01T12:00:00Z, or how "
            "long ago: 90s, 15m, 2h, 7d"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_fixed_moment(text: str) -> datetime:
    """Parse a time that means the same whenever the command runs: ISO 8601 only."""
    if _AGO.fullmatch(text.strip()):
        raise BadRequest(
            f"Invalid time: {text!r} depends on when the command runs. "
            "Use an ISO 8601 time such as 2026-07-01T12:00:00Z"
        )
    return read_moment(text)


def time_option(*names: str, summary: str, fixed: bool = False) -> Any:
    """Return an option that takes a time."""
    parser = read_fixed_moment if fixed else read_moment
    return Option(*names, parser=parser, metavar="TIME", help=summary)


Since = Annotated[
    datetime | None, time_option("--since", summary="Only from this time on: ISO 8601, or `2h`.")
]
Until = Annotated[
    datetime | None, time_option("--until", summary="Only up to this time: ISO 8601, or `2h`.")
]
