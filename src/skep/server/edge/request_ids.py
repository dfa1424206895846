"""A name for a request whose failure goes to the log, so that its client can be helped.

The client's own `X-Request-Id` is taken if it is harmless; else one is made up. It stands in the
log and in the answer. Requests that go well have none: nobody would look for them.
"""

import re
from typing import Final
from uuid import uuid4

HEADER: Final = "x-request-id"
_HARMLESS: Final = re.compile(rb"[A-Za-z0-9._:/=+-]{1,128}")


def request_id(given: bytes | None) -> str:
    """Return the id a client gave, or a new one."""
    if given is not None and _HARMLESS.fullmatch(given):
        return given.decode()
    return uuid4().hex


def id_line(name: str) -> bytes:
    """Spell the header of an answer."""
    return f"{HEADER}: {name}\r\n".encode()
