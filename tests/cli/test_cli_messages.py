"""`skep messages` and `skep dlq` against a broker."""

from uuid import uuid4

import pytest

from skep.client import dead_letter, failed


@pytest.fixture
def letters(api, queue):
    """Three dead letters of the group `billing`, of two errors."""
    api.push_many(queue, range(3), partition="p")
    messages = api.pop(queue, group="billing", batch=3)
    api.ack(messages[:1], dead_letter("broken"))
    api.ack(messages[1:], dead_letter("too late"))
    return queue


def dlq_ids(api, queue):
    return [letter.dlq_id for letter in api.dead_letters.find(queue=queue).messages]


def test_messages_are_listed_filtered_and_paged(skep, api, queue):
    api.push_many(queue, range(3), partition="a")
    api.push_many(queue, range(2), partition="b")
    api.ack(api.pop(queue, partition="b", batch=2))

    whole = skep("messages", "list", queue, "-o", "ndjson").ndjson()
    done = skep("messages", "list", queue, "--status", "completed", "-o", "ndjson").ndjson()
    cut = skep("messages", "list", queue, "--limit", 2)
    cursor = cut.err.split("--cursor ")[1].split(",")[0]
    rest = skep("messages", "list", queue, "--cursor", cursor, "-o", "ndjson").ndjson()
    old = skep("messages", "list", queue, "--until", "1h", "--since", "2h")

    assert len(whole) == 5
    assert {message["partition"] for message in done} == {"b"}
    assert rest == whole[2:]
    assert "No message matches" in old.err


def test_what_comes_next_is_shown_and_not_taken(skep, api, queue):
    api.push_many(queue, [{"n": 1}, {"n": 2}])

    rows = skep("messages", "peek", queue, "--limit", 1, "-o", "ndjson").ndjson()

    assert [row["data"] for row in rows] == [{"n": 1}]
    assert api.pop(queue)[0].data == {"n": 1}


def test_a_message_goes_by_its_id_alone(skep, api, queue):
    pushed = api.push(queue, {"total": 42})

    record = skep("messages", "show", pushed.message_id, "-o", "json").json()
    table = skep("messages", "show", pushed.message_id).out

    assert record["payload"] == {"total": 42}
    assert '{"total":42}' in table


def test_a_message_goes_by_its_transaction_id_in_a_queue_or_partition(skep, api, queue):
    pushed = api.push(queue, 1, transaction_id="order-1")

    by_queue = skep("messages", "show", "order-1", "--queue", queue, "-o", "json").json()
    place = ("--partition-id", pushed.partition_id)
    by_partition = skep("messages", "show", "order-1", *place, "-o", "json").json()

    assert by_queue["id"] == by_partition["id"] == pushed.message_id


def test_a_transaction_id_that_is_not_enough_is_refused(skep, api, queue):
    api.push(queue, 1, transaction_id="twin", partition="a")
    api.push(queue, 2, transaction_id="twin", partition="b")

    alone = skep("messages", "show", "twin", code=1)
    several = skep("messages", "show", "twin", "--queue", queue, code=1)
    chosen = skep("messages", "show", "twin", "--queue", queue, "--partition", "b", "-o", "json")
    unknown = skep("messages", "show", "other", "--queue", queue, code=1)

    assert "add --queue" in alone.err
    assert "a, b; add --partition" in several.err
    assert chosen.json()["payload"] == 2
    assert f"{queue} has no message other" in unknown.err


def test_a_message_is_deleted(skep, api, queue):
    pushed = api.push(queue, 1)

    skep("messages", "delete", pushed.message_id, "--yes")

    assert api.pop(queue) == []


def test_a_message_that_failed_is_retried_now(skep, api, queue):
    api.queues.configure(queue, retryDelay=600_000, retryDelayMax=600_000)
    pushed = api.push(queue, 1)
    api.ack(api.pop(queue, group="billing"), failed("not now"))
    waiting = api.pop(queue, group="billing")

    skep("messages", "retry", pushed.message_id, "--group", "billing")

    assert waiting == []
    assert len(api.pop(queue, group="billing")) == 1


