"""Tokens that are restricted to some queues, on every way to a message."""

import json

import pytest
from websockets.asyncio.client import connect

from tests.support.tokens import SECRET, bearer, claims, sign

FROM_A_PAGE = "Origin: http://test\r\n"


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1", jwt_enabled="true", jwt_secret=SECRET) as broker:
        yield broker


class Caller:
    """A connection with a token."""

    def __init__(self, client, role="admin", **members):
        self.client = client
        self.headers = bearer(role, **members)

    async def ask(self, method, path, body=None, way=""):
        spelled = b"" if body is None else json.dumps(body).encode()
        answer = await self.client.call(method, path, spelled, self.headers + way)
        return answer.status, json.loads(answer.body) if answer.body else None

    async def status(self, *arguments, **options):
        return (await self.ask(*arguments, **options))[0]

    async def push(self, queue, payload=1):
        item = {"queue": queue, "payload": payload}
        return await self.ask("POST", "/api/v1/push", {"items": [item]})

    async def pop(self, queue):
        _, answer = await self.ask("GET", f"/api/v1/pop/queue/{queue}?wait=true")
        return answer["messages"][0]


@pytest.fixture
def root(client):
    """A caller who may do everything."""
    return Caller(client)


@pytest.fixture
def mine(queue):
    return f"{queue}-mine"


@pytest.fixture
def theirs(queue):
    return f"{queue}-theirs"


@pytest.fixture
def namespace(queue):
    return f"{queue}-space"


@pytest.fixture
def by_name(client, mine):
    """A caller who may use one queue."""
    return Caller(client, "read-write", skep_grants=[{"queues": [mine]}])


@pytest.fixture
def by_namespace(client, namespace):
    """A caller who may use the queues of a namespace."""
    return Caller(client, "read-write", skep_grants={"namespaces": [namespace]})


@pytest.fixture
def in_namespace(root, mine, theirs, namespace, arun):
    """Put our queue into the namespace, and theirs into another."""

    async def configure():
        for queue, place in ((mine, namespace), (theirs, "others")):
            body = {"queue": queue, "namespace": place}
            assert await root.status("POST", "/api/v1/configure", body) == 201

    arun(configure())


@pytest.mark.parametrize("way", ["", FROM_A_PAGE], ids=["fast path", "asgi"])
async def test_a_push_needs_a_grant_on_every_queue(by_name, mine, theirs, way):
    both = {"items": [{"queue": mine, "payload": 1}, {"queue": theirs, "payload": 1}]}
    only = {"items": [{"queue": mine, "payload": 1}]}

    assert await by_name.status("POST", "/api/v1/push", only, way=way) == 201
    status, answer = await by_name.ask("POST", "/api/v1/push", both, way=way)
    assert status == 403
    assert answer["error"] == (
        f"Insufficient permissions: no read-write grant on the queue '{theirs}'"
    )


async def test_nothing_of_a_refused_push_is_stored(by_name, root, mine, theirs):
    both = {"items": [{"queue": mine, "payload": 1}, {"queue": theirs, "payload": 1}]}
    await by_name.ask("POST", "/api/v1/push", both)

    assert await root.status("GET", f"/api/v1/pop/queue/{mine}") == 204


async def test_defect_50_a_pop_needs_a_grant(by_name, root, mine, theirs):
    await root.push(mine)
    await root.push(theirs)

    assert await by_name.status("GET", f"/api/v1/pop/queue/{mine}") == 200
    assert await by_name.status("GET", f"/api/v1/pop/queue/{theirs}") == 403
    assert await by_name.status("GET", f"/api/v1/pop/queue/{theirs}/partition/Default") == 403


async def test_a_name_that_is_percent_encoded_is_the_same_name(by_name, root, mine, theirs):
    await root.push(theirs)
    spelled = "".join(f"%{ord(letter):02x}" for letter in theirs)

    assert await by_name.status("GET", f"/api/v1/pop/queue/{spelled}") == 403
    assert await by_name.status("GET", f"/api/v1/resources/queues/{spelled}") == 403


