"""The encryption keys of a reader or writer on Spark: from its options, else from the settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from skep.settings import Settings, load_settings
from skep.settings.keys import encryption_keys

if TYPE_CHECKING:
    from skep.model.encryption import KeyRing


def key_ring(keys: str | None, key_file: str | None) -> "KeyRing":
    """Return the keys in the options, else those of the settings; raise `InvalidSettings`."""
    from skep.model.encryption import KeyRing  # noqa: PLC0415 (needs a package of an extra)

    settings = load_settings().settings
    if keys or key_file:
        settings = msgspec.structs.replace(
            settings,
            encryption_keys=keys,
            encryption_key_file=None if key_file is None else Path(key_file),
        )
    return KeyRing(encryption_keys(settings))


class LazyKeyRing:
    """The keys that options name, looked for when the first message has to be sealed or opened."""

    def __init__(self, keys: str | None, key_file: str | None) -> None:
        self._arguments: Final = (keys, key_file)
        self._ring: KeyRing | None = None

    def open_envelope(self, envelope: bytes) -> bytes:
        """Return an envelope with its payload decrypted."""
        return self._keys().open_envelope(envelope)

    def seal_envelope(self, envelope: bytes) -> bytes:
        """Return an envelope with its payload encrypted."""
        return self._keys().seal_envelope(envelope)

    def _keys(self) -> "KeyRing":
        if self._ring is None:
            self._ring = key_ring(*self._arguments)
        return self._ring


def key_options(settings: Settings) -> dict[str, str]:
    """Return the encryption keys of the settings as options of the data source."""
    options: dict[str, str] = {}
    if settings.encryption_keys:
        options["encryptionKeys"] = settings.encryption_keys
    if settings.encryption_key_file is not None:
        options["encryptionKeyFile"] = str(settings.encryption_key_file)
    return options
