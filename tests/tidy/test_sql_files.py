"""SQL functions: each file describes its function, and nothing is missing or left over."""

import re

from tests.tidy.tree import SQL, python_files, short, sql_files
from tools.generate_lock_reference import PAGE, locks_of, render_page

FUNCTION_FILES = sorted((SQL / "functions").rglob("*.sql"))
FUNCTIONS = {path.stem for path in FUNCTION_FILES}
KV = {"kv_put", "kv_put_if_absent", "kv_incr", "kv_delete", "kv_check"}
FOR_APPLICATIONS = {"push", "stage", *KV}
"""Functions that are there for statements of users."""
HEADER = re.compile(r"\A-- (?P<name>\w+): .+\n(?:-- .+\n)+")
COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)


def code_of(path):
    return COMMENT.sub(" ", path.read_text())


def names_function(text, name):
    return f"skep.{name}(" in text or f'"{name}"' in text


def tables_and_views():
    created = re.compile(r"create (?:unlogged )?(?:table|view)(?: if not exists)? skep\.(\w+)")
    return {name for path in sql_files() for name in created.findall(path.read_text())}


def missing_from_header(path):
    """Return what the comment at the top of a function's file lacks."""
    header = HEADER.match(path.read_text())
    if not header or header["name"] != path.stem:
        return ["the comment `-- name: what it does ...`"]
    code = code_of(path)
    parts = ["Why"] + ["Returns"] * ("returns void" not in code) + ["Locks"] * takes_locks(code)
    return [part for part in parts if not re.search(rf"^-- {part} +\S", header[0], re.MULTILINE)]


def takes_locks(code):
    """Tell whether SQL writes or locks rows; functions that only read say nothing about locks."""
    words = r"\b(insert into|update|delete from|for (key )?share|lock table|pg_advisory\w*)\b"
    return re.search(words, code) is not None


def test_every_function_opens_with_its_contract():
    missing = {short(path): missing_from_header(path) for path in FUNCTION_FILES}

    assert len(missing) > 300
    assert {path: parts for path, parts in missing.items() if parts} == {}


def test_a_file_creates_the_function_it_is_named_after():
    def created_by(path):  # twice and more for the kinds of its arguments
        return set(re.findall(r"create (?:or replace )?function skep\.(\w+)", code_of(path)))

    assert [short(path) for path in FUNCTION_FILES if created_by(path) != {path.stem}] == []


def test_every_function_is_called():
    callers = [(path, path.read_text()) for path in python_files() if "tests" not in path.parts]
    callers += [(path, code_of(path)) for path in sql_files()]

    idle = [
        name
        for name in sorted(FUNCTIONS - FOR_APPLICATIONS)
        if not any(names_function(text, name) for path, text in callers if path.stem != name)
    ]

    assert idle == []


def test_every_function_that_python_calls_exists():
    # A parameter or nothing between the brackets makes it a call in SQL and not in Python.
    call = re.compile(
        r'\bskep\.(\w+)\((?=\$|\))|(?:\b_?sql\.(?:rows?|value)|statement_of)\(\s*"(\w+)"'
    )
    sources = [path for path in python_files() if "tests" not in path.parts]

    found = [name for path in sources for names in call.findall(path.read_text()) for name in names]
    called = set(found) - {""}

    assert called - FUNCTIONS == set()
    assert called, "the pattern finds no call at all"


def test_every_function_that_sql_calls_exists():
    call = re.compile(r"\bskep\.(\w+)\(")

    called = {name for path in sql_files() for name in call.findall(code_of(path))}

    assert called - FUNCTIONS - tables_and_views() == set()


def test_what_stores_messages_has_its_transaction_id_before_it_reads_the_clock():
    """Else a time could be called safe, see mark_time, and a message of it be committed later."""
    storing = [path for path in FUNCTION_FILES if "insert into skep.segment " in code_of(path)]

    def reads_the_clock_first(path):
        code = code_of(path)
        clock = code.find("skep.now()")
        return clock >= 0 and not 0 <= code.find("pg_current_xact_id()") < clock

    assert {"push_guaranteed", "push_to_poll"} <= {path.stem for path in storing}
    assert [short(path) for path in storing if reads_the_clock_first(path)] == []


def test_the_page_of_the_locks_is_current():
    assert PAGE.read_text() == render_page(), "run `make docs`"


def test_locks_may_span_several_lines():
    header = "-- f: x.\n-- Locks   a, then\n--         b.\n-- Why     c.\n"

    assert locks_of(header) == "a, then b"
