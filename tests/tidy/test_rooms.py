"""The tree is the map: folders that can be overlooked, packages that state their promise."""

import ast
import subprocess
from collections import Counter

from tests.tidy.tree import ROOT, files, python_files, short

MODULES_MAX = 20
FILES_MAX = 26
"""Where a file holds one thing: an SQL function, or the tests of one."""
UNBOUNDED = {"migrations"}
"""An applied migration stays for ever, and its number is its place."""


def crowded(paths, most):
    members = [path for path in paths if path.name not in ("__init__.py", "conftest.py")]
    counts = Counter(path.parent for path in members)
    crowded = [folder for folder, count in counts.items() if count > most]
    return [short(folder) for folder in crowded if folder.name not in UNBOUNDED]


def test_no_folder_has_more_modules_than_a_reader_can_overlook():
    assert crowded(files("src", "examples", "tools", suffix=".py"), MODULES_MAX) == []
    assert crowded(files("src", suffix=".sql") + files("tests", suffix=".py"), FILES_MAX) == []


def test_every_package_says_what_it_promises():
    packages = [path for path in python_files() if path.name == "__init__.py"]

    silent = [path for path in packages if not ast.get_docstring(ast.parse(path.read_text()))]

    assert len(packages) > 60
    assert [short(path) for path in silent] == []


def test_the_repository_has_no_symbolic_links():
    """A link of one machine, such as to the built dashboard, replaces that on others."""
    listing = subprocess.run(
        ["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fails and prints nothing where the sources are no repository

    assert [line for line in listing.stdout.splitlines() if line.startswith("120000")] == []
