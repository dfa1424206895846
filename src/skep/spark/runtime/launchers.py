"""Small programs of ours in front of Java and Python, for what Spark passes them needlessly.

Each is kept in a directory named after its text: it is written once, and never changes under a
Spark that runs.
"""

import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path


def written_program(text: str, cache: Path, name: str) -> Path:
    """Return `bin/<name>` with this text, below a directory of its own in the cache.

    Raises:
        OSError: It cannot be written there.
    """
    home = cache / f"{name}-{sha256(text.encode()).hexdigest()[:16]}"
    program = home / "bin" / name
    if program.is_file():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(0o755)
    # Under its name it is whole, also for who starts at the same moment.
    Path(file.name).replace(program)
    return program


def default_cache(environment: Mapping[str, str]) -> Path:
    """Return the directory for files of ours that can be made again."""
    cache_home = environment.get("XDG_CACHE_HOME")
    return (Path(cache_home) if cache_home else Path.home() / ".cache") / "skep"
