"""Words that were replaced stay replaced: docs/adr keep them as the record of their time."""

import re

from tests.tidy.tree import documents, files, short, sql_files

REPLACED = {
    "lane": "partition",
    "lanes": "partitions",
    "vouch": "guarantee",
    "vouches": "guarantees",
    "vouched": "guaranteed",
    "cargo": "work",
    "mend": "fix",
    "mends": "fixes",
    "mended": "fixed",
    "nobody": "no client, no process, none",
    "somebody": "the component that acts",
    "whoever": "the component that acts",
    "manieth": "sequence number",
}
PATTERN = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(REPLACED)})(?![A-Za-z])", re.IGNORECASE)
WIRE = re.compile(r"\blanes\b")
"""The earlier name of `partitionCount`, which answers keep."""
KEEPS_WIRE_NAME = {"src/skep/broker/groups", "CHANGELOG.md", "dashboard/src/api"}


ACCOUNT = re.compile(r"`nobody`|\"nobody\"")
"""The account of that name, which runs PostgreSQL where root starts it."""


def spoken():
    """The files in which Skep speaks to people or to its next developer."""
    adr = "docs/adr/"
    pages = [path for path in documents() if not short(path).startswith(adr)]
    code = files("src", suffix=".py")
    sql = [path for path in sql_files() if path.parent.name != "migrations"]
    dashboard = files("dashboard/src", suffix=".tsx") + files("dashboard/src", suffix=".ts")
    return [*pages, *code, *sql, *dashboard]


def replaced_words(path):
    text = ACCOUNT.sub("", path.read_text())
    if any(short(path).startswith(place) for place in KEEPS_WIRE_NAME):
        text = WIRE.sub("", text)
    for number, line in enumerate(text.splitlines(), start=1):
        for found in PATTERN.findall(line):
            yield f"{short(path)}:{number}: {found} (say {REPLACED[found.lower()]})"


def test_replaced_words_do_not_come_back():
    assert [complaint for path in spoken() for complaint in replaced_words(path)] == []


def test_the_pattern_finds_them_inside_names():
    assert PATTERN.findall("by_lane, Nobody, plane, mended_at, recommended") == [
        "lane",
        "Nobody",
        "mended",
    ]
