"""Ids, flags and modes in the URL: read alike on every route, and refused with the reason."""

import json

import pytest

from tests.support.broker import payloads, pop_path

MALFORMED_IDS = ["nonsense", "0198c1a2-0000-7000-8000", "12x", "%20", "0", "-1", f"{2**63}"]
PATH_IDS = {"partition_id"}
"""Ids that the document describes as plain text."""


async def operations(client):
    """Return every operation of the document, as method, path and parameters."""
    document = json.loads((await client.call("GET", "/openapi.json")).body)
    return [
        (method.upper(), path, each.get("parameters", []))
        for path, item in document["paths"].items()
        for method, each in item.items()
    ]


def is_id(parameter):
    schema = parameter["schema"]
    return parameter["in"] == "path" and (
        parameter["name"] in PATH_IDS
        or schema["type"] == "integer"
        or schema.get("format") == "uuid"
    )


def refusal(answer):
    body = json.loads(answer.body)
    return answer.status, body["code"], body["error"]


@pytest.mark.parametrize("malformed", MALFORMED_IDS)
async def test_a_malformed_id_in_a_path_is_a_400_that_names_it(client, malformed):
    paths = [
        (method, path, parameter["name"])
        for method, path, parameters in await operations(client)
        for parameter in parameters
        if is_id(parameter)
    ]
    assert len(paths) > 30

    for method, path, name in paths:
        target = path.replace(f"{{{name}}}", malformed).replace("{transaction_id}", "t")
        status, code, text = refusal(await client.call(method, target))
        assert (status, code) == (400, "bad_request"), (method, target, text)
        assert name in text


@pytest.mark.parametrize("word", ["true", "TRUE", "True", "1", "yes", "YES", "on"])
async def test_a_flag_of_a_poll_may_be_spelled_as_people_do(client, queue, word):
    await client.push_payloads(queue, 1)

    (message,) = await client.pop(queue, autoAck=word)

    assert payloads([message]) == [1]
    assert message["leaseId"] == ""
    assert await client.pop(queue) == []


@pytest.mark.parametrize("word", ["false", "FALSE", "0", "no", "No", "off", ""])
async def test_a_flag_of_a_poll_may_be_denied(client, queue, word):
    await client.push_payloads(queue, 1)

    (message,) = await client.pop(queue, autoAck=word, wait=word)

    assert message["leaseId"]


async def test_every_flag_takes_the_same_words_and_refuses_nonsense(client, queue):
    flags = [
        (method, path, parameter["name"])
        for method, path, parameters in await operations(client)
        for parameter in parameters
        if parameter["schema"].get("type") == "boolean"
    ]
    assert len(flags) > 12

    for method, path, name in flags:
        target = path.replace("{chain_id}", "0198c1a2-0000-7000-8000-000000000001")
        target = (
            target.replace("{queue}", queue).replace("{partition}", "p").replace("{group}", "g")
        )
        refused = refusal(
            await client.call(method, f"{target}?{name}=perhaps&queue={queue}&task=t")
        )
        assert refused == (400, "bad_request", f"Invalid {name}: 'perhaps'. Use true or false.")
        for word in ("TRUE", "1", "yes", "False", "0", "no"):
            parameters = f"{name}={word}&queue={queue}&task=t-{queue}&timeout=1"
            answer = await client.call(method, f"{target}?{parameters}")
            assert b"Invalid" not in answer.body, (method, target, name, word, answer)


@pytest.mark.parametrize("mode", ["anything", "NEW", "latest"])
async def test_an_unknown_subscription_mode_is_refused_with_those_that_exist(client, queue, mode):
    for group in ({"consumerGroup": "g"}, {}):
        answer = await client.call("GET", pop_path(queue, subscriptionMode=mode, **group))

        text = f"Invalid subscriptionMode: '{mode}'. Use all, from_beginning, new or new-only."
        assert refusal(answer) == (400, "bad_request", text)


@pytest.mark.parametrize("moment", ["2026-01-01T12:00:00", "2026-01-01T12:00:00%2B02:00"])
async def test_every_time_may_come_without_a_zone(client, queue, moment):
    times = [
        (method, path, parameter["name"])
        for method, path, parameters in await operations(client)
        for parameter in parameters
        if "date-time" in json.dumps(parameter["schema"])
    ]
    assert len(times) > 20

    for method, path, name in times:
        answer = await client.call(method, f"{path}?{name}={moment}&queue={queue}")
        assert answer.status in {200, 409}, (method, path, name, answer)
