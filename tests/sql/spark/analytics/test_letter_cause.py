import pytest


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("order 17 not found", "order # not found"),
        ("HTTP 503", "HTTP #"),
        (
            "no user 01890000-0000-7000-8000-000000000001 in eu-1",
            "no user # in eu-#",
        ),
        ("digest DEADBEEFdeadbeef00 differs", "digest # differs"),
        ("deadbeef is a word", "deadbeef is a word"),
        ("\n  first line\nTraceback\n", "first line"),
        ("", ""),
        ("x" * 500, "x" * 200),
    ],
)
async def test_what_differs_from_message_to_message_is_left_out(log, error, cause):
    assert await log.value("select skep.letter_cause($1)", error) == cause
