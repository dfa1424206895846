"""Every route with every role, on both ways a request can take: a table made from the document."""

import json
import re
from uuid import UUID

import pytest

from skep.app.parts.interface import describe_api
from skep.broker.cluster.requests import STAMP_HEADER
from skep.settings import Settings
from tests.support.tokens import ROLES, SECRET, bearer

DOCUMENT = describe_api()
RANK = {"public": 0, "read-only": 1, "read-write": 2, "admin": 3}
CALLERS = ("nobody", *ROLES)
FROM_A_PAGE = "Origin: http://test\r\n"
"""Of the broker itself. Such requests pass by the parser's fast path."""

HOT = re.compile(r"/api/v1/(push|pop|ack|transaction|lease|kv$|locks$|fetch$)")


def operations():
    for path, item in sorted(DOCUMENT["paths"].items()):
        for method, operation in item.items():
            yield method.upper(), path, operation


def filled(path, operation):
    """Put something that does not exist in the place of every parameter."""
    for each in operation.get("parameters", ()):
        if each["in"] == "path":
            schema = each["schema"]
            value = "1" if schema.get("type") == "integer" else "nothing-of-this-name"
            if schema.get("format") == "uuid":
                value = str(UUID(int=7))
            path = path.replace("{" + each["name"] + "}", value)
    return path


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1", jwt_enabled="true", jwt_secret=SECRET) as broker:
        yield broker


SKIPPED = Settings().jwt_skip_paths.split(",")
NOTIFY = "/internal/api/notify"
FORGED, BARE = f"{STAMP_HEADER}: forged\r\n", f"{STAMP_HEADER}:\r\n"


def expected(path, needed, caller):
    if needed == "public" or path in SKIPPED:
        return "served"
    if caller == "nobody":
        return 401
    return "served" if RANK[caller] >= RANK[needed] else 403


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [pytest.param(*each, id=f"{each[0]} {each[1]}") for each in operations()],
)
async def test_a_route_is_for_those_whose_role_it_needs(client, method, path, operation, caller):
    headers = "" if caller == "nobody" else bearer(caller)
    wanted = expected(path, operation["x-access"], caller)
    for way in ("", FROM_A_PAGE) if HOT.match(path) else ("",):
        answer = await client.call(method, filled(path, operation), b"", headers + way)

        if wanted == "served":
            assert answer.status not in {401, 403}, answer
        else:
            assert answer.status == wanted, answer
            assert json.loads(answer.body).keys() == {"error", "code"}


async def test_polls_are_woken_by_an_admin_or_by_an_instance_and_by_no_other(client, queue):
    await client.call("POST", "/api/v1/configure", b'{"queue":"%b"}' % queue.encode(), bearer())
    body = json.dumps({"queue": queue}).encode()
    by_role = {
        role: (await client.call("POST", NOTIFY, body, bearer(role))).status for role in ROLES
    }
    elsewhere = bearer(skep_grants={"queues": ["other"]})
    answers = [
        await client.call("POST", NOTIFY, *call)
        for call in ((body, elsewhere), (b'{"wake":[]}',), (body, FORGED), (body, BARE))
    ]

    assert by_role == {"read-only": 403, "read-write": 403, "admin": 200}
    assert [answer.status for answer in answers] == [403, 401, 400, 400]


async def test_a_refusal_names_the_role_that_is_missing(client):
    answer = await client.call("POST", "/api/v1/push", b"{}", bearer("read-only"))

    assert "requires the role read-write" in json.loads(answer.body)["error"]
    assert b'error="insufficient_scope"' in answer.headers["www-authenticate"].encode()
