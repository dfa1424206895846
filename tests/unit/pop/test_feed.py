"""Feeds: what is claimed for a client, when, and what becomes of it when the client goes."""

import asyncio
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.directory import Group, Subscription
from skep.broker.pop.accept import PollOptions
from skep.broker.pop.feed import CREDIT_MAX, PAUSE_S, WAIT_S, Feed, Live
from skep.model.errors import BadRequest, Defect, Overloaded, Unavailable
from skep.model.ids import partition_uuid
from tests.support.virtual_time import VirtualTimeLoop, run_virtually

GROUP = Group("hive", "bees", 1, 2)


def options(batch=10, *, auto_ack=False):
    return PollOptions(
        queue="hive",
        group="bees",
        partition=None,
        batch=batch,
        partitions=1,
        auto_ack=auto_ack,
        lease_s=0,
        subscription=Subscription(),
    )


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


class Hall:
    """Serves polls as the test says, and remembers what is given back."""

    def __init__(self):
        self.polls = []
        self.aborted = []
        self.given_back = []
        self.is_full = False

    def pop_messages(self, poll):
        if self.is_full:
            raise Overloaded
        poll.group = GROUP
        self.polls.append(poll)

    def abort(self, poll):
        self.aborted.append(poll)

    def give_back(self, group, lease_id, partition_ids, *, is_fenced=True):
        del is_fenced
        self.given_back.append((group, lease_id, partition_ids))

    def serve(self, *partitions):
        """Answer the newest poll with one message of each of these partitions."""
        messages = [{"partitionId": partition_uuid(each)} for each in partitions]
        return self.polls[-1].deliver(json.dumps({"messages": messages}).encode())


class Client:
    """Takes batches, and hands them over when the test says so."""

    def __init__(self):
        self.batches = []
        self.errors = []

    def take(self, batch):
        self.batches.append(batch)

    def hear(self, error, *, is_over):
        self.errors.append((error, is_over))


class Stage:
    def __init__(self, batch=10, *, auto_ack=False):
        self.hall, self.client = Hall(), Client()
        self.feed = Feed(
            self.hall,
            options(batch, auto_ack=auto_ack),
            self.client,
            loop=asyncio.get_running_loop(),
        )

    def hand_over(self):
        self.feed.handed_over(self.client.batches[-1])


async def test_without_credit_there_is_no_poll():
    assert Stage().hall.polls == []


async def test_a_poll_asks_for_no_more_than_the_credit():
    stage = Stage(batch=10)

    stage.feed.grant(3)

    assert [poll.options.batch for poll in stage.hall.polls] == [3]


async def test_the_next_poll_waits_until_the_batch_was_handed_over():
    stage = Stage()
    stage.feed.grant(10)
    stage.hall.serve(5, 5)
    stage.feed.grant(1)

    assert len(stage.hall.polls) == 1
    stage.hand_over()
    assert [poll.options.batch for poll in stage.hall.polls] == [10, 9]


async def test_an_answer_without_messages_is_no_batch():
    """Groups that conflate are answered by a body even when there is nothing."""
    stage = Stage()
    stage.feed.grant(10)
    await asyncio.sleep(WAIT_S)

    stage.hall.serve()

    assert stage.client.batches == []
    assert len(stage.hall.polls) == 2


async def test_a_conflating_feed_hears_that_the_broker_stops():
    stage = Stage()
    stage.feed.grant(10)

    stage.hall.serve()

    assert [is_over for _, is_over in stage.client.errors] == [True]
    assert len(stage.hall.polls) == 1


async def test_credit_has_an_upper_bound():
    stage = Stage()

    stage.feed.grant(CREDIT_MAX)
    stage.feed.grant(CREDIT_MAX)

    assert stage.feed.credit == CREDIT_MAX


@given(st.lists(st.tuples(st.sampled_from(["grant", "serve", "hand over"]), st.integers(1, 8))))
def test_never_more_messages_than_were_granted(steps):
    async def play():
        stage = Stage(batch=5)
        granted = delivered = 0
        for step, count in steps:
            polls = [poll for poll in stage.hall.polls if not poll.is_settled]
            if step == "grant":
                granted += count
                stage.feed.grant(count)
            elif step == "serve" and polls:
                served = min(count, polls[0].options.batch)
                delivered += served
                stage.hall.serve(*[5] * served)
            elif step == "hand over" and stage.client.batches:
                stage.feed.handed_over(stage.client.batches.pop())
            assert delivered + stage.feed.credit == granted
            assert len([poll for poll in stage.hall.polls if not poll.is_settled]) <= 1

    run_virtually(play())


async def test_a_poll_that_waited_in_vain_is_followed_by_the_next():
    stage = Stage()
    stage.feed.grant(1)
    await asyncio.sleep(WAIT_S)

    stage.hall.polls[0].deliver(None)

    assert len(stage.hall.polls) == 2
    assert stage.client.errors == []


async def test_a_poll_that_is_sent_away_early_ends_the_feed():
    stage = Stage()
    stage.feed.grant(1)

    stage.hall.polls[0].deliver(None)
    stage.feed.grant(1)

    [(error, is_over)] = stage.client.errors
    assert isinstance(error, Unavailable)
    assert is_over
    assert len(stage.hall.polls) == 1


