"""Where an instance keeps pushes while its database is away.

Each installation has a folder of its own, so that what was meant for one never reaches another. All
processes of a machine that use the same one share it, whichever instance they belong to.
"""

import logging
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import xxhash

from skep.model.schema_name import DEFAULT_SCHEMA
from skep.settings import Settings
from skep.spill.log import SpillLog

_log = logging.getLogger(__name__)

EMBEDDED: Final = "embedded"


def spill_directory(settings: Settings) -> Path:
    """Return the folder for the installation of these settings; the password has no part in it."""
    root, schema = settings.spill_dir or settings.data_dir / "spill", settings.database_schema
    if settings.database_url is None:
        return root / (EMBEDDED if schema == DEFAULT_SCHEMA else f"{EMBEDDED}-{schema}")
    parts = urlsplit(settings.installation(settings.database_url))
    address = f"{parts.netloc.rpartition('@')[2]}{parts.path}?{parts.query}"
    name = parts.path.strip("/") or "default"
    readable = "".join(each if each.isalnum() or each in "_-" else "_" for each in name)[:40]
    return root / f"{readable}-{xxhash.xxh3_64_hexdigest(address.encode())}"


def open_spill(settings: Settings) -> SpillLog | None:
    """Open the spill of these settings; None, and a warning, when it cannot be used."""
    if not settings.spill_bytes_max:
        return None
    directory = spill_directory(settings)
    try:
        spill = SpillLog(directory, bytes_max=settings.spill_bytes_max)
    except OSError as error:
        _log.warning(
            "%s cannot be used (%s): pushes will fail while PostgreSQL is away; set spill_dir",
            directory,
            error,
        )
        return None
    _log.debug("pushes are kept in %s while PostgreSQL is away", directory)
    return spill
