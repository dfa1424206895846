"""Scheduling: when an item wants to be delivered, and what it is told."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from skep.broker.push.rules import READ_CALL, RuleBook
from skep.broker.scheduled.accept import (
    SCHEDULE_CALL,
    Moment,
    PendingSchedule,
    ScheduleExecutor,
    ScheduleItem,
    ScheduleOutcome,
    new_nonce,
    parse_moment,
    render_outcome,
)
from skep.model.errors import BadRequest, Refused, Unavailable
from skep.model.ids import message_id
from skep.model.limits import SCHEDULE_SECONDS_MAX

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = Moment(None, 5.0)


@pytest.mark.parametrize(
    ("deliver_at", "delay_seconds", "moment"),
    [
        (None, None, None),
        (None, 0, None),
        (None, 5, Moment(None, 5.0)),
        (None, 0.25, Moment(None, 0.25)),
        (None, SCHEDULE_SECONDS_MAX, Moment(None, float(SCHEDULE_SECONDS_MAX))),
        ("2026-01-02T00:00:00Z", None, Moment(NOON + timedelta(hours=12), None)),
        ("2026-01-02T02:00:00+02:00", None, Moment(NOON + timedelta(hours=12), None)),
        ("2026-01-02T00:00:00", None, Moment(NOON + timedelta(hours=12), None)),
        ("2025-01-01T12:00:00Z", None, Moment(NOON - timedelta(days=365), None)),
    ],
)
def test_an_item_says_when_it_wants_to_be_delivered(deliver_at, delay_seconds, moment):
    assert parse_moment(deliver_at, delay_seconds, NOON) == moment


@pytest.mark.parametrize(
    ("deliver_at", "delay_seconds", "error"),
    [
        (None, -1, "delaySeconds must be between"),
        (None, SCHEDULE_SECONDS_MAX + 1, "delaySeconds must be between"),
        (None, float("nan"), "delaySeconds must be between"),
        ("tomorrow", None, "deliverAt must be an ISO 8601 time"),
        ("", None, "deliverAt must be an ISO 8601 time"),
        ("0001-01-01T00:00:00+23:00", None, "deliverAt must be an ISO 8601 time"),
        ("2028-01-01T00:00:00Z", None, "deliverAt is more than a year ahead"),
        ("2026-01-02T00:00:00Z", 5, "deliverAt and delaySeconds exclude each other"),
    ],
)
def test_what_is_no_moment_is_refused(deliver_at, delay_seconds, error):
    with pytest.raises(BadRequest, match=error):
        parse_moment(deliver_at, delay_seconds, NOON)


class Database:
    """Answers each item by its transaction id, in calls that are recorded."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []

    async def call(self, statement, *columns):
        if statement == READ_CALL:
            return [
                (queue_id, 1, 0, False, 0, "reject", None, "asked", False)
                for queue_id in columns[0]
            ]
        assert statement == SCHEDULE_CALL
        names = columns[3]
        self.calls.append((names, columns[8]))
        answer = self.answers.pop(0)
        return [(number, *answer[name]) for number, name in enumerate(names, start=1)]


class Due(list):
    def hear_of_due(self, seconds):
        self.append(seconds)


def item(name, partition="a"):
    return ScheduleItem(1, partition, name.encode(), name, b"{}", LATER, new_nonce())


def scheduled(number, seconds=5.0):
    return ("scheduled", number, NOON, seconds, None, None)


AGAIN = ("again", None, None, None, None, None)


async def execute(database, *pending, due=None, is_repeated=False):
    """Run pending of items; return the outcomes of each."""
    answers = []
    batch = [PendingSchedule(items, lambda *answer: answers.append(answer)) for items in pending]
    rule_book = RuleBook(database, seal=lambda envelope: envelope)
    due = Due() if due is None else due
    executor = ScheduleExecutor(database, rule_book, due, waiting_max=10)
    await executor.execute(batch, is_repeated=is_repeated)
    assert all(work.is_settled for work in batch)
    return [outcomes for outcomes, error in answers if error is None]


async def test_requests_share_a_call_and_each_gets_its_own_outcomes():
    database, due = Database({"x": scheduled(1, 9.0), "y": scheduled(2, 3.0)}), Due()

    [[x], [y]] = await execute(database, [item("x")], [item("y")], due=due)

    assert [x.scheduled_id, y.scheduled_id] == [1, 2]
    assert sorted(due) == [3.0, 9.0]
    assert database.calls == [(["x", "y"], False)]


async def test_items_with_the_same_name_are_left_to_the_database():
    database = Database({"x": scheduled(1)})

    await execute(database, [item("x"), item("x")], [item("x")])

    assert database.calls == [(["x", "x", "x"], False)]


async def test_what_is_not_decided_goes_again_alone():
    database = Database({"x": AGAIN, "y": scheduled(2)}, {"x": scheduled(1)})

    [[x, y]] = await execute(database, [item("x"), item("y")], is_repeated=True)

    assert [x.scheduled_id, y.scheduled_id] == [1, 2]
    assert database.calls == [(["x", "y"], True), (["x"], True)]


async def test_items_that_could_not_be_scheduled_fail_alone():
    nothing = (None,) * 5
    database = Database({"x": ("full", *nothing), "y": ("gone", *nothing), "z": scheduled(3)})

    [[x, y, z]] = await execute(database, [item("x"), item("y"), item("z")])

    assert [x.status, y.status, z.status] == ["failed", "failed", "scheduled"]
    assert "too many" in x.refusal.message
    assert "does not exist" in y.refusal.message


def test_a_batch_that_fails_says_so_once():
    answers = []
    pending = PendingSchedule([item("x")], lambda *answer: answers.append(answer))
    error = Unavailable()

    pending.fail(error)

    assert answers == [(None, error)]
    assert pending.is_settled
    assert pending.weight > 0


def rendered(outcome):
    return json.loads(
        render_outcome(
            outcome,
            position=3,
            transaction_id=b'"x"',
            trace_id=b"null",
            partition_uuid=b"partition",
            queue=b'"hive"',
        )
    )


def test_a_scheduled_item_is_told_its_id_and_its_time():
    assert rendered(ScheduleOutcome("scheduled", 5, NOON)) == {
        "index": 3,
        "transaction_id": "x",
        "status": "scheduled",
        "scheduledId": "5",
        "deliverAt": "2026-01-01T12:00:00.000000Z",
        "partition_id": "partition",
        "trace_id": None,
        "queueName": "hive",
    }


def test_a_duplicate_of_a_stored_message_is_told_that_one():
    found = rendered(ScheduleOutcome("duplicate", partition_id=7, message_offset=9))

    assert (found["status"], found["message_id"]) == ("duplicate", message_id(7, 9))


def test_an_item_that_failed_is_told_why():
    assert rendered(ScheduleOutcome("failed", refusal=Refused('"full"'))) == {
        "index": 3,
        "transaction_id": "x",
        "status": "failed",
        "error": '"full"',
        "queueName": "hive",
    }