def test_a_message_is_given_up_and_brought_back(skep, api, queue):
    pushed = api.push(queue, {"n": 1})
    api.groups.seek("billing", queue, "start", create=True)

    flags = ("--group", "billing", "--error", "poison", "--yes")
    skep("messages", "dead-letter", pushed.message_id, *flags)
    (letter,) = skep("dlq", "list", "--queue", queue, "-o", "json").json()
    shown = skep("dlq", "show", letter["dlqId"], "-o", "json").json()
    skep("dlq", "redrive", letter["dlqId"])

    assert (letter["errorMessage"], letter["consumerGroup"]) == ("poison", "billing")
    assert shown["data"] == {"n": 1}
    assert [message.data for message in api.pop(queue, group="billing")] == [{"n": 1}]


def test_dead_letters_are_listed_by_what_they_have_in_common(skep, letters):
    rows = skep("dlq", "list", "--queue", letters, "--error", "late", "-o", "ndjson").ndjson()
    table = skep("dlq", "list", "--queue", letters, "--group", "billing", "--limit", 1)

    assert [row["errorMessage"] for row in rows] == ["too late", "too late"]
    assert "--offset 1" in table.err
    assert not skep("dlq", "list", "--queue", letters, "--since", "1s", "--until", "1h").out


@pytest.mark.parametrize(
    ("flags", "moved"),
    [(["--error", "late"], 2), (["--group", "billing"], 3), (["--limit", "1"], 1)],
    ids=["error", "group", "limit"],
)
def test_dead_letters_that_match_are_put_back(skep, api, letters, flags, moved):
    flags = ("--queue", letters, *flags, "--yes")

    ended = skep("dlq", "redrive", *flags, "-o", "json").json()

    assert (ended["state"], ended["moved"]) == ("done", moved)
    assert len(dlq_ids(api, letters)) == 3 - moved


def test_what_was_put_back_is_refused_unless_it_is_meant(skep, api, letters):
    letter = dlq_ids(api, letters)[0]
    skep("dlq", "redrive", letter)

    assert f"redriven already: {letter}" in skep("dlq", "redrive", letter, code=1).err
    assert skep("dlq", "redrive", letter, "--again", "-o", "json").json()["moved"] == 1


def test_a_message_is_put_back_for_all_groups_on_request(skep, api, letters):
    api.pop(letters, group="audit", batch=10, auto_ack=True)

    skep("dlq", "redrive", dlq_ids(api, letters)[0])
    assert api.pop(letters, group="audit") == []
    skep("dlq", "redrive", dlq_ids(api, letters)[0], "--all-groups")

    assert len(api.pop(letters, group="audit", batch=10)) == 1


def test_dead_letters_are_put_into_another_queue(skep, api, letters):
    other = f"{letters}-other"
    target = ("--to-queue", other, "--to-partition", "x")

    skep("dlq", "redrive", *dlq_ids(api, letters), *target)

    found = api.pop(other, partition="x", batch=10)
    assert sorted(message.data for message in found) == [0, 1, 2]


def test_a_redrive_of_ids_that_are_not_there_is_an_error(skep):
    said = skep("dlq", "redrive", 987_654, 987_655, code=1).err

    assert "no such dead letter: 987654, 987655; `skep dlq list` shows them" in said


def test_a_redrive_goes_on_by_itself_and_is_listed(skep, api, letters):
    started = skep("dlq", "redrive", "--queue", letters, "--yes", "--detach", "-o", "json").json()

    listed = skep("dlq", "redrives", "-o", "ndjson").ndjson()

    assert started["id"] in {each["id"] for each in listed}
    assert "no redrive" in skep("dlq", "cancel", uuid4(), code=1).err


def test_dead_letters_are_deleted_by_id_by_filter_and_all(skep, api, letters):
    first = dlq_ids(api, letters)[0]

    by_id = skep("dlq", "delete", first, "--yes")
    by_filter = skep("dlq", "delete", "--queue", letters, "--error", "broken", "--yes")
    skep("dlq", "delete", "--all", "--yes")

    assert by_id.out == by_filter.out == "Deleted 1 dead letter\n"
    assert dlq_ids(api, letters) == []


@pytest.mark.parametrize("command", ["redrive", "delete"])
def test_a_choice_must_be_made_and_only_one(skep, command):
    nothing = skep("dlq", command, "--yes", code=1)
    both = skep("dlq", command, 1, "--error", "x", "--yes", code=1)

    assert "pass ids, a filter" in nothing.err
    assert "not both" in both.err
