"""What became of a message, over HTTP."""

import json


async def history(client, message, status=200):
    path = f"/api/v1/messages/{message['partitionId']}/{message['id']}/history"
    answer = await client.call("GET", path)
    assert answer.status == status, answer
    return json.loads(answer.body)


async def test_a_delivered_message_shows_who_holds_it_and_until_when(client, queue):
    await client.push_payloads(queue, 1)
    (message,) = await client.pop(queue, consumerGroup="g")

    (delivery,) = (await history(client, message))["deliveries"]

    assert (delivery["group"], delivery["state"], delivery["deliveries"]) == ("g", "leased", 1)
    assert delivery["until"].endswith("Z")


async def test_a_message_that_died_and_was_pushed_again_is_found_from_both_sides(client, queue):
    await client.configure(queue, retryLimit=0)
    await client.push({"queue": queue, "payload": 1, "transactionId": f"t-{queue}"})
    (message,) = await client.pop(queue, consumerGroup="g")
    await client.ack(message, "failed", error="stung")
    (letter,) = (await history(client, message))["letters"]
    path = f"/api/v1/messages/{message['partitionId']}/t-{queue}/retry"
    moved = json.loads((await client.post(path, {})).body)

    (redriven,) = (await history(client, message))["letters"]
    (origin,) = (await history(client, {**message, "id": moved["replayedAs"]}))["letters"]

    assert (letter["error"], letter["redrivenAt"], letter["otherId"]) == ("stung", None, None)
    assert (redriven["otherId"], redriven["isOrigin"]) == (moved["replayedAs"], False)
    assert (origin["otherId"], origin["isOrigin"]) == (message["id"], True)


async def test_a_message_that_never_was_has_no_history(client, queue):
    await client.push_payloads(queue, 1)
    (message,) = await client.pop(queue)
    nobody = {"partitionId": message["partitionId"], "id": "nobody"}

    assert (await history(client, nobody, 404))["error"] == "Message not found"
