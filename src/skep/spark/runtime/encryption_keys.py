"""The encryption keys of a reader or writer on Spark: from its options, else from the settings."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from skep.settings import Settings, load_settings
from skep.settings.keys import encryption_keys

if TYPE_CHECKING:
    from collections.abc import Callable

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


def lazy_key_ring(keys: str | None, key_file: str | None) -> "Callable[[], KeyRing]":
    """Return what finds the keys when the first message has to be sealed or opened."""
    return cache(lambda: key_ring(keys, key_file))


def key_options(settings: Settings) -> dict[str, str]:
    """Return the encryption keys of the settings as options of the data source."""
    file = settings.encryption_key_file
    options = {"encryptionKeys": settings.encryption_keys, "encryptionKeyFile": file and str(file)}
    return {name: text for name, text in options.items() if text}