async def test_an_ack_needs_a_grant_on_the_queue_of_the_partition(by_name, root, mine, theirs):
    for queue, allowed in ((theirs, 403), (mine, 200)):
        await root.push(queue)
        message = await root.pop(queue)
        item = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}

        assert await by_name.status("POST", "/api/v1/ack", item) == allowed
        # Once more: now the broker knows where the partition belongs.
        batch = {"acknowledgments": [item]}
        assert await by_name.status("POST", "/api/v1/ack/batch", batch) == allowed


async def test_a_partition_is_refused_without_telling_its_queue(by_name, root, theirs):
    _, (pushed,) = await root.push(theirs)
    path = f"/api/v1/messages/{pushed['partition_id']}/{pushed['transaction_id']}"

    for method in ("GET", "DELETE"):
        status, answer = await by_name.ask(method, path)
        assert status == 403
        assert theirs not in answer["error"]


async def test_a_message_id_does_not_lead_out_of_the_partition_it_is_named_with(
    by_name, root, mine, theirs
):
    """A message id is an address and spells its partition out; the path names a granted one."""
    _, (own,) = await root.push(mine)
    _, (foreign,) = await root.push(theirs, payload="hush")
    path = f"/{own['partition_id']}/{foreign['message_id']}"
    trace = {
        "partitionId": own["partition_id"],
        "transactionId": foreign["message_id"],
        "data": {},
    }

    assert await by_name.status("GET", f"/api/v1/messages{path}") == 404
    assert await by_name.status("DELETE", f"/api/v1/messages{path}") == 404
    assert await by_name.status("POST", f"/api/v1/messages{path}/dlq") == 404
    assert await by_name.status("POST", f"/api/v1/messages{path}/retry") == 404
    assert await by_name.status("POST", "/api/v1/traces", trace) == 404
    assert await root.status("GET", f"/api/v1/pop/queue/{theirs}") == 200


async def test_a_transaction_needs_grants_for_all_of_it(by_name, root, mine, theirs):
    _, (pushed,) = await root.push(theirs)
    push = {"type": "push", "items": [{"queue": mine, "payload": 1}]}
    flat = {"type": "push", "queue": theirs, "payload": 1}
    ack = {
        "type": "ack",
        "transactionId": pushed["transaction_id"],
        "partitionId": pushed["partition_id"],
    }

    async def commit(*operations):
        return await by_name.status("POST", "/api/v1/transaction", {"operations": operations})

    assert await commit(push) == 200
    assert await commit(push, flat) == 403
    assert await commit(push, ack) == 403


async def test_a_stream_needs_grants_on_source_and_sink(by_name, root, mine, theirs, queue):
    _, (source,) = await root.push(mine)
    _, (foreign,) = await root.push(theirs)

    async def register(name, **members):
        body = {"name": name, "config_hash": "h", **members}
        return await by_name.ask("POST", "/streams/v1/queries", body)

    status, answer = await register(queue, source_queue=mine)
    assert status == 200
    assert (await register(queue, source_queue=theirs))[0] == 403
    assert (await register(queue, source_queue=mine, sink_queue=theirs))[0] == 403

    async def cycle(partition, sink):
        body = {
            "query_id": answer["query_id"],
            "partition_id": partition["partition_id"],
            "push_items": [{"queue": sink, "payload": 1}],
        }
        return await by_name.status("POST", "/streams/v1/cycle", body)

    assert await cycle(source, mine) == 200
    assert await cycle(source, theirs) == 403
    assert await cycle(foreign, mine) == 403
    state = {"query_id": answer["query_id"], "partition_id": foreign["partition_id"]}
    assert await by_name.status("POST", "/streams/v1/state/get", state) == 403


