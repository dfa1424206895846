"""The built files of the dashboard, read once and kept ready to send.

`read_site` returns None where nothing was built: everything else of a broker works without it.
Files under `assets/` have the hash of their content in their names, so browsers may keep them; the
page that names them must be asked for again each time, which its tag makes cheap.
"""

import gzip
import mimetypes
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

import msgspec

PAGES: Final = (
    "queues",
    "messages",
    "groups",
    "dead-letters",
    "chains",
    "pipelines",
    "traces",
    "streams",
    "operations",
    "system",
    "settings",
)
"""The first segments of the dashboard's addresses; a test compares them with its sources."""

CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Nothing inline, nothing from elsewhere, and no text ever becomes markup."""

_IMMUTABLE: Final = "public, max-age=31536000, immutable"
_SMALL_BYTES: Final = 256
"""Below this compression makes nothing faster."""


class SiteFile(msgspec.Struct, frozen=True):
    """One file as it is sent."""

    body: bytes
    gzipped: bytes | None
    media_type: str
    tag: str
    cache_control: str


class Site(msgspec.Struct, frozen=True):
    """The page, and the files it asks for by their names."""

    page: SiteFile
    assets: Mapping[str, SiteFile]


def read_site(root: Traversable | None = None) -> Site | None:
    """Read what was built, or return None if nothing was."""
    folder = root or resources.files("skep.dashboard").joinpath("site")
    page = folder.joinpath("index.html")
    if not page.is_file():
        return None
    assets = {name: _read(file, _IMMUTABLE) for name, file in _files(folder.joinpath("assets"))}
    return Site(_read(page, "no-cache"), assets)


def _files(folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_file():
            yield entry.name, entry


def _read(file: Traversable, cache_control: str) -> SiteFile:
    body = file.read_bytes()
    gzipped = gzip.compress(body, mtime=0) if len(body) >= _SMALL_BYTES else None
    media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    if media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    return SiteFile(body, gzipped, media_type, tag, cache_control)