async def test_trouble_that_passes_is_told_and_tried_again_after_a_pause():
    stage = Stage()
    stage.hall.is_full = True
    stage.feed.grant(1)
    stage.hall.is_full = False
    stage.feed.grant(1)

    assert stage.hall.polls == []
    assert [is_over for _, is_over in stage.client.errors] == [False]
    await asyncio.sleep(PAUSE_S)
    assert [poll.options.batch for poll in stage.hall.polls] == [2]


async def test_a_refusal_ends_the_feed():
    stage = Stage()
    stage.feed.grant(1)

    stage.hall.polls[0].fail(BadRequest("no"))
    stage.feed.grant(1)

    assert [(error.message, is_over) for error, is_over in stage.client.errors] == [("no", True)]
    assert len(stage.hall.polls) == 1


async def test_a_defect_ends_the_feed():
    stage = Stage()
    stage.hall.pop_messages = lambda poll: [].pop()

    stage.feed.grant(1)

    [(error, is_over)] = stage.client.errors
    assert isinstance(error, Defect)
    assert is_over


async def test_closing_stops_the_poll_that_waits():
    stage = Stage()
    stage.feed.grant(1)

    assert stage.feed.close() == (None, {})

    assert stage.hall.aborted == stage.hall.polls
    assert not stage.hall.serve(5)
    assert stage.client.batches == []


async def test_closing_during_a_pause_leaves_no_timer_behind():
    stage = Stage()
    stage.hall.is_full = True
    stage.feed.grant(1)
    stage.feed.close()
    stage.hall.is_full = False

    await asyncio.sleep(2 * PAUSE_S)

    assert stage.hall.polls == []


async def test_a_feed_that_was_stopped_claims_nothing_and_hands_over_what_it_has():
    stage = Stage()
    stage.feed.grant(10)
    stage.hall.serve(5)

    stage.feed.stop()
    stage.feed.grant(10)
    stage.hand_over()

    (poll,) = stage.hall.polls
    assert stage.feed.close() == (GROUP, {5: poll.lease_id})
    assert stage.hall.given_back == []


@pytest.mark.parametrize("auto_ack", [False, True])
async def test_a_batch_that_was_not_handed_over_is_given_back(auto_ack):
    stage = Stage(auto_ack=auto_ack)
    stage.feed.grant(10)
    stage.hall.serve(5, 6)

    assert stage.feed.close() == (None, {})

    assert stage.hall.given_back == [(GROUP, stage.hall.polls[0].lease_id, {5, 6})]


async def test_the_leases_of_batches_handed_over_are_held_until_they_are_released():
    stage = Stage()
    stage.feed.grant(10)
    stage.hall.serve(5, 6)
    stage.hand_over()
    stage.hall.serve(7)
    stage.hand_over()
    first, second = (poll.lease_id for poll in stage.hall.polls[:2])

    stage.feed.forget_partition(5, first)
    stage.feed.forget_partition(6, second)  # not the lease under which it was delivered

    assert stage.feed.lease_of(6) == first
    assert stage.feed.close() == (GROUP, {6: first, 7: second})
    assert stage.hall.given_back == []


async def test_what_was_acknowledged_on_delivery_is_not_held():
    stage = Stage(auto_ack=True)
    stage.feed.grant(1)
    stage.hall.serve(5)
    stage.hand_over()

    assert stage.feed.close() == (None, {})
    assert stage.hall.given_back == []


class Database:
    def __init__(self, error=None):
        self.calls = []
        self.error = error

    async def call(self, statement, *arguments):
        if self.error is not None:
            raise self.error
        self.calls.append(arguments)
        return [(1,)]


class Bell:
    def __init__(self):
        self.rung = []

    def announce(self, queue_id, partition_count):
        self.rung.append((queue_id, partition_count))


def feed_with_a_lease(live, hall):
    client = Client()
    feed = live.open_feed(options(), client)
    feed.grant(1)
    hall.serve(5)
    feed.handed_over(client.batches[0])
    return feed


async def test_the_leases_of_a_client_that_leaves_end_and_others_are_woken():
    hall, database, bell = Hall(), Database(), Bell()
    live = Live(hall, database, bell, connections_max=1)
    feed = feed_with_a_lease(live, hall)

    live.close_feed(feed)
    await live.finish()

    assert database.calls == [([5], [2], [hall.polls[0].lease_id])]
    assert bell.rung == [(1, 1)]


async def test_leases_that_cannot_be_ended_are_mentioned_in_the_log(caplog):
    hall, bell = Hall(), Bell()
    live = Live(hall, Database(Unavailable("away")), bell, connections_max=1)

    with caplog.at_level(logging.WARNING):
        live.close_feed(feed_with_a_lease(live, hall))
        await live.finish()

    assert "run on until they expire: away" in caplog.text
    assert bell.rung == []


async def test_there_is_room_for_so_many_connections():
    live = Live(Hall(), Database(), Bell(), connections_max=1)
    live.enter()

    with pytest.raises(Overloaded, match="more than 1 live connections"):
        live.enter()

    live.leave()
    live.enter()
