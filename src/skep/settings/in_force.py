"""The settings that a process runs with, and where each came from, to be shown."""

from collections.abc import Mapping

from skep.settings.fields import FIELDS, Settings, description

RELOADED = "reload"
"""The origin of a value that was read again while the broker ran."""


class SettingsInForce:
    """What a process was started with, and what it followed since."""

    def __init__(self, settings: Settings, origins: Mapping[str, str]) -> None:
        self._settings = settings
        self._origins = dict(origins)

    def replace(self, settings: Settings) -> None:
        """Take note of settings that are followed from now on."""
        for name in FIELDS:
            if getattr(settings, name) != getattr(self._settings, name):
                self._origins[name] = RELOADED
        self._settings = settings

    def listed(self) -> list[tuple[str, str | int | float | None, str, str]]:
        """Return name, value, origin and meaning of each, passwords hidden."""
        return [
            (name, value, self._origins.get(name, "default"), description(name))
            for name, value in self._settings.printable().items()
        ]
