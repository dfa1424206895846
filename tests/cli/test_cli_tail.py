"""`skep tail`, and the events it reads."""

import json

import pytest
import yaml

from skep.cli.messages.event_stream import Event, EventStream, parse_events
from skep.cli.messages.tail import message_line
from tests.faults.support.instances import instance


def test_what_is_there_is_shown_from_the_start(skep, api, queue):
    api.push(queue, {"n": 1}, partition="p", transaction_id="t-1")
    api.push(queue, {"n": 2}, partition="q")

    table = skep("tail", queue, "--from", "start", "--limit", "2").out
    assert '  p  {"n":1}' in table
    assert "t-1" in skep("tail", queue, "--from", "start", "--limit", "2", "-o", "wide").out
    only = skep(
        "tail", queue, "--from", "start", "--partition", "q", "--limit", "1", "-o", "ndjson"
    )
    assert only.ndjson()[0]["data"] == {"n": 2}
    assert len(api.pop(queue, batch=10, partitions=0)) == 2  # nothing was consumed


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (("--payload", "$.total >= 20"), [{"total": 20}]),
        (("--payload", "lat"), [{"city": "lat"}]),
        (("--header", "source=web"), [{"city": "lat"}]),
        (("--header", "source=web", "--partition", "other"), []),
    ],
)
def test_only_what_matches_is_shown(skep, queue, flags, found):
    skep("push", queue, '{"total": 10}', '{"total": 20}')
    skep("push", queue, '{"city": "lat"}', "--header", "source=web")

    ended = ("--from", "start", "--limit", "1", "--idle", "0.5", "-o", "ndjson")
    shown = skep("tail", queue, *flags, *ended, code=0 if found else 4).ndjson()

    assert [message["data"] for message in shown] == found
    listed = skep("messages", "list", queue, *flags, "-o", "ndjson").ndjson()
    assert len(listed) == len(found)


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_each_message_is_a_document(skep, api, queue, output):
    api.push_many(queue, [1, 2])

    said = skep("tail", queue, "--from", "start", "--limit", "2", "-o", output).out

    parse = yaml.safe_load_all if output == "yaml" else _documents
    assert [message["data"] for message in parse(said)] == [1, 2]


def _documents(text):
    decoder, place = json.JSONDecoder(), 0
    while text[place:].strip():
        value, length = decoder.raw_decode(text[place:].lstrip())
        place += length + len(text[place:]) - len(text[place:].lstrip())
        yield value


def test_it_ends_when_nothing_comes(skep, api, queue):
    api.push(queue, 1)

    assert "no message arrived" in skep("tail", queue, "--idle", "0.2", code=4).err
    assert (
        len(skep("tail", queue, "--from", "start", "--idle", "0.5", "-o", "ndjson").ndjson()) == 1
    )


def test_a_queue_that_is_not_there_and_a_broker_that_is_not_there(skep):
    skep("tail", "no-such-queue-at-all", code=1)
    assert "cannot connect to" in skep("tail", "q", "--url", "http://127.0.0.1:1", code=2).err


def test_a_broker_that_is_killed_leaves_no_seam(broker, api, queue):
    api.push_many(queue, [1, 2])
    told = []
    with instance(broker.database_url, "--workers", "1") as killed:
        path = f"/api/v1/stream/queue/{queue}/events?from=start"
        stream = EventStream([killed.url, broker.url], None, path, on_wait=told.append)
        events = stream.events()
        seen = [next(events), next(events)]
    api.push_many(queue, [3])
    seen.append(next(events))
    events.close()

    assert [json.loads(event.data)["data"] for event in seen] == [1, 2, 3]
    assert told


def test_a_start_is_a_word_or_a_time(skep, run, api, queue):
    api.push(queue, {"n": 1})

    assert len(skep("tail", queue, "--from", "1h", "--limit", "1", "-o", "ndjson").ndjson()) == 1
    assert "Invalid time: 'yesterday'" in run("tail", queue, "--from", "yesterday", code=1).err


def test_events_are_put_together_from_lines():
    lines = [b": alive\n", b"id: 7\r\n", b"\n", b"id: 8\n", b"event: message\n"]
    lines += [b'data: {"a":\n', b"data: 1}\n", b"retry: 5\n", b"\n", b"data: cut off\n"]

    assert list(parse_events(lines)) == [
        Event("7", "message", b""),
        Event("8", "message", b'{"a":\n1}'),
    ]


def test_a_line_says_what_could_not_be_decrypted():
    message = {
        "createdAt": "2026-01-31T12:00:00.123Z",
        "partition": "p",
        "transactionId": "t",
        "data": None,
        "error": "no key",
    }

    assert message_line(message).plain == "12:00:00.123  p  [no key] null"


def test_in_a_terminal_a_message_is_one_line():
    message = {"createdAt": "2026-01-31T12:00:00.123Z", "partition": "p", "data": "long " * 40}

    line = message_line({**message, "transactionId": "t"}, width=40).plain

    assert (len(line), line[-1]) == (40, "…")
