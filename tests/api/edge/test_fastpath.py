"""The parser fast path over real sockets, on both event loops it may meet."""

import asyncio
import gc
import json
import logging
import weakref

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.model.errors import Defect, Overloaded
from skep.server.edge.protocol import ConnectionLimits
from skep.server.hot.exchange import HotRoutes
from tests.api.support.edge import Desk, request, serving

pytestmark = pytest.mark.usefixtures("arun")

BODY_BYTES_MAX = 100_000


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def arun(request):
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


def limits(**changes):
    return ConnectionLimits(body_bytes_max=BODY_BYTES_MAX, **changes)


def only(connections):
    (connection,) = connections
    return connection


async def until(condition):
    """Wait for something that happens in this very loop and tells nobody."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def body_bytes(edge):
    return len(only(edge.connections)._body) if edge.connections else 0


def age(connection, seconds):
    """Let a connection believe that so much more time has passed."""
    connection._since -= seconds
    connection._tick()


# Answers


async def test_a_hot_answer_is_a_complete_http_answer():
    async with serving() as edge, edge.client() as client:
        client.request("POST", "/hot", b"{}")
        answer = await client.answer()

        assert answer.status == 200
        assert answer.body == b"POST /hot {}"
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["date"].endswith("GMT")
        assert "connection" not in answer.headers


async def test_204_has_neither_body_nor_length():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/later")
        (await edge.desk.next()).respond(204)
        answer = await client.answer()

        assert answer.status == 204
        assert "content-length" not in answer.headers
        assert "content-type" not in answer.headers


async def test_an_empty_answer_says_that_it_is_empty():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/later")
        (await edge.desk.next()).respond(200)

        assert (await client.answer()).headers["content-length"] == "0"


async def test_further_headers_are_sent():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/later")
        (await edge.desk.next()).respond(503, b"{}", headers=b"retry-after: 7\r\n")

        assert (await client.answer()).headers["retry-after"] == "7"


async def test_the_servers_own_headers_follow_their_list():
    async with serving() as edge, edge.client() as client:
        for value in (b"first", b"second"):
            edge.server.server_state.default_headers = [(b"x-version", value)]
            client.request("GET", "/hot")

            assert (await client.answer()).headers["x-version"] == value.decode()


async def test_a_handler_sees_the_request_as_it_was_sent():
    async with serving() as edge, edge.client() as client:
        client.request("POST", "/later?a=1&b=%20", b"[1]", headers="X-Token: s3cret\r\n")
        exchange = await edge.desk.next()

        assert (exchange.head.method, exchange.head.path, exchange.head.query) == (
            b"POST",
            b"/later",
            b"a=1&b=%20",
        )
        assert exchange.body == b"[1]"
        assert exchange.header(b"x-token") == b"s3cret"
        assert exchange.header(b"x-absent") is None


async def test_a_head_that_comes_again_is_served_as_the_first_time():
    async with serving() as edge, edge.client() as client:
        for body in (b"{}", b"[1]", b"[1, 2]", b""):
            client.request("POST", "/hot", body)
            assert (await client.answer()).body == b"POST /hot " + body
            client.request("GET", "/hot")
            assert (await client.answer()).body == b"GET /hot "
        await client.send_in_pieces(request("POST", "/hot", b"[1]"))
        client.send(request("POST", "/hot", b"[2]") + request("POST", "/hot", b"[3]"))

        assert await client.bodies(3) == [b"POST /hot [%d]" % number for number in (1, 2, 3)]


async def test_a_body_that_is_too_large_is_refused_although_its_head_is_known():
    async with serving() as edge, edge.client() as client:
        client.request("POST", "/hot", b"{}")
        await client.answer()
        client.request("POST", "/hot", b"x" * (BODY_BYTES_MAX + 1))

        assert (await client.answer()).status == 413


async def test_a_known_head_waits_for_the_application_request_before_it():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/hot")
        await client.answer()
        edge.cold.may_answer.clear()
        client.request("GET", "/cold")
        await edge.cold.has_read.wait()
        client.request("GET", "/hot")
        await until(lambda: len(only(edge.connections)._turns) == 2)
        edge.cold.may_answer.set()

        assert await client.bodies(2) == [b"cold /cold ", b"GET /hot "]


async def test_the_end_of_a_request_is_not_taken_for_a_head():
    async with serving() as edge, edge.client() as client:
        head = b"POST /hot HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        last_chunk = b"0\r\n\r\n"
        await client.send_in_pieces(head + last_chunk, size=len(head))
        assert (await client.answer()).body == b"POST /hot "
        client.send(last_chunk)

        assert (await client.answer()).status == 400


async def test_a_known_head_follows_routes_that_were_replaced():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/hot")
        await client.answer()
        routes = HotRoutes()
        routes.add(b"GET", b"/hot", lambda exchange: exchange.respond(200, b"new"))
        only(edge.connections).edge.routes.replace(routes)
        client.request("GET", "/hot")

        assert (await client.answer()).body == b"new"


async def test_answering_twice_is_a_defect():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/later")
        exchange = await edge.desk.next()
        exchange.respond(200)

        with pytest.raises(Defect):
            exchange.respond(200)


async def test_an_error_of_ours_raised_by_a_handler_is_answered_from_the_table():
    def refuse(exchange):
        raise Overloaded("too much", retry_after_s=3, queue_depth=7)

    async with serving(desk=refuse) as edge, edge.client() as client:
        client.request("GET", "/later")
        answer = await client.answer()

        assert answer.status == 429
        assert answer.headers["retry-after"] == "3"
        body = json.loads(answer.body)
        assert body == {"error": "too much", "code": "overloaded", "queueDepth": 7}


async def test_a_bug_in_a_handler_costs_one_answer_and_shows_nothing_of_itself(caplog):
    def fail(exchange):
        raise ValueError("a secret")

    async with serving(desk=fail) as edge, edge.client() as client:
        client.send(request("GET", "/later") + request("GET", "/hot"))
        answer = await client.answer()

        assert answer.status == 500
        assert b"secret" not in answer.body
        assert "a secret" in caplog.text
        assert answer.headers["x-request-id"] == caplog.records[-1].request_id
        assert (await client.answer()).status == 200


# Connections


async def test_a_connection_serves_many_requests():
    async with serving() as edge, edge.client() as client:
        for number in range(3):
            client.request("POST", "/hot", b"%d" % number)
            assert (await client.answer()).body == b"POST /hot %d" % number

        assert len(edge.connections) == 1
        assert edge.server.server_state.total_requests == 3


async def test_an_idle_connection_is_closed_after_the_keep_alive_timeout():
    async with serving(keep_alive_s=0.1) as edge, edge.client() as client:
        client.request("GET", "/hot")
        await client.answer()

        assert await client.rest() == b""


async def test_a_connection_that_never_sends_anything_is_closed():
    async with serving(keep_alive_s=0.1) as edge, edge.client() as client:
        assert await client.rest() == b""


async def test_a_request_may_wait_for_its_answer_longer_than_the_keep_alive_timeout():
    async with serving(keep_alive_s=0.1) as edge, edge.client() as waiting, edge.client() as idle:
        waiting.request("GET", "/later")
        exchange = await edge.desk.next()
        assert await idle.rest() == b""  # the timeout has passed

        exchange.respond(200, b"at last")

        assert (await waiting.answer()).body == b"at last"


async def test_the_last_request_of_a_connection_is_answered_and_then_it_is_closed():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/hot", headers="Connection: close\r\n")
        answer = await client.answer()

        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_what_follows_the_last_request_is_not_executed():
    async with serving() as edge, edge.client() as client:
        last = request("POST", "/later", b"x", headers="connection: close\r\n")
        client.send(last + request("POST", "/later", b"y"))
        exchange = await edge.desk.next()
        exchange.respond(200)

        assert (await client.answer()).status == 200
        assert await client.rest() == b""
        assert edge.desk.is_empty


async def test_what_follows_an_http_1_0_request_is_not_executed():
    # The parser would go on here: only we close after HTTP/1.0 whatever the client says.
    async with serving() as edge, edge.client() as client:
        client.send(b"GET /later HTTP/1.0\r\nconnection: keep-alive\r\n\r\n" * 2)
        (await edge.desk.next()).respond(200)

        assert (await client.answer()).status == 200
        assert await client.rest() == b""
        assert edge.desk.is_empty


async def test_an_http_1_0_answer_closes_even_if_asked_not_to():
    async with serving() as edge, edge.client() as client:
        client.send(b"GET /hot HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        answer = await client.answer()

        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


# Pipelining


async def test_pipelined_hot_requests_run_side_by_side_and_are_answered_in_order():
    async with serving() as edge, edge.client() as client:
        client.send(request("GET", "/later?1") + request("GET", "/later?2"))
        first, second = await edge.desk.next(), await edge.desk.next()

        assert second.respond(200, b"second")
        assert first.respond(200, b"first")

        assert await client.bodies(2) == [b"first", b"second"]


async def test_hot_and_asgi_requests_share_a_connection():
    async with serving() as edge, edge.client() as client:
        client.send(
            request("POST", "/hot", b"1")
            + request("POST", "/cold", b"2")
            + request("POST", "/cold", b"3")
            + request("POST", "/hot", b"4")
        )

        assert await client.bodies(4) == [
            b"POST /hot 1",
            b"cold /cold 2",
            b"cold /cold 3",
            b"POST /hot 4",
        ]


async def test_an_asgi_request_starts_after_the_answers_before_it():
    async with serving() as edge, edge.client() as client:
        client.send(request("GET", "/later") + request("GET", "/cold"))
        exchange = await edge.desk.next()
        assert not edge.cold.started.is_set()

        exchange.respond(200, b"hot")

        assert await client.bodies(2) == [b"hot", b"cold /cold "]


async def test_a_hot_request_behind_an_asgi_request_starts_after_it():
    async with serving() as edge, edge.client() as client:
        edge.cold.may_answer.clear()
        client.send(request("GET", "/cold") + request("GET", "/later") + request("GET", "/hot"))
        await edge.cold.started.wait()
        assert edge.desk.is_empty

        edge.cold.may_answer.set()
        (await edge.desk.next()).respond(200, b"later")

        assert await client.bodies(3) == [b"cold /cold ", b"later", b"GET /hot "]


async def test_reading_goes_on_behind_an_unfinished_asgi_request():
    async with serving() as edge, edge.client() as client:
        edge.cold.may_answer.clear()
        client.request("GET", "/cold")
        await edge.cold.has_read.wait()
        client.request("GET", "/cold")
        await until(lambda: len(only(edge.connections)._turns) == 2)

        assert only(edge.connections).transport.is_reading()


async def test_thousands_of_requests_behind_an_asgi_request_are_answered():
    async with serving() as edge, edge.client() as client:
        client.send(request("GET", "/cold") + request("GET", "/hot") * 3_000)

        bodies = await client.bodies(3_001)

        assert bodies == [b"cold /cold "] + [b"GET /hot "] * 3_000


async def test_reading_stops_while_too_many_requests_wait():
    async with serving(limits=limits(queue_length_max=2)) as edge, edge.client() as client:
        client.request("GET", "/later?1")
        first = await edge.desk.next()
        assert only(edge.connections).transport.is_reading()
        client.request("GET", "/later?2")
        await edge.desk.next()

        assert not only(edge.connections).transport.is_reading()

        client.request("GET", "/later?3")
        first.respond(200)
        assert (await edge.desk.next()).head.query == b"3"


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_mix_in_any_pieces_is_answered_in_order(data):
    kinds = data.draw(st.lists(st.sampled_from(["hot", "later", "cold"]), min_size=1, max_size=8))
    size = data.draw(st.integers(1, 200))
    order = data.draw(st.permutations(range(len(kinds))))

    async def scenario():
        async with serving() as edge, edge.client() as client:
            stream = [
                request("POST", f"/{kind}", b"%d" % number) for number, kind in enumerate(kinds)
            ]
            await client.send_in_pieces(b"".join(stream), size)
            answering = asyncio.create_task(answer_in_order(edge.desk, kinds, order))
            bodies = await client.bodies(len(kinds))
            await answering
            return bodies

    expected = {"hot": b"POST /hot %d", "later": b"later %d", "cold": b"cold /cold %d"}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(scenario()) == [
            expected[kind] % number for number, kind in enumerate(kinds)
        ]


async def answer_in_order(desk, kinds, order):
    """Answer each run of requests between two ASGI ones in the given order."""
    group = []
    for number, kind in [*enumerate(kinds), (len(kinds), "cold")]:
        if kind == "later":
            group.append((order[number], await desk.next()))
        elif kind == "cold":
            for _, exchange in sorted(group, key=lambda pair: pair[0]):
                exchange.respond(200, b"later " + exchange.body)
            group = []


# Bodies


async def test_a_client_that_asks_is_told_to_go_on_each_time():
    async with serving() as edge, edge.client() as client:
        for body in (b"first", b"second"):
            whole = request("POST", "/hot", body, headers="Expect: 100-continue\r\n")
            client.send(whole[: -len(body)])
            assert (await client.answer()).status == 100
            client.send(body)

            assert (await client.answer()).body == b"POST /hot " + body


async def test_go_on_is_not_said_before_earlier_answers():
    async with serving() as edge, edge.client() as client:
        whole = request("POST", "/hot", b"x", headers="Expect: 100-continue\r\n")
        client.send(request("GET", "/later") + whole[:-1])
        (await edge.desk.next()).respond(200, b"first")

        assert (await client.answer()).body == b"first"
        assert (await client.answer()).status == 100
        client.send(b"x")
        assert (await client.answer()).body == b"POST /hot x"


async def test_a_chunked_body_is_joined_and_its_trailers_are_dropped():
    async with serving() as edge, edge.client() as client:
        client.send(
            b"POST /later HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n2;x=y\r\nde\r\n1\r\nf\r\n0\r\nauthorization: forged\r\n\r\n"
        )
        exchange = await edge.desk.next()

        assert exchange.body == b"abcdef"
        assert exchange.header(b"authorization") is None


async def test_a_request_may_come_byte_by_byte():
    async with serving() as edge, edge.client() as client:
        await client.send_in_pieces(request("POST", "/hot", b"slow"))

        assert (await client.answer()).body == b"POST /hot slow"


@pytest.mark.parametrize("size", [1, BODY_BYTES_MAX])
async def test_a_body_may_be_as_large_as_the_limit(size):
    async with serving(limits=limits(), desk=Desk()) as edge, edge.client() as client:
        client.request("POST", "/later", b"x" * size)

        assert len((await edge.desk.next()).body) == size


@pytest.mark.parametrize("path", [b"/hot", b"/cold"])
async def test_a_body_declared_too_large_is_refused_before_it_is_sent(path):
    async with serving(limits=limits()) as edge, edge.client() as client:
        head = b"POST %b HTTP/1.1\r\nhost: test\r\ncontent-length: %d\r\n\r\n"
        client.send(head % (path, BODY_BYTES_MAX + 1))
        answer = await client.answer()

        assert answer.status == 413
        assert json.loads(answer.body)["code"] == "payload_too_large"
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_a_client_in_the_middle_of_too_large_a_body_gets_the_answer():
    async with serving(limits=limits()) as edge, edge.client() as client:
        client.request("POST", "/hot", b"x" * 5_000_000)

        assert (await client.answer()).status == 413


async def test_a_chunked_body_that_grows_too_large_is_refused():
    async with serving(limits=limits()) as edge, edge.client() as client:
        chunk = b"%x\r\n%b\r\n" % (60_000, b"x" * 60_000)
        client.send(
            b"POST /hot HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * 2
        )

        assert (await client.answer()).status == 413


@pytest.mark.parametrize("path", ["/hot", "/cold"])
@pytest.mark.parametrize("body", ["f0000000\r\n", "2\r\nab\r\n000186a1;x=y\r\nabc"])
@pytest.mark.parametrize("size", [1_000, 1], ids=["one read", "byte by byte"])
async def test_a_chunk_announced_too_large_is_refused_at_once(path, body, size):
    async with serving(limits=limits()) as edge, edge.client() as client:
        head = f"POST {path} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
        await client.send_in_pieces((head + body).encode(), size)
        answer = await client.answer()

        assert answer.status == 413
        assert await client.rest() == b""


async def test_a_chunk_counts_with_those_before_it():
    async with serving(limits=limits()) as edge, edge.client() as client:
        first = b"%x\r\n%b\r\n" % (60_000, b"x" * 60_000)
        head = b"POST /hot HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
        client.send(head + first + b"%x\r\n" % (BODY_BYTES_MAX - 60_000 + 1))

        assert (await client.answer()).status == 413


@pytest.mark.parametrize("size", [7, 40_000])
async def test_chunks_up_to_the_limit_are_taken_however_they_come(size):
    async with serving(limits=limits()) as edge, edge.client() as client:
        chunk = b"%x\r\n%b\r\n" % (BODY_BYTES_MAX // 2, b"f\r\n3" * (BODY_BYTES_MAX // 8))
        head = b"POST /later HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
        await client.send_in_pieces((head + chunk * 2 + b"0\r\n\r\n") * 2, size)
        for _ in range(2):
            exchange = await edge.desk.next()
            exchange.respond(200)
            assert len(exchange.body) == BODY_BYTES_MAX
            assert (await client.answer()).status == 200


async def test_wrapping_may_not_outweigh_the_body():
    async with serving(limits=limits()) as edge, edge.client() as client:
        client.send(b"POST /hot HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1;")
        client.send(b"x" * (8 * BODY_BYTES_MAX + 600_000))

        assert (await client.answer()).status == 413


async def test_an_asgi_body_that_grows_without_end_is_refused_without_a_reset():
    async with serving(limits=limits()) as edge, edge.client() as client:
        client.send(b"POST /cold HTTP/1.1\r\nhost: test\r\ncontent-length: 99999999999\r\n\r\n")
        client.send(b"x" * 8_000_000)

        assert (await client.answer()).status == 413
        assert await client.rest() == b""
        await client.everything_sent()


@pytest.mark.parametrize("size", [1_000, 200_000])
async def test_an_asgi_answer_that_does_not_wait_for_the_body_keeps_the_connection(size):
    async with (
        serving(limits=ConnectionLimits(body_bytes_max=size)) as edge,
        edge.client() as client,
    ):
        whole = request("POST", "/cold/hasty", b"x" * size)
        client.send(whole[:-500])
        assert (await client.answer()).body == b"hasty"

        client.send(whole[-500:] + request("GET", "/hot"))

        assert (await client.answer()).body == b"GET /hot "


# Heads


@pytest.mark.parametrize("piece", [1_000_000, 1000])
@pytest.mark.parametrize("end", ["\r\n", ""], ids=["complete", "endless"])
async def test_too_large_a_head_is_refused(piece, end):
    async with serving(limits=limits(head_bytes_max=2000)) as edge, edge.client() as client:
        head = f"GET /hot HTTP/1.1\r\nhost: test\r\nx-large: {'x' * 600_000}{end}{end}".encode()
        await client.send_in_pieces(head, piece)
        answer = await client.answer()

        assert answer.status == 431
        assert json.loads(answer.body)["code"] == "head_too_large"


async def test_a_small_head_before_a_large_body_is_no_large_head():
    async with serving(limits=limits(head_bytes_max=2000)) as edge, edge.client() as client:
        client.request("POST", "/hot", b"x" * 50_000)

        assert (await client.answer()).status == 200


async def test_a_percent_encoded_path_reaches_the_handler_as_it_came():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/hot/a%2Fb%20c")

        assert (await client.answer()).body == b"GET /hot/a%2Fb%20c "


async def test_raw_utf8_in_a_path_is_escaped_for_the_client():
    async with serving() as edge, edge.client() as client:
        client.send(request("GET", "/hot/żółw?ż=1") + request("GET", "/hot"))

        assert await client.bodies(2) == [b"GET /hot/%C5%BC%C3%B3%C5%82w ", b"GET /hot "]


async def test_raw_utf8_where_it_cannot_be_escaped_is_a_clear_400():
    async with serving() as edge, edge.client() as client:
        client.send(request("GET", "/hot") + request("GET", "/hot/żółw"))
        await client.answer()
        answer = await client.answer()

        assert answer.status == 400
        assert "percent-encoded" in json.loads(answer.body)["error"]


async def test_a_body_is_never_taken_for_a_request():
    # The end of a body in UTF-8 shares a read and a line with a request that must be refused.
    async with serving() as edge, edge.client() as client:
        body = "GET /later?ż HTTP/1.1\r\n\r\n".encode()
        whole = request("POST", "/hot", body) + request("GET", "/hot/ż")
        await client.send_in_pieces(whole, whole.index(b"GET /later"))

        assert (await client.answer()).body.endswith(body)
        assert (await client.answer()).status == 400
        assert edge.desk.is_empty


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET /hot with space HTTP/1.1\r\nhost: test\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET http://host HTTP/1.1\r\nhost: test\r\n\r\n",
        b"POST /hot HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
)
async def test_a_malformed_request_is_a_400_and_ends_the_connection(garbage):
    async with serving(limits=limits(linger_s=60)) as edge, edge.client() as client:
        client.send(garbage)
        answer = await client.answer()

        assert answer.status == 400
        assert json.loads(answer.body)["code"] == "bad_request"
        assert await client.rest() == b""


@pytest.mark.parametrize("path", ["/hot", "/cold"])
@pytest.mark.parametrize("hosts", ["", "host: a\r\nHost: a\r\n"], ids=["none", "two"])
async def test_a_request_names_its_host_exactly_once(path, hosts):
    async with serving() as edge, edge.client() as client:
        client.send(f"GET {path} HTTP/1.1\r\nx-forwarded-host: a\r\n{hosts}\r\n".encode())
        answer = await client.answer()

        assert answer.status == 400
        assert "Host" in json.loads(answer.body)["error"]
        assert await client.rest() == b""
        assert not edge.cold.started.is_set()


@pytest.mark.parametrize("path", ["/hot", "/cold"])
async def test_http_1_0_needs_no_host(path):
    async with serving() as edge, edge.client() as client:
        client.send(f"GET {path} HTTP/1.0\r\n\r\n".encode())

        assert (await client.answer()).status == 200


async def test_a_malformed_request_is_refused_in_its_turn():
    async with serving() as edge, edge.client() as client:
        client.send(request("GET", "/later") + b"NONSENSE\r\n\r\n")
        (await edge.desk.next()).respond(200, b"first")

        assert (await client.answer()).body == b"first"
        assert (await client.answer()).status == 400


async def test_a_broken_asgi_request_that_was_not_started_is_refused_in_its_turn():
    async with serving() as edge, edge.client() as client:
        broken = b"POST /cold HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
        client.send(request("GET", "/later") + broken)
        (await edge.desk.next()).respond(200, b"first")

        assert (await client.answer()).body == b"first"
        assert (await client.answer()).status == 400
        assert not edge.cold.started.is_set()


async def test_a_broken_chunk_is_a_400_also_for_an_asgi_request():
    async with serving() as edge, edge.client() as client:
        client.send(
            b"POST /cold HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
        )

        assert (await client.answer()).status == 400
        await asyncio.wait_for(edge.cold.disconnected.wait(), 10)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "DELETE"])
async def test_another_method_on_a_hot_path_is_not_allowed(method):
    async with serving() as edge, edge.client() as client:
        client.request(method, "/hot", headers="connection: close\r\n")
        head = (await client.rest()).decode()

        assert head.startswith("HTTP/1.1 405 ")
        assert "allow: POST, GET\r\n" in head


@pytest.mark.parametrize("path", ["/hot", "/cold"])
async def test_a_wish_to_upgrade_is_ignored(path):
    async with serving() as edge, edge.client() as client:
        wish = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
        client.send(request("POST", path, b"body", headers=wish) * 2 + request("GET", "/hot"))
        first, second, third = await client.bodies(3)

        assert first == second
        assert first.endswith(path.encode() + b" body")
        assert third == b"GET /hot "


class Conversation(asyncio.Protocol):
    """Stands for a WebSocket implementation and answers with a word."""

    def __init__(self, config, server_state, app_state):
        pass

    def connection_made(self, transport):
        self._transport = transport

    def data_received(self, data):
        self._transport.write(b"upgraded: " + data.split(b"\r\n")[0])
        self._transport.close()


WEBSOCKET_WISH = "connection: upgrade\r\nupgrade: websocket\r\n"


async def test_a_websocket_takes_over_its_connection():
    async with serving(websocket=Conversation) as edge, edge.client() as client:
        client.request("GET", "/cold", headers=WEBSOCKET_WISH)

        assert await client.rest() == b"upgraded: GET /cold HTTP/1.1"


async def test_a_websocket_does_not_take_over_while_answers_are_due():
    async with serving(websocket=Conversation) as edge, edge.client() as client:
        client.send(request("GET", "/later") + request("GET", "/cold", headers=WEBSOCKET_WISH))
        (await edge.desk.next()).respond(200, b"first")

        assert await client.bodies(2) == [b"first", b"cold /cold "]


async def test_this_is_not_a_proxy():
    async with serving() as edge, edge.client() as client:
        client.send(b"CONNECT example.org:80 HTTP/1.1\r\nhost: test\r\n\r\n")

        assert (await client.answer()).status == 405


# Slow clients


@pytest.mark.parametrize(
    "start",
    [b"GET /ho", b"POST /hot HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nab"],
    ids=["head", "hot body"],
)
async def test_a_request_that_does_not_arrive_in_time_is_refused(start):
    async with serving(limits=limits(read_timeout_s=0.1)) as edge, edge.client() as client:
        client.send(start)
        answer = await client.answer()

        assert answer.status == 408
        assert await client.rest() == b""


async def test_an_asgi_body_that_does_not_arrive_in_time_is_refused():
    async with serving(limits=limits(read_timeout_s=0.1)) as edge, edge.client() as client:
        client.send(b"POST /cold HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nab")

        assert (await client.answer()).status == 408
        await asyncio.wait_for(edge.cold.disconnected.wait(), 10)


async def test_a_body_may_take_longer_than_the_read_timeout_while_it_makes_progress():
    async with serving() as edge, edge.client() as client:
        for _ in range(2):
            await send_slowly_with_progress(edge, client)

            assert (await client.answer()).status == 200


async def send_slowly_with_progress(edge, client):
    client.send(b"POST /hot HTTP/1.1\r\nhost: test\r\ncontent-length: 80001\r\n\r\n")
    for size in (40_000, 80_000):
        client.send(b"x" * 40_000)
        await until(lambda size=size: body_bytes(edge) == size)
        age(only(edge.connections), 31)
        age(only(edge.connections), 0)
    client.send(b"x")


async def test_a_body_that_makes_no_progress_is_refused():
    async with serving() as edge, edge.client() as client:
        client.send(
            b"POST /hot HTTP/1.1\r\nhost: test\r\ncontent-length: 80001\r\n\r\n" + b"x" * 40_000
        )
        await until(lambda: body_bytes(edge) == 40_000)
        age(only(edge.connections), 31)
        age(only(edge.connections), 31)

        assert (await client.answer()).status == 408


async def test_the_read_timeout_is_not_charged_while_we_do_not_read():
    async with serving(limits=limits(queue_length_max=2)) as edge, edge.client() as client:
        client.send(request("GET", "/later") + request("GET", "/hot") + b"GET /h")
        exchange = await edge.desk.next()
        age(only(edge.connections), 31)
        exchange.respond(200, b"first")
        client.send(b"ot HTTP/1.1\r\nhost: test\r\n\r\n")

        assert await client.bodies(3) == [b"first", b"GET /hot ", b"GET /hot "]


async def test_reading_stops_while_a_client_does_not_take_its_answers():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/later")
        (await edge.desk.next()).respond(200, b"x" * 20_000_000)
        client.request("GET", "/hot")

        assert not only(edge.connections).transport.is_reading()
        assert len((await client.answer()).body) == 20_000_000
        assert (await client.answer()).body == b"GET /hot "


async def test_a_client_that_never_takes_its_answers_is_dropped():
    async with serving(limits=limits(write_timeout_s=0.1)) as edge, edge.client() as client:
        aborted = asyncio.Event()
        client.send(request("GET", "/later?1") + request("GET", "/later?2"))
        first, second = await edge.desk.next(), await edge.desk.next()
        second.when_aborted(aborted.set)

        first.respond(200, b"x" * 20_000_000)

        await asyncio.wait_for(aborted.wait(), 10)


async def test_a_client_that_takes_its_answer_slowly_is_not_dropped():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/later")
        (await edge.desk.next()).respond(200, b"x" * 20_000_000)
        connection = only(edge.connections)
        since, buffered = connection._stalled_writes
        connection._stalled_writes = since - 31, buffered + 1
        connection._tick()

        assert len((await client.answer()).body) == 20_000_000


async def test_a_client_that_never_takes_its_last_answer_is_dropped():
    async with serving(limits=limits(write_timeout_s=0.1)) as edge, edge.client() as client:
        client.request("GET", "/later", headers="connection: close\r\n")
        exchange = await edge.desk.next()
        # As if the rest were small: then the transport closes without ever complaining.
        only(edge.connections).transport.set_write_buffer_limits(high=2**30)

        exchange.respond(200, b"x" * 20_000_000)

        await until(lambda: not edge.connections)


# Clients that hang up


async def test_a_client_that_hangs_up_aborts_its_exchange_once():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/later")
        exchange = await edge.desk.next()
        aborts = asyncio.Queue()
        exchange.when_aborted(lambda: aborts.put_nowait("aborted"))

        client.hang_up()

        assert await asyncio.wait_for(aborts.get(), 10) == "aborted"
        assert exchange.respond(200, b"too late") is False
        assert aborts.empty()


async def test_every_exchange_of_a_pipeline_is_aborted_even_if_one_callback_fails(caplog):
    async with serving() as edge, edge.client() as client:
        client.send(request("GET", "/later?1") + request("GET", "/later?2"))
        first, second = await edge.desk.next(), await edge.desk.next()
        aborted = asyncio.Event()
        first.when_aborted(lambda: 1 / 0)
        second.when_aborted(aborted.set)

        client.hang_up()

        await asyncio.wait_for(aborted.wait(), 10)
        assert "ZeroDivisionError" in caplog.text


async def test_an_exchange_behind_an_asgi_request_never_starts_if_the_client_hangs_up():
    async with serving() as edge, edge.client() as client:
        client.send(b"POST /cold HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nab")
        await edge.cold.started.wait()
        client.hang_up()

        await asyncio.wait_for(edge.cold.disconnected.wait(), 10)
        assert edge.desk.is_empty


async def test_an_answered_exchange_is_not_aborted():
    async with serving() as edge, edge.client() as client:
        client.send(request("GET", "/later?1") + request("GET", "/later?2"))
        first, second = await edge.desk.next(), await edge.desk.next()
        first_aborted, aborts = asyncio.Event(), []
        first.when_aborted(first_aborted.set)
        second.when_aborted(lambda: aborts.append("second"))
        assert second.respond(200, b"held until its turn")

        client.hang_up()

        await asyncio.wait_for(first_aborted.wait(), 10)
        assert aborts == []


async def test_a_callback_registered_too_late_is_called_at_once():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/later")
        exchange = await edge.desk.next()
        gone = asyncio.Event()
        exchange.when_aborted(gone.set)
        client.hang_up()
        await asyncio.wait_for(gone.wait(), 10)

        calls = []
        exchange.when_aborted(lambda: calls.append("late"))

        assert calls == ["late"]


class Waiting:
    """Whatever answers an exchange later, and wants to know when its client is gone."""

    def __init__(self, exchange):
        self.exchange = exchange
        exchange.when_aborted(self.give_up)

    def give_up(self):
        raise AssertionError("nobody hung up")


async def test_an_answered_exchange_leaves_nothing_to_the_cycle_collector():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/later")
        waiting = Waiting(await edge.desk.next())
        known = weakref.ref(waiting)
        gc.disable()
        try:
            waiting.exchange.respond(200, b"done")
            await client.answer()
            del waiting

            assert known() is None
        finally:
            gc.enable()


# Shutdown


async def test_shutdown_closes_idle_connections_and_lets_busy_ones_finish():
    async with serving() as edge, edge.client() as idle, edge.client() as busy:
        idle.request("GET", "/hot")
        await idle.answer()
        busy.request("GET", "/later")
        exchange = await edge.desk.next()

        stopping = asyncio.create_task(edge.server.shutdown())
        assert await idle.rest() == b""
        exchange.respond(200, b"done")
        answer = await busy.answer()
        await asyncio.wait_for(stopping, 10)

        assert answer.body == b"done"
        assert answer.headers["connection"] == "close"


async def test_at_shutdown_the_owner_is_asked_once_to_answer_what_is_parked():
    parked, drains = [], []

    def drain():
        drains.append("drain")
        for exchange in parked:
            exchange.respond(204)

    async with serving(on_drain=drain) as edge, edge.client() as one, edge.client() as other:
        one.send(request("GET", "/later") + request("GET", "/later"))
        other.request("GET", "/later")
        parked += [await edge.desk.next() for _ in range(3)]

        await asyncio.wait_for(edge.server.shutdown(), 10)

        assert drains == ["drain"]
        first, second, third = await one.answer(), await one.answer(), await other.answer()
        assert "connection" not in first.headers
        assert second.headers["connection"] == third.headers["connection"] == "close"


async def test_shutdown_waits_for_an_asgi_answer():
    async with serving() as edge, edge.client() as client:
        edge.cold.may_answer.clear()
        client.request("GET", "/cold")
        await edge.cold.started.wait()

        stopping = asyncio.create_task(edge.server.shutdown())
        await until(lambda: only(edge.connections)._is_draining)
        edge.cold.may_answer.set()
        answer = await client.answer()
        await asyncio.wait_for(stopping, 10)

        assert answer.headers["connection"] == "close"


async def test_a_request_read_during_shutdown_is_the_last_of_its_connection():
    async with serving() as edge, edge.client() as client:
        client.request("GET", "/later")
        exchange = await edge.desk.next()
        stopping = asyncio.create_task(edge.server.shutdown())
        await until(lambda: only(edge.connections)._is_draining)
        client.request("GET", "/cold")
        await until(lambda: len(only(edge.connections)._turns) == 2)
        exchange.respond(200, b"first")

        assert await client.bodies(2) == [b"first", b"cold /cold "]
        await asyncio.wait_for(stopping, 10)


async def test_a_connection_accepted_during_shutdown_serves_one_request():
    async with serving() as edge:
        edge.server.config.http_protocol_class.edge.drain(asyncio.get_running_loop())
        async with edge.client() as client:
            client.request("GET", "/hot")

            assert (await client.answer()).headers["connection"] == "close"


async def test_uvicorns_log_stays_silent_about_ordinary_requests(caplog):
    with caplog.at_level(logging.WARNING):
        async with serving() as edge, edge.client() as client:
            client.send(request("GET", "/hot") + request("GET", "/cold"))
            await client.bodies(2)

    assert caplog.records == []
