"""Listings of any length: no more is fetched than is printed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.cli.shared.output import Pages, by_offset, print_found, print_pages


class Rows:
    """So many rows, and how many were asked for at a time."""

    def __init__(self, count):
        self.count = count
        self.asked = []

    def fetch(self, limit, offset):
        self.asked.append(limit)
        return [{"n": n} for n in range(offset, min(offset + limit, self.count))]


def numbers(pages):
    return [row["n"] for page in pages for row in page]


@given(
    count=st.integers(0, 3_500),
    limit=st.none() | st.integers(1, 3_500),
    offset=st.integers(0, 3_500),
)
def test_a_listing_has_the_rows_from_its_start_to_its_limit(count, limit, offset):
    rows = Rows(count)

    found = numbers(Pages(by_offset(rows.fetch), limit=limit, start=str(offset)))

    last = count if limit is None else min(count, offset + limit)
    assert found == list(range(offset, last))
    assert max(rows.asked) <= 1000


def test_the_next_page_is_fetched_when_it_is_asked_for():
    rows = Rows(5_000)
    pages = iter(Pages(by_offset(rows.fetch), limit=None))

    next(pages)

    assert rows.asked == [1000]


def test_a_page_without_rows_may_be_followed_by_others():
    answers = iter([([], "a"), ([{"n": 1}], "b"), ([], None)])

    assert numbers(Pages(lambda *_: next(answers), limit=None)) == [1]


def test_a_listing_that_was_cut_says_where_it_goes_on(capsys):
    rows = Rows(10)

    print_pages(Pages(by_offset(rows.fetch), limit=3), ("n",), "table", empty="no row")

    said = capsys.readouterr()
    assert said.out.split() == ["N", "0", "1", "2"]
    assert "--offset 3" in said.err


@pytest.mark.parametrize("output", ["json", "ndjson", "yaml"])
def test_programs_are_not_told_so(output, capsys):
    print_pages(Pages(by_offset(Rows(10).fetch), limit=3), ("n",), output, empty="no row")

    assert capsys.readouterr().err == ""


def test_an_empty_listing_is_said_and_still_a_document(capsys):
    print_found([], ("n",), "json", empty="no row is there")
    assert json.loads(capsys.readouterr().out) == []

    print_found([], ("n",), "table", empty="no row is there")
    assert capsys.readouterr().err == "No row is there\n"
