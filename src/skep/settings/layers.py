"""Merge defaults, preset, file, environment and flags into the settings in force; the later wins.

The file is the one named by `--config` or `SKEP_CONFIG`, else `./skep.toml`. The environment has
two sets of names: `SKEP_<FIELD>` for every field, and below them Queen's. Only the winning value
of a field is checked, so that a flag can override a wrong variable. A wrong value, or an unknown
key in the file, is an error; an unknown `SKEP_*` variable is only a warning, because other programs
set such variables, too (Kubernetes adds `SKEP_SERVICE_HOST` for a service `skep`).
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from skep.model.schema_name import InvalidSchemaName
from skep.settings.connection import CONNECTION_VARIABLES
from skep.settings.fields import (
    FIELDS,
    InvalidSettings,
    Settings,
    accepted_values,
    process_environment,
)
from skep.settings.keys import encryption_keys
from skep.settings.peers import peer_addresses
from skep.settings.queen import ignored_queen_variables, translate_queen_variables
from skep.settings.security import check_security

CONFIG_FILE_VARIABLE: Final = "SKEP_CONFIG"
DEFAULT_CONFIG_FILE: Final = Path("skep.toml")
VARIABLES: Final = {f"SKEP_{name.upper()}": name for name in FIELDS}
"""The environment variable of each field."""

PRESETS: Final[Mapping[str, Mapping[str, object]]] = {
    "balanced": {},
    "throughput": {
        "connections": 8,
        "push_hold_ms": 50,
        "engine_weight_mib": 512,
        "dedup_memory_mib": 256,
        "dedup_memory_max_mib": 2_048,
    },
    "latency": {
        "concurrency": "static",
        "push_hold_ms": 2,
        "poll_interval_ms": 25,
        "poll_interval_ms_max": 250,
    },
}
"""Other defaults, below every explicit setting. `throughput` keeps more calls in flight and gathers
them for longer; `latency` sends calls sooner, in more and smaller ones."""


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """The settings in force, the origin of every value, and warnings."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Given:
    """A value and where it comes from. Text is converted to the type of its field."""

    value: object
    origin: str
    is_text: bool


_Layer: TypeAlias = dict[str, _Given]


def load_settings(
    *,
    config_file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> EffectiveSettings:
    """Return the settings in force.

    Args:
        config_file: The file named by `--config`.
        flags: Values by field name; None means that the flag was not given.
        environment: Variables to read instead of those of this process.

    Raises:
        InvalidSettings: A value is wrong, a key is unknown, or a named file cannot be read.
    """
    variables = process_environment() if environment is None else environment
    # An empty variable is how compose files and shells spell "not set".
    variables = {name: text for name, text in variables.items() if text}
    given = (
        _from_file(config_file, variables)
        | _from_queen_variables(variables)
        | _from_skep_variables(variables)
        | _from_flags(flags or {})
    )
    warnings = [
        *_unknown_variables(variables),
        *_ignored_variables(variables),
        *_without_effect(given),
    ]
    given = _from_preset(given) | given
    values: dict[str, Any] = {name: _checked(name, entry) for name, entry in given.items()}
    settings = Settings(**values)
    _check_together(settings)
    origins = {name: given[name].origin if name in given else "default" for name in FIELDS}
    return EffectiveSettings(settings, origins, tuple(warnings))


def _from_preset(given: _Layer) -> _Layer:
    """Return the values of the preset that another layer names."""
    if "preset" not in given:
        return {}
    name = str(_checked("preset", given["preset"]))
    return {
        field: _Given(value, f"preset {name}", is_text=False)
        for field, value in PRESETS[name].items()
    }


def _without_effect(given: _Layer) -> list[str]:
    """Warn about explicit settings that another one makes ineffective."""
    idle = [
        (name, "database_url is set: there is no embedded PostgreSQL")
        for name in ("data_dir", "postgres_bin")
        if name in given and "database_url" in given
    ]
    if "peer_port" in given and not given.keys() & {"peers", "peer_secret"}:
        idle.append(("peer_port", "neither peers nor peer_secret is set"))
    return [f"{name} ({given[name].origin}) has no effect: {why}" for name, why in idle]


def _from_file(config_file: Path | None, variables: Mapping[str, str]) -> _Layer:
    if config_file is None and CONFIG_FILE_VARIABLE in variables:
        config_file = Path(variables[CONFIG_FILE_VARIABLE])
    if config_file is None and not DEFAULT_CONFIG_FILE.exists():
        return {}
    path = config_file or DEFAULT_CONFIG_FILE
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"cannot read the settings file {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSettings(f"{path} is not valid TOML: {error}") from error
    for key in table:
        if key not in FIELDS:
            raise InvalidSettings(f"{path}: unknown setting `{key}`{_nearest(key, FIELDS)}")
    return {key: _Given(value, f"file {path}", is_text=False) for key, value in table.items()}


def _from_queen_variables(variables: Mapping[str, str]) -> _Layer:
    return {
        name: _Given(text, f"environment {', '.join(sources)}", is_text=True)
        for name, (text, sources) in translate_queen_variables(variables).items()
    }


def _from_skep_variables(variables: Mapping[str, str]) -> _Layer:
    return {
        name: _Given(variables[variable], f"environment {variable}", is_text=True)
        for variable, name in VARIABLES.items()
        if variable in variables
    }


def _from_flags(flags: Mapping[str, object]) -> _Layer:
    return {
        name: _Given(value, f"flag --{name.replace('_', '-')}", is_text=True)
        for name, value in flags.items()
        if value is not None
    }


def _unknown_variables(variables: Mapping[str, str]) -> list[str]:
    known = {CONFIG_FILE_VARIABLE, *CONNECTION_VARIABLES, *VARIABLES}
    return [
        f"unknown variable {name}{_nearest(name, known)}"
        for name in sorted(variables)
        if name.startswith("SKEP_") and name not in known
    ]


def _ignored_variables(variables: Mapping[str, str]) -> list[str]:
    names = ", ".join(ignored_queen_variables(variables))
    return [f"variables of Queen without an equivalent here are ignored: {names}"] if names else []


def _nearest(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean `{matches[0]}`?" if matches else ""


def _checked(name: str, given: _Given) -> object:
    try:
        return msgspec.convert(
            given.value, FIELDS[name].type, strict=not given.is_text, dec_hook=_decode_path
        )
    except msgspec.ValidationError as error:
        # The value is not quoted: it may be a URL with a password.
        wanted = accepted_values(name)
        raise InvalidSettings(f"{name} ({given.origin}) must be {wanted}") from error


def _decode_path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str | Path):
        # PostgreSQL runs in another working directory.
        return Path(value).expanduser().absolute()
    raise msgspec.ValidationError(f"expected a path, got {type(value).__name__}")


def _check_together(settings: Settings) -> None:
    encryption_keys(settings)  # report a wrong key at startup, not at the first message
    check_security(settings)
    peer_addresses(settings)
    try:
        settings.installation(settings.database_url or "")
    except InvalidSchemaName as error:
        raise InvalidSettings(f"database_schema: {error.message}") from error
    if settings.poll_interval_ms > settings.poll_interval_ms_max:
        raise InvalidSettings(
            f"poll_interval_ms ({settings.poll_interval_ms}) must not exceed "
            f"poll_interval_ms_max ({settings.poll_interval_ms_max})"
        )