async def test_the_query_of_another_queue_cannot_be_taken_over(by_name, root, mine, theirs, queue):
    body = {"name": queue, "source_queue": theirs, "config_hash": "h"}
    assert await root.status("POST", "/streams/v1/queries", body) == 200

    takeover = {"name": queue, "source_queue": mine, "config_hash": "h2", "reset": True}
    assert await by_name.status("POST", "/streams/v1/queries", takeover) == 403


async def test_a_namespace_covers_its_queues(by_namespace, in_namespace, mine, theirs):
    assert (await by_namespace.push(mine))[0] == 201
    assert (await by_namespace.push(theirs))[0] == 403
    # Now with what the broker remembers.
    assert (await by_namespace.push(mine))[0] == 201
    assert (await by_namespace.push(theirs))[0] == 403
    message = await by_namespace.pop(mine)
    item = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    assert await by_namespace.status("POST", "/api/v1/ack", item) == 200


async def test_a_queue_that_does_not_exist_yet_is_decided_by_the_namespace_it_would_get(
    by_namespace, namespace, mine
):
    assert (await by_namespace.push(f"{namespace}.new"))[0] == 201
    assert (await by_namespace.push(f"{mine}.new"))[0] == 403


async def test_defect_50_discovery_finds_the_queues_that_are_granted(
    client, root, in_namespace, mine, theirs, queue
):
    for name in (mine, theirs):
        body = {"queue": name, "task": queue}
        assert await root.status("POST", "/api/v1/configure", body) == 201
        await root.push(name, payload=name)
    caller = Caller(client, "read-write", skep_grants={"queues": [mine]})

    status, answer = await caller.ask("GET", f"/api/v1/pop?task={queue}&batch=10&partitions=10")
    assert (status, [each["queue"] for each in answer["messages"]]) == (200, [mine])
    assert await caller.status("GET", f"/api/v1/pop?task={queue}&autoAck=true") == 204


async def test_a_search_that_waits_hears_only_of_the_queues_that_are_granted(
    client, open_client, root, in_namespace, mine, theirs, queue
):
    for name in (mine, theirs):
        body = {"queue": name, "task": queue}
        assert await root.status("POST", "/api/v1/configure", body) == 201
    caller = Caller(await open_client(), "read-write", skep_grants={"queues": [mine]})
    path = f"/api/v1/pop?task={queue}&wait=true&timeout=20000"
    caller.client.request("GET", path, b"", caller.headers)
    await root.push(theirs)
    await root.push(mine)

    answer = await caller.client.answer()
    assert [each["queue"] for each in json.loads(answer.body)["messages"]] == [mine]


async def test_attention_is_drawn_to_the_queues_that_are_granted(root, by_name, mine, theirs):
    for queue in (mine, theirs):
        await root.push(queue)
        assert await root.status("POST", f"/api/v1/queues/{queue}/pause") == 200

    status, answer = await by_name.ask("GET", "/api/v1/attention")

    assert (status, {item["queue"] for item in answer["items"]}) == (200, {mine})
    assert answer["counts"]["queues"] == {"paused": 1}
    assert answer["counts"]["messages"] == {}


LISTS = [
    "/api/v1/consumer-groups",
    "/api/v1/consumer-groups/lagging",
    "/api/v1/dlq",
    "/api/v1/messages",
    "/api/v1/resources/partitions",
    "/api/v1/scheduled",
    "/api/v1/retention/history",
    "/api/v1/analytics/retention",
]


