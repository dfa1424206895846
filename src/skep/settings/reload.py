"""Which settings take effect without a restart.

SIGHUP makes `skep serve` read its settings again. Those listed here are passed on to the worker
processes; a change of any other is named and waits for a restart. The environment and the flags of
a running process do not change, so what is reloaded comes from the files.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from skep.settings.fields import Settings

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
"""Settings that a running instance can follow. The file with keys is read again in any case."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The settings of a running instance after a reload."""

    settings: Settings
    changed: tuple[str, ...]
    needing_restart: tuple[str, ...]


def reloaded(current: Settings, wanted: Settings) -> Reloaded:
    """Take over what can be, and name what cannot."""
    before: dict[str, Any] = msgspec.structs.asdict(current)
    after: dict[str, Any] = msgspec.structs.asdict(wanted)
    different = {name: value for name, value in after.items() if value != before[name]}
    taken = {name: value for name, value in different.items() if name in RELOADABLE}
    return Reloaded(
        msgspec.structs.replace(current, **taken),
        changed=tuple(sorted(taken)),
        needing_restart=tuple(sorted(different.keys() - taken.keys())),
    )
