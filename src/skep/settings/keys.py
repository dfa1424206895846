"""Encryption keys, read from the settings.

A key is 64 hexadecimal digits (256 bits), alone or as `<id>:<digits>`. The id is stored with every
message the key encrypts; without one it is derived from the key's hash, so that it is the same on
every instance. No error message and no `repr` shows a key.
"""

import re
from hashlib import sha256
from typing import Final

from skep.model.encryption_key import EncryptionKey
from skep.settings.fields import InvalidSettings, Settings

_SPELLED: Final = re.compile(r"(?:(?P<id>[A-Za-z0-9_.-]{1,32}):)?(?P<digits>[0-9A-Fa-f]{64})")
_BETWEEN: Final = re.compile(r"[\s,]+")
_COMMENT: Final = re.compile(r"#.*")


def encryption_keys(settings: Settings) -> tuple[EncryptionKey, ...]:
    """Return the keys in force, those of the file last; the first one encrypts, all decrypt."""
    keys: dict[str, EncryptionKey] = {}
    texts = {"encryption_keys": settings.encryption_keys or "", **_file_text(settings)}
    for origin, text in texts.items():
        for number, word in enumerate(filter(None, _BETWEEN.split(text)), start=1):
            key = _parse(word, f"key {number} of {origin}")
            known = keys.setdefault(key.id, key)
            if known.secret != key.secret:
                raise InvalidSettings(f"{origin}: two different keys have the id {key.id!r}")
    return tuple(keys.values())


def _file_text(settings: Settings) -> dict[str, str]:
    path = settings.encryption_key_file
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidSettings(
            f"cannot read encryption_key_file {path}: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"encryption_key_file {path} is not text") from error
    text = _COMMENT.sub("", text)
    if not text.strip():
        # An empty file is a failed mount or a failed copy.
        raise InvalidSettings(f"encryption_key_file {path} contains no key")
    return {f"encryption_key_file {path}": text}


def _parse(word: str, origin: str) -> EncryptionKey:
    spelled = _SPELLED.fullmatch(word)
    if spelled is None:
        raise InvalidSettings(
            f"{origin} must be 64 hexadecimal digits, alone or after an id and a colon"
        )
    secret = bytes.fromhex(spelled["digits"])
    return EncryptionKey(spelled["id"] or sha256(secret).hexdigest()[:8], secret)
