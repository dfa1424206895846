"""Write docs/reference/locks.md from the `Locks` lines of the SQL functions."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ROOT / "src" / "skep" / "db" / "sql" / "functions"
PAGE = ROOT / "docs" / "reference" / "locks.md"
LOCKS = re.compile(r"^-- Locks +(?P<text>\S.*?\n)(?!--  )", re.DOTALL | re.MULTILINE)
INTRODUCTION = """\
# Locks

What each SQL function locks, in order; functions that lock nothing are left out. This page is
generated from the headers of the functions: run `make docs` after changing one.

Locks are taken in one global order, so sessions wait for each other but never in a circle:

1. partitions, in ascending id;
2. then cursors, in ascending (partition, group).

A session that holds a cursor takes partitions only with `skip locked`. Row locks last until the
transaction ends. "As" another function means: what that function locks, in its order.
"""


def locks_of(source: str) -> str:
    """Return what the header of an SQL function says about locks, in one line."""
    found = LOCKS.search(source)
    return " ".join(found["text"].replace("\n--", "").split()).rstrip(".") if found else ""


def render_page() -> str:
    """Return the page: one table for each topic that has functions with locks."""
    topics: dict[str, list[str]] = {}
    paths = sorted(FUNCTIONS.rglob("*.sql"))
    functions = "|".join(path.stem for path in paths if "_" in path.stem)
    named = re.compile(rf"\b(skep\.\w+|{functions})\b")
    for path in paths:
        locks = locks_of(path.read_text())
        if locks and not locks.startswith("none"):
            topic = path.parent.relative_to(FUNCTIONS).as_posix().replace("/", ", ")
            text = named.sub(r"`\1`", locks)
            topics.setdefault(topic, []).append(f"| `{path.stem}` | {text} |\n")
    tables = (
        f"\n## {topic.replace('_', ' ').capitalize()}\n\n"
        f"| function | takes, in order |\n|---|---|\n{''.join(rows)}"
        for topic, rows in sorted(topics.items())
    )
    return INTRODUCTION + "".join(tables)


if __name__ == "__main__":
    PAGE.write_text(render_page())
