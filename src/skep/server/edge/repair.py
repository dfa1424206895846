"""Requests the parser cannot take as they are, spelled so that it can.

Pure functions on bytes. Which requests deserve this, and when it is safe, is the connection's
decision.
"""

import re
from typing import Final

_NON_ASCII: Final = re.compile(rb"[\x80-\xff]")


def escape_target(data: bytes) -> bytes | None:
    """Percent-encode raw UTF-8 in the request line that `data` starts with.

    Returns None when the line is not complete or holds nothing to escape.
    """
    line, separator, rest = data.partition(b"\r\n")
    if not separator or line.isascii():
        return None
    return _NON_ASCII.sub(lambda found: b"%%%02X" % found[0][0], line) + separator + rest


def spell_without_upgrade(
    method: bytes, url: bytes, version: str, headers: list[tuple[bytes, bytes]]
) -> bytes:
    """Spell a request's head again, without its wish to change the protocol."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    for name, value in headers:
        match name.lower():
            case b"upgrade":
                continue
            case b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                kept = b", ".join(token for token in tokens if token.lower() != b"upgrade")
                lines.append(b"connection: " + kept)
            case _:
                lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
