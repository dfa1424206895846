"""The broker is an extra of the package: commands that need it say so when it is missing."""

from importlib.util import find_spec
from typing import Final

from skep.model.errors import Refused

SERVER_EXTRA: Final = (
    "cryptography",
    "httptools",
    "jsonschema_rs",
    "litestar",
    "numpy",
    "uvicorn",
    "websockets",
    "xxhash",
)
"""What the broker imports beyond a bare install."""


class ServerExtraMissing(Refused):
    """The broker is not installed: run `pip install "skep[server]"`."""

    code = "server_extra_missing"


def require_server_extra() -> None:
    """Make sure that what serves HTTP is installed.

    Raises:
        ServerExtraMissing: It is not.
    """
    if not all(find_spec(module) for module in SERVER_EXTRA):
        raise ServerExtraMissing
