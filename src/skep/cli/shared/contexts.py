"""Contexts: brokers that a person speaks to, each with a name, a URL and perhaps a token.

They stand in `contexts.toml` in the user's configuration directory; tokens stand elsewhere (see
`token_stores`), and the file says where.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from skep.cli.shared.token_stores import (
    FileTokens,
    KeyringFailed,
    KeyringTokens,
    Place,
    TokenStore,
    read_toml,
    toml_table,
    usable_keyring,
    write_private,
)
from skep.model.errors import BadRequest, NotFound

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Context:
    """A broker that somebody speaks to."""

    name: str
    url: str
    """One URL, or those of several instances of one installation with commas between them."""
    token_in: Place | None = None


class ContextBook:
    """The contexts of a user. Every change is written at once."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory: Final = directory or Path(typer.get_app_dir("skep"))
        self._path: Final = self._directory / "contexts.toml"
        told = read_toml(self._path) if self._path.exists() else {}
        self._contexts: Final[dict[str, Context]] = {
            name: Context(name, entry["url"], entry.get("token_in"))
            for name, entry in told.get("contexts", {}).items()
        }
        self._current: str | None = told.get("current")

    @property
    def current(self) -> Context | None:
        """The context that is used when nothing else is said."""
        return None if self._current is None else self._contexts.get(self._current)

    def all(self) -> list[Context]:
        """Return the contexts, by name."""
        return [self._contexts[name] for name in sorted(self._contexts)]

    def find(self, name: str) -> Context:
        """Return a context.

        Raises:
            NotFound: There is none of this name.
        """
        if name not in self._contexts:
            raise NotFound(f"there is no context {name}; `skep context list` shows them")
        return self._contexts[name]

    def add(self, name: str, url: str, token: str | None) -> Context:
        """Keep a context, instead of one of the same name; the first one becomes the current."""
        if not _NAME.fullmatch(name):
            raise BadRequest("the name of a context has letters, digits, dots, dashes, underscores")
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
        """Forget a context and its token."""
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
        except KeyringFailed:  # locked, or nobody there to unlock it: the file will do
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
            raise KeyringFailed("the token is in the keyring of the system, which is not usable")
        return found

    def _write(self) -> None:
        head = {} if self._current is None else {"current": self._current}
        tables = [toml_table("", head)]
        for context in self.all():
            place = {} if context.token_in is None else {"token_in": context.token_in}
            tables.append(toml_table(f'contexts."{context.name}"', {"url": context.url, **place}))
        write_private(self._path, "\n".join(tables))


def split_urls(text: str) -> tuple[str, ...]:
    """Return the URLs of a text that may name several, with commas between them."""
    return tuple(each.strip() for each in text.split(",") if each.strip())


def check_url(url: str) -> None:
    """Make sure that a URL can be one of a broker.

    Raises:
        BadRequest: It cannot.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not url.isprintable():
        raise BadRequest(f"{url!r} is not the URL of a broker, such as http://127.0.0.1:6632")
