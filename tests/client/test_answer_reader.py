"""Answers are cut out of the bytes, however they arrive."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.client.http import HEAD_BYTES_MAX, AnswerReader, BadAnswer, render_header, render_request


def pieces(data, cuts):
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


def feed(reader, parts):
    answers = [reader.feed(part) for part in parts]
    return [answer for answer in answers if answer is not None]


@given(
    body=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 1000), max_size=8),
    chunk=st.integers(1, 50),
    is_chunked=st.booleans(),
)
def test_an_answer_is_the_same_however_its_bytes_are_split(body, cuts, chunk, is_chunked):
    if is_chunked:
        parts = [body[start : start + chunk] for start in range(0, len(body), chunk)]
        coded = b"".join(b"%x;note\r\n%b\r\n" % (len(part), part) for part in parts)
        data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + coded + b"0\r\n\r\n"
    else:
        data = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    reader = AnswerReader()
    (answer,) = feed(reader, pieces(data, cuts))

    assert (answer.status, answer.body) == (200, body)
    assert reader.is_reusable


def test_answers_follow_each_other_on_one_connection():
    reader = AnswerReader()

    first = reader.feed(b"HTTP/1.1 204 No Content\r\n\r\n")
    second = reader.feed(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}")

    assert first is not None
    assert (first.status, first.body) == (204, b"")
    assert second is not None
    assert (second.status, second.body) == (404, b"{}")


def test_an_answer_without_a_length_ends_with_its_connection():
    reader = AnswerReader()

    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\npart") is None
    assert reader.feed(b"s") is None
    answer = reader.end()

    assert answer is not None
    assert answer.body == b"parts"
    assert not reader.is_reusable


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0",
    ],
)
def test_a_connection_that_ends_after_its_answer_is_not_used_again(head):
    reader = AnswerReader()

    assert reader.feed(head + b"\r\n\r\n") is not None
    assert not reader.is_reusable


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n22",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 abc OK\r\ncontent-length: 0\r\n\r\n",
        b"x" * (HEAD_BYTES_MAX + 1),
    ],
)
def test_what_is_no_answer_is_an_error(data):
    with pytest.raises(BadAnswer):
        AnswerReader().feed(data)


def test_a_connection_that_ends_within_an_answer_has_none():
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")

    assert reader.end() is None


@pytest.mark.parametrize(
    ("value", "seconds"), [("3", 3.0), ("0.5", 0.5), ("-1", None), ("soon", None), ("inf", None)]
)
def test_retry_after_is_a_number_of_seconds_or_nothing(value, seconds):
    data = f"HTTP/1.1 503 x\r\nRetry-After: {value}\r\ncontent-length: 0\r\n\r\n".encode()

    answer = AnswerReader().feed(data)

    assert answer is not None
    assert answer.retry_after_s == seconds


def test_a_request_has_a_length_only_with_a_body():
    with_body = render_request("POST", "/a", host="h:1", headers=b"X: 1\r\n", body=b"{}")
    without = render_request("GET", "/a", host="h:1", headers=b"", body=None)

    assert with_body.startswith(b"POST /a HTTP/1.1\r\nHost: h:1\r\nX: 1\r\n")
    assert with_body.endswith(b"Content-Length: 2\r\n\r\n{}")
    assert without == b"GET /a HTTP/1.1\r\nHost: h:1\r\n\r\n"


def test_a_header_cannot_break_out_of_its_line():
    with pytest.raises(ValueError, match="line break"):
        render_header("Authorization", "Bearer x\r\nX-Admin: yes")
