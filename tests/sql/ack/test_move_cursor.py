"""Where a cursor comes to rest. Acks of an individual queue are asked, which can leave gaps."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.sql.support.log import NOON, Ack, Poll
from tests.support.sizes import sized

EXAMPLES = sized(30, large=60)
SECOND = timedelta(seconds=1)


async def leased_partition(log, names="abcde", **options):
    """Lease messages of a queue whose acks are individual."""
    partition, group = await log.partition()
    await log.set_options("hive", ack_mode="individual")
    await log.push(partition, *names)
    poll = Poll(**{"lease_s": 30, **options})
    await log.pop(group, poll)
    return partition, group, poll.lease_id


async def test_a_message_acked_out_of_order_completes_no_other(log):
    partition, group, lease = await leased_partition(log)

    [answer] = await log.ack(Ack(partition, 3, lease))

    assert (answer.outcome, answer.lease_released, answer.has_more) == ("acked", False, False)
    assert (await log.cursor(partition, group))["acked"] == 0
    assert await log.done(partition, group) == "{[3,4)}"


async def test_what_was_acked_out_of_order_is_not_delivered_again(log):
    partition, group, lease = await leased_partition(log)
    await log.ack(Ack(partition, 2, lease), Ack(partition, 4, lease))
    await log.advance(30)

    assert (await log.pop(group)).offsets == [1, 3, 5]


async def test_the_cursor_moves_over_acks_that_become_contiguous(log):
    partition, group, lease = await leased_partition(log)
    await log.ack(Ack(partition, 2, lease), Ack(partition, 4, lease))

    await log.ack(Ack(partition, 1, lease))

    assert (await log.cursor(partition, group))["acked"] == 2
    assert await log.done(partition, group) == "{[4,5)}"


async def test_the_lease_ends_when_everything_under_it_is_done_in_whatever_order(log):
    partition, group, lease = await leased_partition(log, "abc")

    released = [
        (await log.ack(Ack(partition, offset, lease)))[0].lease_released for offset in (3, 1, 2)
    ]

    assert released == [False, False, True]
    assert (await log.cursor(partition, group))["acked"] == 3
    assert await log.next_available(group) is None


async def test_a_repeated_ack_is_a_noop_where_acks_are_individual(log):
    partition, _, lease = await leased_partition(log)
    await log.ack(Ack(partition, 3, lease))

    assert await log.outcomes(Ack(partition, 3, lease)) == ["noop"]
    assert await log.outcomes(Ack(partition, 3, lease, "failed")) == ["already_done"]


async def test_a_nack_concerns_its_own_message_alone(log):
    await log.configure("hive", retry_delay_ms=1000)
    partition, group, lease = await leased_partition(log, "abc")

    outcomes = await log.outcomes(Ack(partition, 1, lease, "failed"), Ack(partition, 2, lease))

    assert outcomes == ["retried", "acked"]
    assert await log.outcomes(Ack(partition, 3, lease)) == ["acked"], "the lease goes on"
    assert await log.next_available(group) == 1
    await log.advance(1)
    assert (await log.pop(group)).offsets == [1]


async def test_nacked_messages_come_again_with_those_never_answered(log):
    partition, group, lease = await leased_partition(log, "abcd")
    await log.ack(Ack(partition, 2, lease, "failed"), Ack(partition, 3, lease))

    assert await log.next_available(group) == 30
    await log.advance(30)

    assert (await log.pop(group)).offsets == [1, 2, 4]


async def test_the_longest_pause_of_a_lease_counts_when_its_last_message_is_answered(log):
    partition, group, lease = await leased_partition(log, "abc")
    await log.set_options("hive", retry_delay_ms=10_000)
    await log.ack(Ack(partition, 1, lease, "failed"))
    await log.advance(4)
    await log.ack(Ack(partition, 2, lease, "retry"))

    [answer] = await log.ack(Ack(partition, 3, lease))

    assert (answer.lease_released, answer.has_more) == (True, True)
    assert (await log.cursor(partition, group))["available_at"] == NOON + 10 * SECOND


async def test_a_retry_under_an_individual_lease_comes_again_at_once(log):
    partition, group, lease = await leased_partition(log, "ab")

    await log.ack(Ack(partition, 1, lease, "retry"), Ack(partition, 2, lease))

    assert (await log.pop(group)).offsets == [1]
    assert (await log.cursor(partition, group))["failed_offset"] is None


async def test_a_nack_repeated_under_its_lease_is_counted_once(log):
    partition, group, lease = await leased_partition(log, "ab")
    nack = Ack(partition, 1, lease, "failed")

    assert [await log.outcomes(nack) for _ in range(2)] == [["retried"], ["retried"]]

    assert (await log.cursor(partition, group))["failed_count"] == [1]


async def test_a_message_nacked_and_then_completed_is_done(log):
    partition, group, lease = await leased_partition(log, "ab")
    await log.ack(Ack(partition, 2, lease, "failed"))

    assert await log.outcomes(Ack(partition, 2, lease)) == ["acked"]

    assert await log.done(partition, group) == "{[2,3)}"
    assert (await log.cursor(partition, group))["failed_offset"] is None


async def test_of_two_words_about_a_message_the_more_severe_counts(log):
    partition, group, lease = await leased_partition(log, "abc")

    outcomes = await log.outcomes(
        Ack(partition, 2, lease), Ack(partition, 2, lease, "failed"), Ack(partition, 3, lease)
    )

    assert outcomes == ["redelivered", "retried", "acked"]
    assert await log.done(partition, group) == "{[3,4)}"


@pytest.mark.parametrize("status", ["dlq", "failed"])
async def test_a_buried_message_is_done_and_no_other(log, status):
    partition, group, lease = await leased_partition(log, "abc")
    await log.set_options("hive", retry_limit=0)

    [answer] = await log.ack(Ack(partition, 2, lease, status, error="poison"))

    assert (answer.outcome, answer.lease_released) == ("dead_lettered", False)
    assert [letter["message_offset"] for letter in await log.dead_letters()] == [2]
    assert await log.done(partition, group) == "{[2,3)}"


async def test_an_unfenced_ack_of_an_unleased_message_is_remembered(log):
    partition, group = await log.partition()
    await log.set_options("hive", ack_mode="individual")
    await log.push(partition, *"abc")

    assert await log.outcomes(Ack(partition, 2)) == ["acked"]

    assert (await log.pop(group)).offsets == [1, 3]


async def test_a_new_lease_forgets_what_was_nacked_under_the_last(log):
    partition, group, lease = await leased_partition(log, "ab")
    await log.ack(Ack(partition, 1, lease, "failed"))
    await log.advance(30)
    poll = Poll(lease_s=30)
    await log.pop(group, poll)

    [answer] = await log.ack(Ack(partition, 2, poll.lease_id))

    assert not answer.lease_released, "message 1 is not answered under this lease"


async def test_a_partition_completed_one_by_one_stays_ready_while_a_push_is_in_flight(
    log, open_log
):
    partition, group, lease = await leased_partition(log, "ab")
    pusher = await open_log()

    async with pusher.connection.transaction():
        await pusher.push(partition, "c")
        await log.ack(Ack(partition, 2, lease), Ack(partition, 1, lease))
        assert await log.next_available(group) == 0

    assert (await log.pop(group)).offsets == [3]


@dataclass
class Partition:
    """A partition whose messages are answered one by one, as an oracle sees it."""

    head: int = 0
    done: set[int] = field(default_factory=set)
    buried: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    leased: list[int] = field(default_factory=list)
    answered: set[int] = field(default_factory=set)
    poll: Poll | None = None

    @property
    def undone(self):
        return [offset for offset in range(1, self.head + 1) if offset not in self.done]


class IndividualAcks(RuleBasedStateMachine):
    """One partition; whatever is answered in whatever order, only the undone come again."""

    RETRY_LIMIT = 1

    def __init__(self, log, arun):
        super().__init__()
        self.log, self.arun, self.model = log, arun, Partition()
        arun(self._set_up())

    async def _set_up(self):
        await self.log.clear()
        self.partition, self.group = await self.log.partition()
        await self.log.set_options(
            "hive", ack_mode="individual", retry_limit=self.RETRY_LIMIT, retry_delay_ms=1000
        )

    @rule(size=st.integers(1, 4))
    def push(self, size):
        names = [f"m{self.model.head + n}" for n in range(1, size + 1)]
        self.arun(self.log.push(self.partition, *names))
        self.model.head += size

    @rule(batch=st.integers(1, 5), auto_ack=st.booleans())
    def pop_after_all_leases_and_pauses(self, batch, auto_ack):
        self.arun(self.log.advance(600))
        poll = Poll(batch=batch, lease_s=300, auto_ack=auto_ack)
        taken = self.arun(self.log.pop(self.group, poll)).offsets
        assert taken == self.model.undone[:batch]
        self.model.answered = set()
        if auto_ack:
            self.model.done.update(taken)
            self.model.leased, self.model.poll = [], None
        else:
            self.model.leased, self.model.poll = taken, poll

    @rule(
        chosen=st.lists(
            st.tuples(
                st.integers(0, 4),
                st.sampled_from(["completed", "failed", "retry", "dlq", "expired"]),
            ),
            min_size=1,
            max_size=5,
            unique_by=lambda pair: pair[0],
        )
    )
    def answer(self, chosen):
        model, poll = self.model, self.model.poll
        chosen = [(model.leased[n], status) for n, status in chosen if n < len(model.leased)]
        if poll is None or not chosen:
            return
        acks = [Ack(self.partition, at, poll.lease_id, status) for at, status in chosen]
        expected = [self._apply(at, status) for at, status in chosen]
        is_over = model.answered >= set(model.leased)

        answers = self.arun(self.log.ack(*acks))

        assert [answer.outcome for answer in answers] == expected
        has_answered = any(e in {"acked", "expired", "retried", "dead_lettered"} for e in expected)
        if has_answered:
            assert {answer.lease_released for answer in answers} == {is_over}
        if is_over:
            model.leased, model.poll = [], None

    def _apply(self, at, status):
        model = self.model
        if at in model.done:
            return "noop" if status in {"completed", "expired"} else "already_done"
        was_nacked = at in model.answered
        model.answered.add(at)
        if status == "retry" or (status == "failed" and was_nacked):
            return "retried"
        if status == "failed" and model.failures.get(at, 0) < self.RETRY_LIMIT:
            model.failures[at] = model.failures.get(at, 0) + 1
            return "retried"
        model.done.add(at)
        if status in {"failed", "dlq"}:
            model.buried.add(at)
            return "dead_lettered"
        return "acked" if status == "completed" else "expired"

    @invariant()
    def what_is_done_is_on_record(self):
        cursor = self.arun(self.log.cursor(self.partition, self.group))
        ahead = self.arun(
            self.log.value("select skep.offsets_in(done, 0, 1000) from skep.cursor limit 1")
        )
        ahead = set(ahead or ())
        assert {*range(1, cursor["acked"] + 1)} | ahead == self.model.done
        assert cursor["acked"] + 1 not in ahead
        letters = self.arun(self.log.dead_letters())
        assert {letter["message_offset"] for letter in letters} == self.model.buried


def test_only_what_is_not_done_comes_again_in_whatever_order_it_was_answered(log, arun):
    run_state_machine_as_test(
        lambda: IndividualAcks(log, arun),
        settings=settings(max_examples=EXAMPLES, stateful_step_count=25, deadline=None),
    )


async def test_a_lease_ends_not_before_what_failed_under_it_may_come_again(log):
    await log.configure("hive", retry_delay_ms=40_000)
    partition, group, lease = await leased_partition(log)

    await log.ack(Ack(partition, 2, lease, "failed"))

    assert await log.next_available(group) == 40
    await log.advance(35)
    assert (await log.pop(group)).offsets == []
    await log.advance(5)
    assert (await log.pop(group)).offsets == [1, 2, 3, 4, 5]


async def test_a_failure_told_after_the_lease_expired_is_followed_by_its_pause(log):
    await log.configure("hive", retry_delay_ms=20_000)
    partition, group, _ = await leased_partition(log)
    await log.advance(30)

    await log.ack(Ack(partition, 2, None, "failed"))

    assert (await log.cursor(partition, group))["leased"] is None
    assert await log.next_available(group) == 20


@pytest.mark.parametrize(
    ("ack_mode", "acked"), [("individual", 1), ("individual", 3), ("cumulative", 1)]
)
async def test_an_ack_without_a_lease_does_not_cut_a_pause_short(log, ack_mode, acked):
    await log.configure("hive", retry_delay_ms=20_000)
    partition, group, lease = await leased_partition(log, "abc", batch=2)
    await log.set_options("hive", ack_mode="cumulative")
    await log.ack(Ack(partition, 2, lease, "failed"))
    await log.set_options("hive", ack_mode=ack_mode)

    await log.ack(Ack(partition, acked))

    assert await log.next_available(group) == 20


async def test_nobody_waits_for_a_pause_after_the_message_was_completed(log):
    await log.configure("hive", retry_delay_ms=20_000)
    partition, group, lease = await leased_partition(log, "abc", batch=1)
    await log.ack(Ack(partition, 1, lease, "failed"))

    await log.ack(Ack(partition, 1))

    assert await log.next_available(group) == 0
