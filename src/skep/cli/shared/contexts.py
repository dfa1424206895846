"""Saved broker connections: each has a name, a URL and perhaps a token.

They are in `contexts.toml` in the user's configuration directory. Tokens are in the system keyring
where `keyring` is installed and has a backend that protects them, otherwise in a file that only its
owner may read; neither is ever printed.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import typer

from skep.model.errors import BadRequest, NotFound, SkepError

KEYRING_SERVICE: Final = "skep"
_TRUSTED_PRIORITY: Final = 1
"""Backends that keep passwords in plain text, or none at all, rank themselves below this."""

Place: TypeAlias = Literal["keyring", "file"]
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class KeyringFailed(SkepError):
    """The system keyring does not answer."""

    code = "keyring_failed"


class KeyringTokens:
    """Tokens in the system keyring."""

    place: Place = "keyring"

    def __init__(self, keyring: Any) -> None:
        self._keyring: Final = keyring

    def get(self, context: str) -> str:
        """Return the token of a context."""
        token = self._ask("get_password", context)
        if token is None:
            raise NotFound(f"the keyring has no token for context {context}; add it again")
        return token

    def put(self, context: str, token: str) -> None:
        """Store a token, replacing the previous one."""
        self._ask("set_password", context, token)

    def remove(self, context: str) -> None:
        """Delete the token of a context, if there is one."""
        if self._ask("get_password", context) is not None:
            self._ask("delete_password", context)

    def _ask(self, method: str, *values: str) -> Any:
        try:
            return getattr(self._keyring, method)(KEYRING_SERVICE, *values)
        except Exception as error:
            raise KeyringFailed(f"the system keyring failed: {error}") from error


class FileTokens:
    """Tokens in a file that only its owner may read."""

    place: Place = "file"

    def __init__(self, path: Path) -> None:
        self._path: Final = path

    def get(self, context: str) -> str:
        """Return the token of a context."""
        tokens = self._read()
        if context not in tokens:
            raise NotFound(f"{self._path} has no token for context {context}; add it again")
        return tokens[context]

    def put(self, context: str, token: str) -> None:
        """Store a token, replacing the previous one."""
        write_private(self._path, toml_table("", {**self._read(), context: token}))

    def remove(self, context: str) -> None:
        """Delete the token of a context, if there is one."""
        tokens = self._read()
        if tokens.pop(context, None) is not None:
            write_private(self._path, toml_table("", tokens))

    def _read(self) -> dict[str, str]:
        if not self._path.exists():
            return {}
        if os.name == "posix" and self._path.stat().st_mode & 0o077:
            raise BadRequest(f"{self._path} is readable by other users: run `chmod 600` on it")
        return read_toml(self._path)


TokenStore: TypeAlias = KeyringTokens | FileTokens


def usable_keyring() -> KeyringTokens | None:
    """Return the system keyring, if it protects what it stores."""
    try:
        import keyring
    except ModuleNotFoundError:
        return None
    backend = keyring.get_keyring()
    return KeyringTokens(backend) if backend.priority >= _TRUSTED_PRIORITY else None


@dataclass(frozen=True, slots=True)
class Context:
    """A saved broker connection."""

    name: str
    url: str
    """One URL, or several instances of one installation separated by commas."""
    token_in: Place | None = None


class ContextBook:
    """A user's contexts. Every change is written at once."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory: Final = directory or Path(typer.get_app_dir("skep"))
        self._path: Final = self._directory / "contexts.toml"
        saved = read_toml(self._path) if self._path.exists() else {}
        self._contexts: Final[dict[str, Context]] = {
            name: Context(name, entry["url"], entry.get("token_in"))
            for name, entry in saved.get("contexts", {}).items()
        }
        self._current: str | None = saved.get("current")

    @property
    def current(self) -> Context | None:
        """The context that commands use by default."""
        return None if self._current is None else self._contexts.get(self._current)

    def all(self) -> list[Context]:
        """Return the contexts, by name."""
        return [self._contexts[name] for name in sorted(self._contexts)]

    def find(self, name: str) -> Context:
        """Return a context."""
        if name not in self._contexts:
            raise NotFound(f"context {name} does not exist; `skep context list` shows the contexts")
        return self._contexts[name]

    def add(self, name: str, url: str, token: str | None) -> Context:
        """Save a context, replacing one of the same name; the first becomes the current one."""
        if not _NAME.fullmatch(name):
            raise BadRequest(
                f"Invalid context name: {name!r}. Use letters, digits, dots, dashes and underscores"
            )
        for each in split_urls(url):
            check_url(each)
        if name in self._contexts:
            self._forget_token(self._contexts[name])
        place = None if token is None else self._keep_token(name, token)
        self._contexts[name] = Context(name, url, place)
        self._current = self._current or name
        self._write()
        return self._contexts[name]

    def use(self, name: str) -> None:
        """Make a context the current one."""
        self._current = self.find(name).name
        self._write()

    def remove(self, name: str) -> None:
        """Delete a context and its token."""
        context = self.find(name)
        self._forget_token(context)
        del self._contexts[name]
        if self._current == name:
            self._current = None
        self._write()

    def token_of(self, context: Context) -> str | None:
        """Return the token of a context; None if it has none."""
        return None if context.token_in is None else self._store(context.token_in).get(context.name)

    def _keep_token(self, name: str, token: str) -> Place:
        store: TokenStore = usable_keyring() or self._file()
        try:
            store.put(name, token)
        except KeyringFailed:  # for example locked, without a user to unlock it
            store = self._file()
            store.put(name, token)
        return store.place

    def _forget_token(self, context: Context) -> None:
        if context.token_in is not None:
            self._store(context.token_in).remove(context.name)

    def _store(self, place: Place) -> TokenStore:
        return self._file() if place == "file" else self._keyring()

    def _file(self) -> FileTokens:
        return FileTokens(self._directory / "tokens.toml")

    def _keyring(self) -> KeyringTokens:
        found = usable_keyring()
        if found is None:
            raise KeyringFailed("the token is in the system keyring, which is not available")
        return found

    def _write(self) -> None:
        head = {} if self._current is None else {"current": self._current}
        tables = [toml_table("", head)]
        for context in self.all():
            place = {} if context.token_in is None else {"token_in": context.token_in}
            tables.append(toml_table(f'contexts."{context.name}"', {"url": context.url, **place}))
        write_private(self._path, "\n".join(tables))


def split_urls(text: str) -> tuple[str, ...]:
    """Split URLs at commas."""
    return tuple(each.strip() for each in text.split(",") if each.strip())


def check_url(url: str) -> None:
    """Check that a URL can be one of a broker."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not url.isprintable():
        raise BadRequest(f"Invalid broker URL: {url!r}. Use a URL such as http://127.0.0.1:6632")


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadRequest(f"cannot read {path}: {error}") from error


def toml_table(name: str, values: Mapping[str, str]) -> str:
    """Return a TOML table of strings; without a name, the one at the top of a file."""
    import json

    # A JSON string is a TOML string, except for DEL, which JSON does not escape.
    def spell(text: str) -> str:
        return json.dumps(text).replace("\x7f", "\\u007f")

    head = f"[{name}]\n" if name else ""
    return head + "".join(f"{spell(key)} = {spell(value)}\n" for key, value in values.items())


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically by one that only its owner may read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 (a descriptor, no path)
        file.write(text)
    draft.replace(path)
