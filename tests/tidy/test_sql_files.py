"""SQL functions: each file describes its function, and nothing is missing or left over."""

import re

import pytest

from tests.tidy.tree import SQL, python_files, short, sql_files

FUNCTION_FILES = sorted((SQL / "functions").glob("*.sql"))
FUNCTIONS = {path.stem for path in FUNCTION_FILES}
FOR_APPLICATIONS = {"push", "stage"}
"""Functions that are there for statements of users."""
HEADER = re.compile(r"\A/\*\n(?P<name>\w+): .+?\n\*/\n", re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)


def code_of(path):
    return COMMENT.sub(" ", path.read_text())


def tables_and_views():
    created = re.compile(r"create (?:unlogged )?(?:table|view)(?: if not exists)? skep\.(\w+)")
    return {name for path in sql_files() for name in created.findall(path.read_text())}


@pytest.mark.parametrize("path", FUNCTION_FILES, ids=short)
def test_a_function_opens_with_its_contract(path):
    header = HEADER.match(path.read_text())

    assert header, "the file does not begin with a comment `/* name: what it does ... */`"
    assert header["name"] == path.stem
    for part in ("Takes", "Returns", "Locks", "Why"):
        assert re.search(rf"^{part} +\S", header[0], re.MULTILINE), f"no line `{part}`"


@pytest.mark.parametrize("path", FUNCTION_FILES, ids=short)
def test_a_file_creates_the_function_it_is_named_after(path):
    created = re.findall(r"create (?:or replace )?function skep\.(\w+)", code_of(path))

    assert set(created) == {path.stem}  # twice and more for the kinds of its arguments


def test_every_function_is_called():
    callers = [(path, path.read_text()) for path in python_files() if "tests" not in path.parts]
    callers += [(path, code_of(path)) for path in sql_files()]

    idle = [
        name
        for name in sorted(FUNCTIONS - FOR_APPLICATIONS)
        if not any(f"skep.{name}(" in text for path, text in callers if path.stem != name)
    ]

    assert idle == []


def test_every_function_that_python_calls_exists():
    # A parameter or nothing between the brackets makes it a call in SQL and not in Python.
    call = re.compile(r"\bskep\.(\w+)\((?=\$|\))")
    sources = [path for path in python_files() if "tests" not in path.parts]

    called = {name for path in sources for name in call.findall(path.read_text())}

    assert called - FUNCTIONS == set()
    assert called, "the pattern finds no call at all"


def test_every_function_that_sql_calls_exists():
    call = re.compile(r"\bskep\.(\w+)\(")

    called = {name for path in sql_files() for name in call.findall(code_of(path))}

    assert called - FUNCTIONS - tables_and_views() == set()
