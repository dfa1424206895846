"""What commands print."""

import json

import pytest
import yaml

from skep.cli.shared.output import cell, print_record, print_rows

ROWS = [
    {"name": "a", "size": 1234, "inner": {"x": True}, "note": None},
    {"name": "[red]b[/red]", "size": 5, "inner": {"x": False}, "note": "long " * 60},
]


def test_a_table_shows_the_chosen_columns_one_row_per_line(capsys):
    print_rows(ROWS, ("name", "size", "inner.x"), "table")

    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "size", "x"]
    assert first.split() == ["a", "1,234", "yes"]
    assert second.split() == ["[red]b[/red]", "5", "no"]


def test_long_cells_are_not_cut_in_a_pipe(capsys):
    print_rows(ROWS, ("note",), "table")

    assert ("long " * 60).strip() in capsys.readouterr().out


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


def test_a_record_for_people_has_a_line_per_member(capsys):
    print_record({"queued": 3, "note": None}, "table")

    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["queued", "3"],
        ["note"],
    ]


def test_cells_are_short():
    assert [cell(value) for value in (None, True, 1.5, [1])] == ["", "yes", "1.50", "[1]"]
