"""`skep pop`, `skep ack`, `skep transaction` and `skep traces`."""

import json
from uuid import uuid4

import pytest
import yaml


def test_messages_are_popped_and_acknowledged_by_their_lines(skep, api, queue):
    api.push_many(queue, [{"n": 1}, {"n": 2}])

    lines = skep("pop", queue, "--group", "g", "--batch", "5", "-o", "ndjson").out

    popped = [json.loads(line) for line in lines.splitlines()]
    assert [message["data"]["n"] for message in popped] == [1, 2]
    assert {message["consumerGroup"] for message in popped} == {"g"}
    acked = skep("ack", "-o", "json", stdin=lines)
    assert [result["success"] for result in acked.json()] == [True, True]
    assert "no message" in skep("pop", queue, "--group", "g", code=4).err


def test_a_misspelt_queue_or_partition_is_not_created(skep, api, queue):
    api.push(queue, 1)

    assert f"{queue}-typo" in skep("pop", f"{queue}-typo", code=1).err
    assert "no-such" in skep("pop", queue, "--partition", "no-such", code=1).err

    assert f"{queue}-typo" not in skep("queues", "list", "-o", "ndjson").out


def test_a_payload_is_printed_as_it_was_pushed(skep, api, queue):
    skep("push", queue, '{"b": 1.50, "a": [ ]}')

    assert '"data":{"b": 1.50, "a": [ ]}' in skep("pop", queue, "-o", "ndjson").out


def test_auto_ack_leaves_nothing(skep, api, queue):
    api.push(queue, "x", partition="p")

    table = skep("pop", queue, "--auto-ack", "--partition", "p").out

    assert table.splitlines()[1].split()[-1] == "x"
    skep("pop", queue, "--wait", "0.1", code=4)


def test_a_message_is_acknowledged_by_its_ids(skep, api, queue):
    api.push(queue, 1, transaction_id="t")
    (message,) = skep("pop", queue, "-o", "json").json()
    named = ("ack", "t", "--partition-id", message["partitionId"], "--lease-id", message["leaseId"])

    assert "yes" in skep(*named, "--status", "dlq", "--error", "bad").out
    assert api.dead_letters.find(queue=queue).total == 1
    assert skep(*named, "-o", "json").json()[0]["noop"]
    unknown = ("ack", "no-such-message", *named[2:])
    assert "1 of 1 were refused" in skep(*unknown, code=1).err


def test_lines_of_a_file_are_acknowledged(skep, api, queue, tmp_path):
    api.push(queue, 1)
    file = tmp_path / "popped.ndjson"
    file.write_text(skep("pop", queue, "-o", "ndjson").out)

    skep("ack", "--file", file, "--status", "retry")

    assert skep("pop", queue, "-o", "json").json()[0]["data"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("t",), 1, "--partition-id"),
        (("t", "--partition-id", "p", "--file", "f"), 1, "not both"),
        (("--file", "no-such-file"), 1, "cannot read"),
        ((), 4, "nothing to acknowledge"),
    ],
)
def test_an_ack_that_names_no_messages_is_refused(skep, arguments, code, told):
    assert told in skep("ack", *arguments, code=code).err


def test_lines_that_are_no_messages_are_refused(skep):
    assert "not the output of" in skep("ack", stdin='{"a": 1}\n', code=1).err


def test_a_transaction_happens_once_however_often_it_is_run(skep, api, queue, tmp_path):
    api.push(queue, "in")
    (message,) = api.pop(queue)
    body = {
        "operations": [
            {"type": "push", "items": [{"queue": f"{queue}-out", "payload": 1}]},
            {
                "type": "ack",
                "transactionId": message.transaction_id,
                "partitionId": message.partition_id,
                "leaseId": message.lease_id,
            },
        ],
        "requiredLeases": [message.lease_id],
    }
    file = tmp_path / "transaction.yaml"
    file.write_text(yaml.safe_dump(body))

    results = skep("transaction", file, "-o", "json").json()

    assert [result["type"] for result in results] == ["push", "ack"]
    skep("transaction", file)
    assert len(api.pop(f"{queue}-out", batch=10)) == 1
    assert api.pop(queue) == []


def test_a_transaction_whose_lease_is_lost_does_nothing(skep, api, queue):
    push = {"type": "push", "items": [{"queue": queue, "payload": 1}]}
    body = {"operations": [push], "requiredLeases": [str(uuid4())]}

    said = skep("transaction", "-", stdin=json.dumps(body), code=1).err

    assert "was rolled back" in said
    assert api.pop(queue) == []


def test_pushes_alone_are_not_repeated(skep, api, queue):
    body = json.dumps({"operations": [{"type": "push", "queue": queue, "payload": 1}]})

    skep("transaction", "-", stdin=body)
    skep("transaction", "-", stdin=body)

    assert len(api.pop(queue, batch=10)) == 1


@pytest.mark.parametrize("text", ["[1", "7", '{"operations": 1}', "{}"])
def test_what_is_no_transaction_is_refused(skep, text):
    skep("transaction", "-", stdin=text, code=1)


def test_a_file_that_is_not_there_is_named(skep):
    assert "cannot read no-such-file" in skep("transaction", "no-such-file", code=1).err


def test_events_are_shown_by_name_and_by_message(skep, api, queue):
    result = api.push(queue, 1, transaction_id="t")
    api.traces.record(result.partition_id, "t", {"step": 1}, names=[f"{queue}-flow"])

    assert f"{queue}-flow" in skep("traces", "names").out
    (event,) = skep("traces", "show", f"{queue}-flow", "-o", "json").json()
    assert event["data"] == {"step": 1}
    assert "step" in skep("traces", "message", result.partition_id, "t").out
    assert skep("traces", "show", "nothing-is-filed-here").out == ""