@pytest.mark.parametrize("path", LISTS)
async def test_a_list_has_to_be_narrowed_to_a_queue_that_is_granted(
    by_name, root, path, mine, theirs
):
    await root.push(mine)
    await root.push(theirs)

    assert await by_name.status("GET", f"{path}?queue={mine}") == 200
    assert await by_name.status("GET", f"{path}?queue={theirs}") == 403
    assert await by_name.status("GET", path) == 403
    assert await by_name.status("GET", f"{path}?queue=") == 403
    assert await by_name.status("GET", f"{path}?queue={mine}&queue={theirs}") == 400


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/api/v1/resources/queues", "namespace"),
        ("/api/v1/status/queues", "namespace"),
        ("/api/v1/messages", "ns"),
    ],
)
async def test_a_list_may_be_narrowed_to_a_namespace_that_is_granted(
    by_namespace, in_namespace, namespace, mine, theirs, path, parameter
):
    status, answer = await by_namespace.ask("GET", f"{path}?{parameter}={namespace}")

    assert status == 200
    assert theirs not in json.dumps(answer)
    assert await by_namespace.status("GET", f"{path}?{parameter}=others") == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/resources/overview"),
        ("GET", "/api/v1/resources/namespaces"),
        ("GET", "/api/v1/traces/names"),
        ("GET", "/api/v1/dlq/redrive"),
        ("GET", "/api/v1/replays"),
        ("POST", "/api/v1/dlq/redrive"),
        ("DELETE", "/api/v1/consumer-groups/readers"),
        ("POST", "/api/v1/stats/refresh"),
        ("POST", "/api/v1/retention/run"),
    ],
)
async def test_what_is_about_the_whole_broker_needs_a_token_without_grants(client, method, path):
    caller = Caller(client, "admin", skep_grants=[{"queues": ["*"]}])

    status, answer = await caller.ask(method, path)
    assert status == 403
    assert "restrict" in answer["error"]


async def test_a_redrive_stays_within_the_grants(by_name, mine, theirs):
    async def redrive(**body):
        return await by_name.status("POST", "/api/v1/dlq/redrive", body)

    assert await redrive(queue=mine) == 202
    assert await redrive(queue=theirs) == 403
    assert await redrive(queue=mine, target={"queue": theirs}) == 403


async def test_a_replay_stays_within_the_grants(by_name, root, mine, theirs):
    span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    await root.push(mine)
    await root.push(theirs)

    async def replay(caller, **body):
        status, answer = await caller.ask("POST", "/api/v1/replays", {**span, **body})
        return status, answer.get("id")

    assert (await replay(by_name, queue=theirs, into=mine))[0] == 403
    assert (await replay(by_name, queue=mine, into=theirs))[0] == 403
    status, own = await replay(by_name, queue=mine, into=mine)
    _, other = await replay(root, queue=theirs, into=mine)
    assert status == 202
    assert await by_name.status("GET", f"/api/v1/replays/{own}") == 200
    assert await by_name.status("GET", f"/api/v1/replays/{other}") == 403


async def test_a_grant_may_allow_less_than_the_role(client, root, mine, theirs):
    grants = [{"queues": [mine]}, {"queues": [theirs], "rights": "read-only"}]
    caller = Caller(client, "admin", skep_grants=grants)
    await root.push(mine)
    await root.push(theirs)

    assert await caller.status("GET", f"/api/v1/resources/queues/{theirs}") == 200
    assert await caller.status("GET", f"/api/v1/pop/queue/{theirs}") == 403
    assert await caller.status("DELETE", f"/api/v1/resources/queues/{theirs}") == 403
    assert await caller.status("DELETE", f"/api/v1/resources/queues/{mine}") == 200


class TestConfigure:
    async def configure(self, caller, queue, **members):
        return await caller.status("POST", "/api/v1/configure", {"queue": queue, **members})

    async def test_a_queue_is_configured_by_those_who_are_granted_it(self, by_name, mine, theirs):
        assert await self.configure(by_name, mine) == 201
        assert await self.configure(by_name, theirs) == 403

    async def test_a_queue_is_not_put_into_a_namespace_of_others(self, by_name, mine):
        assert await self.configure(by_name, mine, namespace="others") == 403

    async def test_a_new_queue_may_be_put_into_a_namespace_that_is_granted(
        self, by_namespace, mine, namespace
    ):
        assert await self.configure(by_namespace, mine, namespace=namespace) == 201
        assert (await by_namespace.push(mine))[0] == 201

    async def test_a_queue_of_others_is_not_drawn_into_a_namespace_that_is_granted(
        self, by_namespace, in_namespace, theirs, namespace
    ):
        assert await self.configure(by_namespace, theirs, namespace=namespace) == 403


