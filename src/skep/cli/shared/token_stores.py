"""Where the tokens of contexts are kept: the keyring of the system, or a file only we may read.

The keyring is used where `keyring` is installed and has a backend that protects what it keeps.
Neither store ever prints a token.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

from skep.model.errors import BadRequest, NotFound, SkepError

KEYRING_SERVICE: Final = "skep"
_TRUSTED_PRIORITY: Final = 1
"""Backends that keep passwords in plain text, or none at all, rank themselves below this."""

Place: TypeAlias = Literal["keyring", "file"]


class KeyringFailed(SkepError):
    """The keyring of the system does not answer."""

    code = "keyring_failed"


class TokenStore(Protocol):
    """Keeps one token per context."""

    place: Place

    def get(self, context: str) -> str:
        """Return the token of a context."""
        ...

    def put(self, context: str, token: str) -> None:
        """Keep a token, instead of the one that was there."""
        ...

    def remove(self, context: str) -> None:
        """Forget the token of a context, if there is one."""
        ...


class KeyringTokens:
    """Tokens in the keyring of the system."""

    place: Place = "keyring"

    def __init__(self, keyring: Any) -> None:
        self._keyring: Final = keyring

    def get(self, context: str) -> str:
        """Return the token of a context.

        Raises:
            NotFound: The keyring has none.
            KeyringFailed: It cannot be asked.
        """
        token = self._ask("get_password", context)
        if token is None:
            raise NotFound(f"the keyring has no token for context {context}; add it again")
        return token

    def put(self, context: str, token: str) -> None:
        """Keep a token, instead of the one that was there."""
        self._ask("set_password", context, token)

    def remove(self, context: str) -> None:
        """Forget the token of a context, if there is one."""
        if self._ask("get_password", context) is not None:
            self._ask("delete_password", context)

    def _ask(self, method: str, *values: str) -> Any:
        try:
            return getattr(self._keyring, method)(KEYRING_SERVICE, *values)
        except Exception as error:  # backends raise what their systems raise
            raise KeyringFailed(f"the keyring of the system failed: {error}") from error


class FileTokens:
    """Tokens in a file that only its owner may read."""

    place: Place = "file"

    def __init__(self, path: Path) -> None:
        self._path: Final = path

    def get(self, context: str) -> str:
        """Return the token of a context.

        Raises:
            NotFound: The file has none.
            BadRequest: Others may read the file.
        """
        tokens = self._read()
        if context not in tokens:
            raise NotFound(f"{self._path} has no token for context {context}; add it again")
        return tokens[context]

    def put(self, context: str, token: str) -> None:
        """Keep a token, instead of the one that was there."""
        write_private(self._path, toml_table("", {**self._read(), context: token}))

    def remove(self, context: str) -> None:
        """Forget the token of a context, if there is one."""
        tokens = self._read()
        if tokens.pop(context, None) is not None:
            write_private(self._path, toml_table("", tokens))

    def _read(self) -> dict[str, str]:
        if not self._path.exists():
            return {}
        if os.name == "posix" and self._path.stat().st_mode & 0o077:
            raise BadRequest(f"others may read {self._path}: run `chmod 600` on it")
        return read_toml(self._path)


def usable_keyring() -> KeyringTokens | None:
    """Return the keyring of the system, if one protects what it keeps."""
    try:
        import keyring
    except ModuleNotFoundError:
        return None
    backend = keyring.get_keyring()
    return KeyringTokens(backend) if backend.priority >= _TRUSTED_PRIORITY else None


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a file says.

    Raises:
        BadRequest: It is not TOML, or cannot be read.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from error


def toml_table(name: str, values: Mapping[str, str]) -> str:
    """Spell a table of texts; the nameless one stands at the top of a file."""
    import json

    # The strings of JSON are strings of TOML, but for a character that JSON leaves alone.
    def spell(text: str) -> str:
        return json.dumps(text).replace("\x7f", "\\u007f")

    head = f"[{name}]\n" if name else ""
    return head + "".join(f"{spell(key)} = {spell(value)}\n" for key, value in values.items())


def write_private(path: Path, text: str) -> None:
    """Replace a file, as a whole or not at all, by one that only its owner may read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 (a descriptor, no path)
        file.write(text)
    draft.replace(path)
