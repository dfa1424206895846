"""Known heads: what is recognised is what the parser would have read."""

import httptools
from hypothesis import given
from hypothesis import strategies as st

from skep.server.edge.repetition import HEAD_BYTES_MAX, LESSONS_MAX, KnownHeads
from skep.server.hot.exchange import Head

HEAD = Head(b"POST", b"/hot", b"", [], None)


def post(body, *, path="/hot", length=None, headers=""):
    length = f"Content-Length: {len(body)}\r\n" if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: a\r\n{length}{headers}\r\n".encode() + body


def knowing(*requests):
    known = KnownHeads()
    for request in requests:
        known.learn(request, HEAD, request.partition(b"\r\n\r\n")[2])
    return known


def test_a_head_is_known_whatever_its_content_length():
    known = knowing(post(b"{}", headers="X-A: 1\r\n"))

    assert known.find(post(b"[1, 2, 3]", headers="X-A: 1\r\n")) == (HEAD, b"[1, 2, 3]")
    assert known.find(post(b"[1, 2, 3]", headers="X-A: 2\r\n")) is None


def test_a_head_without_a_body_is_known_alone():
    get = b"GET /hot HTTP/1.1\r\nHost: a\r\n\r\n"

    assert knowing(get).find(get) == (HEAD, b"")
    assert knowing(get).find(get + get) is None


def test_a_request_that_came_with_others_is_not_remembered():
    known = KnownHeads()
    known.learn(post(b"{}") + post(b"[]"), HEAD, b"{}")
    known.learn(post(b"{}") + post(b"[]"), HEAD, b"[]")

    assert known.find(post(b"{}")) is None


def test_a_long_head_is_not_remembered():
    request = post(b"{}", headers=f"X-Long: {'a' * HEAD_BYTES_MAX}\r\n")

    assert knowing(request).find(request) is None


def test_heads_that_never_repeat_are_soon_no_longer_remembered():
    requests = [post(b"{}", headers=f"X-Id: {number}\r\n") for number in range(LESSONS_MAX + 1)]
    known = knowing(*requests)

    assert known.find(requests[-2]) == (HEAD, b"{}")
    assert known.find(requests[-1]) is None


class Parsed:
    """What the parser reads."""

    def __init__(self, read):
        self.url, self.headers, self.body, self.ended = b"", [], b"", 0
        try:
            httptools.HttpRequestParser(self).feed_data(read)
        except httptools.HttpParserError:
            self.ended = 0

    def on_url(self, url):
        self.url += url

    def on_header(self, name, value):
        if name.lower() != b"content-length":
            self.headers.append((name, value))

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        self.ended += 1


pieces = st.sampled_from(
    b"|0|1|2|12|0x2|1_0| 2|+2|2 |ab|Host: a\r\n|\r\n|\n|\r|\r\n\r\n|0\r\n\r\n|2\r\nab\r\n0\r\n\r\n"
    b"|content-length: 2\r\n|Content-Length:2\r\n|X: content-length: 2\r\n"
    b"|transfer-encoding: chunked".split(b"|")
)
requests = st.lists(pieces, max_size=8).map(
    lambda some: b"POST /hot HTTP/1.1\r\nHost: a\r\ncontent-length: " + b"".join(some)
) | st.lists(pieces, max_size=8).map(lambda some: b"POST /hot HTTP/1.1\r\n" + b"".join(some))


@given(st.lists(requests, min_size=1, max_size=4), requests)
def test_what_is_known_is_what_the_parser_would_read(earlier, read):
    known = KnownHeads()
    for request in [*earlier, read]:
        parsed = Parsed(request)
        if parsed.ended:
            head = Head(b"POST", parsed.url, b"", parsed.headers, None)
            known.learn(request, head, parsed.body)

    found = known.find(read)

    if found is not None:
        parsed, (head, body) = Parsed(read), found
        assert parsed.ended == 1
        assert (head.path, head.headers, body) == (parsed.url, parsed.headers, parsed.body)
