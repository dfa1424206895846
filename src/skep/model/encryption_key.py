"""A key for encrypting payloads, as settings read it and encryption uses it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A key and the name it is known by."""

    id: str
    secret: bytes = field(repr=False)
