"""Which settings take effect without a restart, and which are in force.

On SIGHUP `skep serve` reads its settings again and passes those listed here to the worker
processes; a change of any other needs a restart. The environment and the flags of a running process
do not change, so reloaded values come from files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from skep.settings.fields import FIELDS, Settings, description

RELOADABLE: Final = frozenset(
    {
        "encryption_key_file",
        "encryption_keys",
        "live_connections_max",
        "log_format",
        "log_level",
        "peer_secret",
        "peers",
    }
)
"""The key file is read again even if its name stays the same."""

RELOADED: Final = "reload"
"""The origin of a value that was reloaded."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The settings of a running instance after a reload."""

    settings: Settings
    changed: tuple[str, ...]
    needing_restart: tuple[str, ...]


def reloaded(current: Settings, wanted: Settings) -> Reloaded:
    """Apply the changes that need no restart, and name the others."""
    before: dict[str, Any] = msgspec.structs.asdict(current)
    after: dict[str, Any] = msgspec.structs.asdict(wanted)
    different = {name: value for name, value in after.items() if value != before[name]}
    taken = {name: value for name, value in different.items() if name in RELOADABLE}
    return Reloaded(
        msgspec.structs.replace(current, **taken),
        changed=tuple(sorted(taken)),
        needing_restart=tuple(sorted(different.keys() - taken.keys())),
    )


class SettingsInForce:
    """The settings of a process and the origin of each."""

    def __init__(self, settings: Settings, origins: Mapping[str, str]) -> None:
        self._settings = settings
        self._origins = dict(origins)

    def replace(self, settings: Settings) -> None:
        """Record reloaded settings."""
        for name in FIELDS:
            if getattr(settings, name) != getattr(self._settings, name):
                self._origins[name] = RELOADED
        self._settings = settings

    def listed(self) -> list[tuple[str, str | int | float | None, str, str]]:
        """Return name, value, origin and description of each, with secrets hidden."""
        return [
            (name, value, self._origins.get(name, "default"), description(name))
            for name, value in self._settings.printable().items()
        ]
