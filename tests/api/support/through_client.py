"""A connection of the tests whose requests go through `skep.client`.

The session of the client renders and sends each request and cuts its answer out of the bytes; what
is refused must be raised as the error that the answer names, and what a consumer or a producer
would read must be readable by the client's own types, with the same values. Tests see the answer as
on a raw connection.
"""

import asyncio
import json
from collections import deque
from contextlib import asynccontextmanager

import msgspec
import pytest

from skep.client.aio.message import decode_popped
from skep.client.aio.session import Session
from skep.client.deliveries import decode_acked
from skep.client.errors import AccessDenied, UnexpectedAnswer
from skep.client.http import Answer as ClientAnswer
from skep.client.options import RetryPolicy, SessionOptions
from skep.client.values import PushResults
from skep.model import errors
from skep.model.errors import SkepError
from tests.api.support.edge import PATIENCE_S, Answer
from tests.support.broker import Connection

REQUEST_S = 60

MODEL_CODES = {
    cls.code
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, SkepError)
}
STATUSES_OF = {
    errors.BadRequest: {400, 422},
    errors.NotFound: {404},
    errors.Refused: {409},
    AccessDenied: {401, 403},
    UnexpectedAnswer: {405, 406, 412, 415, 426},
}
OWN_PAGE = "Origin: http://test\r\n"
"""What pages of the broker send when its host is that of the raw connections."""


class WitnessSession(Session):
    """A session that remembers the last answer, also of a request that it raises for."""

    answer = None

    async def _try(self, *arguments, **options):
        self.answer = await super()._try(*arguments, **options)
        return self.answer


class ThroughClient(Connection):
    """What `Connection` is to a socket, to a session of the client."""

    def __init__(self, session, url):
        self._session = session
        self._own_page = f"Origin: {url}\r\n"
        self._calls = deque()
        self._turn = asyncio.Lock()  # as on one connection, one request after the other

    def request(self, method, path, body=b"", headers=""):
        self._calls.append(asyncio.ensure_future(self._send(method, path, body, headers)))

    async def answer(self):
        async with asyncio.timeout(PATIENCE_S):
            return await self._calls.popleft()

    def hang_up(self):
        while self._calls:
            self._calls.pop().cancel()

    def send(self, data):
        pytest.skip("bytes of its own making cannot go through the client")

    async def _send(self, method, path, body, headers):
        headers = headers.replace(OWN_PAGE, self._own_page)
        async with self._turn:
            try:
                await self._session.request(method, path, body or None, headers=headers.encode())
            except SkepError as error:
                self._check_error(error)
            answer = self._session.answer
        if answer.status in {200, 201}:
            check_reading(path, answer.body)
        return Answer(answer.status, headers_of(answer), answer.body)

    def _check_error(self, error):
        answer = self._session.answer
        if not isinstance(answer, ClientAnswer):
            raise error
        problem = json.loads(answer.body)
        assert error.message == problem.get("detail", problem["error"])
        if problem.get("code") in MODEL_CODES:
            assert error.code == problem["code"]
        else:  # one that only the broker has, or none, so its status decides
            assert answer.status in STATUSES_OF[type(error)]


def headers_of(answer):
    lines = answer.head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.split(": ", 1) for line in lines)
    return {name.lower(): value for name, value in pairs}


def check_reading(path, body):
    """Read an answer as the client does, and compare with what it says."""
    if path.startswith("/api/v1/push"):
        assert_same(json.loads(body), PushResults([body]), ["transaction_id", "message_id"])
    elif path.startswith("/api/v1/pop"):
        said = decode_said(body).messages
        messages = decode_popped(body)
        # Bytes, because numbers beyond all types are carried, too.
        assert [message.raw for message in messages] == [each["data"] for each in said]
        names = ["id", "transactionId", "partitionId", "leaseId", "headers", "retryCount"]
        assert_same([loaded(each, names) for each in said], messages, names)
    elif path.startswith("/api/v1/ack"):
        assert_same(json.loads(body), decode_acked(body), ["transactionId", "success", "error"])


class Said(msgspec.Struct):
    messages: list[dict[str, msgspec.Raw]]


decode_said = msgspec.json.Decoder(Said).decode


def loaded(members, names):
    return {name: json.loads(bytes(members[name])) for name in names if name in members}


def assert_same(said, read, names):
    assert len(said) == len(read)
    for each, value in zip(said, read, strict=True):
        for name in names:
            if name in each:
                attribute = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
                assert getattr(value, attribute) == each[name]


@asynccontextmanager
async def connected_through_client(url):
    options = SessionOptions(
        urls=(url,),
        headers={},
        timeout_s=REQUEST_S,
        retry=RetryPolicy(retries=0, retry_on_429=False),
    )
    session = WitnessSession(options)
    connection = ThroughClient(session, url)
    try:
        yield connection
    finally:
        connection.hang_up()
        await session.close()
