"""Encryption of payloads: AES-256-GCM with named keys.

An encrypted message is an envelope that begins with `{"enc":"<key id>",` and whose data is a JSON
string: base64 of nonce, ciphertext and tag. The other members stay in clear, because the broker
needs them. A producer cannot forge the mark: it stands at the start of the envelope, which only
the broker writes; whatever a producer sends comes later, as escaped text or as payload.

What is bound to the ciphertext is its key id and a constant, so a payload cannot be passed off as
sealed by another key or for another purpose. Queue and transaction id are not bound, on purpose:
dead letters and redriven messages keep their sealed payload under another queue and a new
transaction id, and are written by SQL, which has no keys. Who can write to the database can
therefore exchange whole payloads between messages, but neither read nor alter one.

It fails closed. Without a key nothing is sealed and nothing is stored; a payload that does not
open is an error of that message, never an empty or partial one. Nonces are random: a key should
be replaced before it has sealed 2**32 messages, and old keys kept until their messages are gone.
"""

import os
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from skep.model.encryption_key import EncryptionKey
from skep.model.envelopes import DATA_MARK, cut_envelope
from skep.model.errors import Refused

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16

OpenEnvelope: TypeAlias = Callable[[bytes], bytes]
"""Turns a stored envelope into one whose payload can be read, or raises a `SkepError`."""

_MARK: Final = b'{"enc":"'
_CONTEXT: Final = b"skep message payload, key "


class NoEncryptionKey(Refused):
    """This instance has no encryption key: set encryption_keys or encryption_key_file."""

    code: ClassVar[str] = "no_encryption_key"


class CannotDecrypt(Refused):
    """The message cannot be decrypted."""

    code: ClassVar[str] = "cannot_decrypt"


class KeyRing:
    """The keys of this instance: the first encrypts, all decrypt."""

    def __init__(self, keys: Sequence[EncryptionKey]) -> None:
        self._cipher_by_id: dict[str, AESGCM] = {}
        self._current_id: str | None = None
        self.replace(keys)

    def replace(self, keys: Sequence[EncryptionKey]) -> None:
        """Go by other keys from now on."""
        self._cipher_by_id = {key.id: AESGCM(key.secret) for key in keys}
        self._current_id = keys[0].id if keys else None

    @property
    def can_encrypt(self) -> bool:
        """Whether there is a key."""
        return self._current_id is not None

    def seal_envelope(self, envelope: bytes) -> bytes:
        """Return an envelope with its payload sealed; one that is sealed stays as it is."""
        if envelope.startswith(_MARK):
            return envelope
        key_id = self._current_id
        if key_id is None:
            raise NoEncryptionKey
        head, payload = cut_envelope(envelope)
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher_by_id[key_id].encrypt(nonce, payload, _associated(key_id))
        return b'%b%b",%b%b"%b"}' % (
            _MARK,
            key_id.encode(),
            head[1:],
            DATA_MARK,
            b2a_base64(nonce + sealed, newline=False),
        )

    def open_envelope(self, envelope: bytes) -> bytes:
        """Return an envelope without its mark and with its payload as the producer sent it.

        An envelope that is not sealed is returned as it is.
        """
        if not envelope.startswith(_MARK):
            return envelope
        head, data = cut_envelope(envelope)
        key_id, _, members = head[len(_MARK) :].partition(b'",')
        return b"{%b%b%b}" % (members, DATA_MARK, self._open(key_id.decode(), data))

    def _open(self, key_id: str, data_json: bytes) -> bytes:
        cipher = self._cipher_by_id.get(key_id)
        if cipher is None:
            raise CannotDecrypt(
                f"the message is encrypted with key {key_id!r}, which this instance does not have"
            )
        try:
            sealed = a2b_base64(data_json[1:-1], strict_mode=True)
        except NotBase64:
            sealed = b""
        if len(sealed) < NONCE_BYTES + TAG_BYTES:
            raise CannotDecrypt(f"the message encrypted with key {key_id!r} is damaged")
        try:
            return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _associated(key_id))
        except InvalidTag:
            raise CannotDecrypt(
                f"the message does not open with key {key_id!r}: it was altered, or another key "
                "has this id"
            ) from None


def is_sealed(envelope: bytes) -> bool:
    """Tell whether the payload of an envelope is encrypted."""
    return envelope.startswith(_MARK)


def _associated(key_id: str) -> bytes:
    return _CONTEXT + key_id.encode()
