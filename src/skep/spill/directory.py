"""Where the messages for one installation are kept; a broker that served it made the folder."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import xxhash

from skep.model.schema_name import DEFAULT_SCHEMA
from skep.settings import Settings

EMBEDDED: Final = "embedded"


def spill_directory(settings: Settings) -> Path:
    """Return the directory for the installation of these settings; it ignores the password."""
    root, schema = settings.spill_dir or settings.data_dir / "spill", settings.database_schema
    if settings.database_url is None:
        return root / (EMBEDDED if schema == DEFAULT_SCHEMA else f"{EMBEDDED}-{schema}")
    parts = urlsplit(settings.installation(settings.database_url))
    address = f"{parts.netloc.rpartition('@')[2]}{parts.path}?{parts.query}"
    name = parts.path.strip("/") or "default"
    readable = "".join(each if each.isalnum() or each in "_-" else "_" for each in name)[:40]
    return root / f"{readable}-{xxhash.xxh3_64_hexdigest(address.encode())}"
