"""The table of hot routes, the decoders of request targets and the table of problems."""

from urllib.parse import parse_qsl, quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.errors import (
    BadRequest,
    Congested,
    Defect,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    Refused,
    SkepError,
    Unavailable,
)
from skep.server.hot.exchange import HotRoutes, decode_segment, parse_query
from skep.server.problems import problem_of


def routes():
    table = HotRoutes()
    table.add(b"POST", b"/push", print)
    table.add_prefix(b"GET", b"/pop/", repr)
    table.add_prefix(b"POST", b"/lease/", len, suffix=b"/extend")
    return table


@pytest.mark.parametrize(
    ("method", "path", "handler"),
    [
        (b"POST", b"/push", print),
        (b"GET", b"/push", None),
        (b"POST", b"/push/", None),
        (b"GET", b"/pop/orders/partition/a", repr),
        (b"POST", b"/pop/orders", None),
        (b"POST", b"/lease/1/extend", len),
        (b"POST", b"/lease/1/other", None),
        (b"POST", b"/lease/extend", None),
    ],
)
def test_a_route_is_found_by_its_method_and_path(method, path, handler):
    assert routes().find(method, path) is handler


def test_an_exact_path_goes_before_a_prefix():
    table = routes()
    table.add(b"GET", b"/pop/exact", sum)

    assert table.find(b"GET", b"/pop/exact") is sum


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (b"/push", [b"POST"]),
        (b"/pop/x", [b"GET"]),
        (b"/lease/x/extend", [b"POST"]),
        (b"/lease/x", []),
        (b"/elsewhere", []),
    ],
)
def test_a_path_knows_its_methods(path, methods):
    assert routes().methods(path) == methods


@given(st.text())
def test_a_name_survives_percent_encoding(name):
    assert decode_segment(quote(name, safe="").encode()) == name


@given(st.text())
def test_a_name_may_come_unencoded(name):
    raw = name.replace("%", "")
    assert decode_segment(raw.encode()) == raw


@pytest.mark.parametrize("raw", [b"%FF", b"\xff", b"%C5"])
def test_a_name_that_is_not_utf8_is_refused(raw):
    with pytest.raises(BadRequest, match="UTF-8"):
        decode_segment(raw)
    with pytest.raises(BadRequest, match="UTF-8"):
        parse_query(b"a=" + raw)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_a_query_survives_encoding(parameters):
    assert parse_query(urlencode(parameters).encode()) == parameters


@given(st.text("xy=&+%2", max_size=20))
def test_a_query_is_read_as_the_standard_library_does_except_that_the_first_value_counts(text):
    expected = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        expected.setdefault(name, value)

    assert parse_query(text.encode()) == expected


def test_a_name_that_ends_like_another_is_another():
    assert "queue" not in parse_query(b"xqueue=1")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BadRequest(), 400, "bad_request"),
        (PayloadTooLarge(), 413, "payload_too_large"),
        (NotFound(), 404, "not_found"),
        (Refused(), 409, "refused"),
        (Overloaded(), 429, "overloaded"),
        (Congested(), 503, "congested"),
        (Unavailable(), 503, "unavailable"),
        (Defect("inside"), 500, "defect"),
        (SkepError("inside"), 500, "defect"),
        (ValueError("inside"), 500, "defect"),
    ],
)
def test_every_error_has_its_status_and_code(error, status, code):
    answer = problem_of(error)

    assert answer.status == status
    assert f'"code":"{code}"'.encode() in answer.body
    assert b"inside" not in answer.body


def test_a_new_kind_of_error_is_answered_like_its_parent():
    class TooWide(PayloadTooLarge):
        """Too wide."""

        code = "too_wide"

    answer = problem_of(TooWide())

    assert answer.status == 413
    assert answer.body == b'{"error":"Too wide.","code":"too_wide"}'


@pytest.mark.parametrize(
    ("error", "seconds"), [(Overloaded(retry_after_s=9), 9), (Unavailable(), 1)]
)
def test_what_can_be_repeated_says_when(error, seconds):
    assert problem_of(error).headers == b"retry-after: %d\r\n" % seconds
