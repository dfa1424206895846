"""Small programs in front of Java and Python that drop arguments Spark passes them needlessly.

Each is kept in a directory named after its text: it is written once, and never changes under a
running Spark.

Spark puts its own copy of PySpark, a zip of sources, in front of everything: every process compiles
what it imports from there, half a second of CPU time and as long a wait before a stream begins.
Where the installed PySpark is what Spark was started from, the two are the same, and workers get a
small program that takes the copy out of the path and becomes this Python.
"""

import importlib.util
import shlex
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final


def written_program(text: str, cache: Path, name: str) -> Path:
    """Return `bin/<name>` with this text, below a directory of its own in the cache."""
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


_PACKAGES: Final = ("pyspark", "py4j")
_LAUNCHER: Final = """\
#!/bin/sh
# Runs this Python without Spark's own copy of the PySpark that is installed: that has no compiled
# modules.
kept=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) kept=$kept${{kept:+:}}$entry ;;
  esac
done
PYTHONPATH=$kept exec {python} "$@"
"""


def worker_python(environment: Mapping[str, str], *, cache: Path | None = None) -> str:
    """Return the program to run Python with in processes that Spark starts here."""
    # Another Spark than the installed one must get the modules that belong to it.
    if "SPARK_HOME" in environment or not all(map(_is_installed, _PACKAGES)):
        return sys.executable
    text = _LAUNCHER.format(python=shlex.quote(sys.executable))
    try:
        return str(written_program(text, cache or default_cache(environment), "python"))
    except OSError:
        return sys.executable  # slower, but it works


def _is_installed(package: str) -> bool:
    """Tell whether a package is found without any help of `PYTHONPATH`."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return False
    home = Path(found.origin).parent.parent
    return home in {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