class TestLive:
    def connect(self, broker, queue, **members):
        headers = {"Authorization": f"Bearer {sign(claims('read-write', **members))}"}
        url = f"ws://127.0.0.1:{broker.port}/api/v1/stream/queue/{queue}"
        return connect(url, proxy=None, additional_headers=headers)

    async def test_a_socket_acknowledges_only_in_queues_that_are_granted(
        self, broker, root, mine, theirs
    ):
        _, (foreign,) = await root.push(theirs)
        item = {
            "transactionId": foreign["transaction_id"],
            "partitionId": foreign["partition_id"],
        }
        async with self.connect(broker, mine, skep_grants={"queues": [mine]}) as socket:
            await socket.send(json.dumps({"type": "ack", "acknowledgments": [item]}))
            told = json.loads(await socket.recv())

        assert (told["type"], told["code"]) == ("error", "forbidden")

    async def test_events_need_a_grant(self, by_name, root, theirs):
        await root.push(theirs)

        path = f"/api/v1/stream/queue/{theirs}/events"
        assert await by_name.status("GET", path) == 403


async def test_a_restricted_caller_is_told_so(by_name):
    _, account = await by_name.ask("GET", "/api/me")

    assert account["isRestricted"]


async def test_a_grant_on_a_namespace_covers_its_keys(client):
    caller = Caller(
        client,
        skep_grants=[{"namespaces": ["mine"]}, {"namespaces": ["seen"], "rights": "read-only"}],
    )
    put = {"op": "put", "key": "k", "value": 1, "forever": True}

    async def call(*namespaces):
        operations = [{**put, "ns": ns} for ns in namespaces]
        return await caller.status("POST", "/api/v1/kv", {"operations": operations})

    async def list_(ns):
        return await caller.status("POST", "/api/v1/resources/kv/list", {"namespace": ns})

    assert [await call("mine"), await call("seen"), await call("mine", "theirs")] == [200, 403, 403]
    assert [await list_(ns) for ns in ("mine", "seen", "theirs")] == [200, 200, 403]
    assert await caller.status("GET", "/api/v1/kv/seen/k") == 200
    assert await caller.status("DELETE", "/api/v1/kv/seen/k") == 403
    assert await caller.status("GET", "/api/v1/kv/theirs/k") == 403
    assert await caller.status("GET", "/api/v1/resources/kv/namespaces") == 403


async def test_a_grant_to_read_a_queue_is_enough_to_read_it_by_offset(client, queue):
    caller = Caller(client, skep_grants=[{"queues": [queue], "rights": "read-only"}])
    bodies = {
        "/api/v1/fetch": {"offset": 0},
        "/api/v1/fetch/offsets": {"timestamp": 0},
        "/api/v1/partitions/changed": {},
    }
    for path, members in bodies.items():
        own, other = ({"queue": each, **members} for each in (queue, f"{queue}-other"))

        assert await caller.status("POST", path, {"entries": [own]}) == 200
        assert await caller.status("POST", path, {"entries": [own, other]}) == 403


async def test_keys_of_a_transaction_need_a_grant_on_their_namespace(client):
    caller = Caller(client, skep_grants=[{"namespaces": ["mine"]}])

    async def commit(ns):
        kv = [{"op": "put", "ns": ns, "key": "k", "value": 1, "forever": True}]
        return await caller.status("POST", "/api/v1/transaction", {"operations": [], "kv": kv})

    assert [await commit("mine"), await commit("theirs")] == [200, 403]
