import pytest

TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 1, in f
    g()
ValueError: no honey
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TRACEBACK, "ValueError: no honey"),
        (f"{TRACEBACK}\nDuring handling:\n\n{TRACEBACK}", "ValueError: no honey"),
        ("\nError: no honey\n    at f (a.js:1)", "Error: no honey"),
        ("no honey", "no honey"),
        ("", ""),
        (None, None),
        ("x" * 600, "x" * 500),
    ],
)
async def test_the_line_that_says_what_was_wrong(log, error, line):
    assert await log.value("select skep.error_line($1)", error) == line
