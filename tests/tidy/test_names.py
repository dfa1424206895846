"""Names and leftovers. The direction of imports is checked by `make lint`, not here."""

import re
from collections import Counter

import pytest

from tests.tidy.tree import ROOT, documents, files, python_files, short, sql_files

VAGUE = {"util", "utils", "manager", "common", "helper", "helpers", "misc"}
VERSIONED = re.compile(r"\b\w+_v[0-9]+\b")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
MACHINE_PATH = re.compile(r"(?:^|[^\w.-])/(?:work|root|home/\w+|tmp/venv)/")
REGISTRY = re.compile(r"index-url|find-links|https?://(?:[\w.-]+\.)?(?:pypi|npmjs)\.")


def texts():
    configuration = [ROOT / name for name in ("Makefile", "pyproject.toml", "constraints.txt")]
    scripts = files(".ci", suffix="run")
    return [*python_files(), *sql_files(), *documents(), *configuration, *scripts]


def offenders(pattern):
    return [
        f"{short(path)}:{number}: {line.strip()}"
        for path in texts()
        if path.name != "test_names.py"  # which contains what it looks for
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_module_has_a_name_that_says_nothing():
    vague = [short(path) for path in python_files() if VAGUE & set(path.stem.split("_"))]

    assert vague == []


@pytest.mark.parametrize(
    "pattern", [VERSIONED, UNFINISHED, MACHINE_PATH, REGISTRY], ids=lambda each: each.pattern[:24]
)
def test_nothing_of_the_kind_is_left_anywhere(pattern):
    assert offenders(pattern) == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (VERSIONED, "skep.push_v2(items)"),
        (UNFINISHED, "# FIXME: later"),
        (MACHINE_PATH, "cd /" + "work/main"),
        (REGISTRY, "--index-url somewhere"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern, line):
    assert pattern.search(line)


def test_no_test_waits_by_sleeping():
    sleep = re.compile(r"\btime\.sleep\(")

    assert [line for line in offenders(sleep) if line.startswith("tests/")] == []


def test_no_two_files_of_tests_have_one_name():
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))

    assert [name for name, count in names.items() if count > 1] == []
