"""What commands print."""

import io
import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from rich import console as rich_console

from skep.cli.shared.output import print_record, print_rows
from skep.cli.shared.spelling import heading, last_line, spell, spell_bytes, spell_moment

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
ROWS = [
    {"name": "a", "size": 1234, "inner": {"isIt": True}, "note": None},
    {"name": "[red]b[/red]", "size": 5, "inner": {"isIt": False}, "note": "long " * 60},
]


def text_of(name, value, *, is_exact=False):
    return spell(name, value, is_exact=is_exact, now=NOW).text


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 60 columns; what was printed on it."""
    screen = io.StringIO()
    real = rich_console.Console

    def on_screen(**settings):
        return real(file=screen, force_terminal=True, width=60, color_system="standard", **settings)

    monkeypatch.setattr(rich_console, "Console", on_screen)
    return screen


def test_a_table_shows_the_chosen_columns_one_row_per_line(capsys):
    print_rows(ROWS, ("name as row", "size", "inner.isIt"), "table")

    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["Row", "Size", "It"]
    assert first.split() == ["a", "1,234", "yes"]
    assert second.split() == ["[red]b[/red]", "5", "no"]
    assert first.index("1,234") + len("1,234") == second.index("5") + 1


def test_long_cells_are_not_cut_in_a_pipe(capsys):
    print_rows(ROWS, ("note",), "table")

    assert ("long " * 60).strip() in capsys.readouterr().out


def test_in_a_terminal_rows_are_lines_and_names_stay_whole(terminal):
    print_rows([{"name": "n" * 30, "error": "why " * 30}], ("name", "error"), "table")

    _, row = terminal.getvalue().splitlines()
    assert "n" * 30 in row
    assert row.endswith("…")


def test_a_state_has_the_colour_of_what_it_means(terminal):
    print_rows([{"state": "failed"}, {"state": "running"}], ("state",), "table")

    _, failed, running = terminal.getvalue().splitlines()
    assert (failed, running) == ("\x1b[31mfailed\x1b[0m", "\x1b[32mrunning\x1b[0m")


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_machine_formats_have_everything(capsys, output):
    print_rows(ROWS, ("name",), output)

    said = capsys.readouterr().out
    assert (json.loads(said) if output == "json" else yaml.safe_load(said)) == ROWS


def test_ndjson_has_a_row_per_line(capsys):
    print_rows(iter(ROWS), ("name",), "ndjson")

    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_an_empty_list_is_an_empty_list(capsys):
    print_rows([], ("name",), "json")
    assert json.loads(capsys.readouterr().out) == []
    print_rows([], ("name",), "ndjson")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("output", ["json", "ndjson", "yaml"])
def test_a_record_is_one_value(capsys, output):
    print_record({"a": [1]}, output)

    assert yaml.safe_load(capsys.readouterr().out) == {"a": [1]}


def test_a_record_for_people_has_a_line_per_member_that_has_a_value(capsys):
    print_record({"queued": 3, "note": None, "lastError": "one\ntwo"}, "table")

    assert capsys.readouterr().out.splitlines() == [
        "Queued      3",
        "Last error  one",
        "            two",
    ]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("messages.deadLetter", "Dead letter"),
        ("isPaused", "Paused"),
        ("createdAt", "Created"),
        ("last_seen", "Last seen"),
        ("transactionId", "Transaction ID"),
        ("timeLagSeconds as oldest", "Oldest"),
    ],
)
def test_a_heading_is_made_of_words(column, text):
    assert heading(column) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (40, "40 s ago"),
        (180, "3 min ago"),
        (7200, "2 h ago"),
        (3 * 86_400, "3 d ago"),
        (-90, "in 1 min"),
        (40 * 86_400, "2026-05-22"),
    ],
)
def test_a_time_is_relative_to_now(seconds, text):
    assert spell_moment(NOW - timedelta(seconds=seconds), NOW) == text


def test_values_have_units_that_their_names_tell():
    assert text_of("lagSeconds", 900) == "15 min"
    assert text_of("state_bytes", 3 << 20) == "3.0 MiB"
    assert text_of("failedAt", "2026-07-01T11:57:00Z") == "3 min ago"
    assert [text_of("x", value) for value in (None, True, 1.5, [1])] == ["", "yes", "1.50", "[1]"]


def test_what_is_exact_is_as_on_the_wire():
    assert text_of("lagSeconds", 900, is_exact=True) == "900"
    assert text_of("failedAt", "2026-07-01T11:57:00Z", is_exact=True) == "2026-07-01T11:57:00Z"


def test_the_default_group_has_a_name_that_people_know():
    assert text_of("name", "__QUEUE_MODE__") == "default group"


@pytest.mark.parametrize(("size", "text"), [(7, "7 B"), (2048, "2.0 KiB"), (5 << 40, "5.0 TiB")])
def test_a_size_has_a_fitting_unit(size, text):
    assert spell_bytes(size) == text


def test_the_line_that_says_what_happened_is_the_last_of_a_stack_and_the_first_of_other_text():
    assert (
        last_line("Traceback (most recent call last):\n  a\nValueError: no\n") == "ValueError: no"
    )
    assert last_line("no\nbecause") == "no"
