"""Parked polls: nobody is lost, no wake-up is lost, and idle scopes cost next to nothing."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skep.broker.pop.parking import ParkedPolls, SweepPolicy


def park_all(parking, polls, *, scope="group", topic="queue", deadline=30.0, now=0.0):
    return [parking.park(scope, topic, poll, deadline=deadline, now=now) for poll in polls]


def polls_of(attempts):
    return {scope: "".join(ticket.poll for ticket in tickets) for scope, tickets in attempts}


def attempt(parking, now=0.0):
    """Take the attempt of the only scope that is due, and return its tickets."""
    ((_, tickets),) = parking.take_attempts(now)
    return tickets


# Attempts


def test_a_parked_poll_tries_only_when_there_is_reason_to():
    parking = ParkedPolls()
    park_all(parking, "a")

    assert parking.take_attempts(5.0) == []


def test_a_push_lets_the_oldest_polls_try_as_many_as_partitions_were_touched():
    parking = ParkedPolls()
    park_all(parking, "abc")

    parking.wake("queue", 2, 1.0)

    assert parking.next_due(1.0) == 1.0
    assert polls_of(parking.take_attempts(1.0)) == {"group": "ab"}


def test_a_hint_of_nothing_still_lets_one_poll_try():
    parking = ParkedPolls()
    park_all(parking, "ab")

    parking.wake("queue", 0, 1.0)

    assert polls_of(parking.take_attempts(1.0)) == {"group": "a"}


def test_hints_of_several_pushes_add_up():
    parking = ParkedPolls()
    park_all(parking, "abcd")

    parking.wake("queue", 1, 1.0)
    parking.wake("queue", 2, 1.0)

    assert polls_of(parking.take_attempts(1.0)) == {"group": "abc"}


def test_a_push_wakes_every_scope_of_its_topic_and_no_other():
    parking = ParkedPolls()
    park_all(parking, "a", scope="first")
    park_all(parking, "b", scope="second")
    park_all(parking, "c", scope="other", topic="elsewhere")

    parking.wake("queue", 1, 1.0)

    assert polls_of(parking.take_attempts(1.0)) == {"first": "a", "second": "b"}


def test_a_released_lease_wakes_its_scope_alone():
    parking = ParkedPolls()
    park_all(parking, "a", scope="first")
    park_all(parking, "b", scope="second")

    parking.wake_scope("second", 1, 1.0)

    assert polls_of(parking.take_attempts(1.0)) == {"second": "b"}


def test_an_attempt_is_handed_out_once():
    parking = ParkedPolls()
    park_all(parking, "ab")
    parking.wake("queue", 1, 1.0)
    parking.take_attempts(1.0)

    assert parking.take_attempts(2.0) == []


def test_unserved_polls_wait_again_before_all_others():
    parking = ParkedPolls()
    park_all(parking, "abc")
    parking.wake("queue", 2, 1.0)
    out = attempt(parking, 1.0)
    park_all(parking, "d")

    parking.returned("group", out, served=0, now=1.1)
    assert parking.take_attempts(1.1) == []
    parking.wake("queue", 9, 1.2)

    assert polls_of(parking.take_attempts(1.2)) == {"group": "abcd"}


def test_while_all_are_served_twice_as_many_try_next():
    parking = ParkedPolls()
    park_all(parking, "abcdefgh")
    parking.wake("queue", 1, 1.0)

    sizes = []
    for _ in range(3):
        out = attempt(parking, 1.0)
        sizes.append(len(out))
        parking.returned("group", [], served=len(out), now=1.0)

    assert sizes == [1, 2, 4]


def test_one_unserved_poll_ends_the_attempts():
    parking = ParkedPolls()
    park_all(parking, "abcd")
    parking.wake("queue", 2, 1.0)
    out = attempt(parking, 1.0)

    parking.returned("group", out[1:], served=1, now=1.0)

    assert parking.take_attempts(1.0) == []


def test_polls_that_failed_do_not_call_for_more():
    parking = ParkedPolls()
    park_all(parking, "ab")
    parking.wake("queue", 1, 1.0)
    attempt(parking, 1.0)

    parking.returned("group", [], served=0, now=1.0)

    assert parking.take_attempts(1.0) == []
    assert len(parking) == 1


def test_a_wake_up_while_polls_are_out_leads_to_another_attempt():
    parking = ParkedPolls()
    park_all(parking, "abc")
    parking.wake("queue", 1, 1.0)
    out = attempt(parking, 1.0)

    parking.wake("queue", 2, 1.1)
    assert parking.take_attempts(1.1) == []
    parking.returned("group", out, served=0, now=1.2)

    assert polls_of(parking.take_attempts(1.2)) == {"group": "ab"}


def test_a_wake_up_while_polls_are_out_counts_more_than_doubling():
    parking = ParkedPolls()
    park_all(parking, "abcdef")
    parking.wake("queue", 1, 1.0)
    attempt(parking, 1.0)

    parking.wake("queue", 4, 1.1)
    parking.returned("group", [], served=1, now=1.2)

    assert polls_of(parking.take_attempts(1.2)) == {"group": "bcde"}


def test_a_wake_up_between_a_polls_own_attempt_and_its_parking_is_not_lost():
    parking = ParkedPolls()
    parking.wake("queue", 1, 1.0)

    parking.park("group", "queue", "a", deadline=30.0, now=1.1, tried_at=0.9)

    assert polls_of(parking.take_attempts(1.1)) == {"group": "a"}


def test_a_release_between_a_polls_own_attempt_and_its_parking_is_not_lost():
    parking = ParkedPolls()
    parking.wake_scope("group", 1, 1.0)

    parking.park("group", "queue", "a", deadline=30.0, now=1.1, tried_at=0.9)

    assert polls_of(parking.take_attempts(1.1)) == {"group": "a"}


def test_a_wake_up_before_a_polls_own_attempt_is_no_reason_to_try_again():
    parking = ParkedPolls()
    parking.wake("queue", 1, 1.0)

    parking.park("group", "queue", "a", deadline=30.0, now=1.3, tried_at=1.2)

    assert parking.take_attempts(1.3) == []


def test_a_scope_belongs_to_one_topic():
    parking = ParkedPolls()
    park_all(parking, "a", topic="queue")

    with pytest.raises(AssertionError):
        park_all(parking, "b", topic="elsewhere")


# Alarms


def test_an_alarm_lets_one_poll_try_when_its_time_comes():
    parking = ParkedPolls(SweepPolicy(interval_s_min=9.0, interval_s_max=9.0))
    park_all(parking, "ab")

    parking.set_alarm("group", 3.0)

    assert parking.next_due(1.0) == 3.0
    assert parking.take_attempts(2.9) == []
    assert polls_of(parking.take_attempts(3.0)) == {"group": "a"}


def test_an_alarm_does_not_lessen_a_wake_up():
    parking = ParkedPolls()
    park_all(parking, "ab")
    parking.wake("queue", 2, 1.0)

    parking.set_alarm("group", 1.0)

    assert polls_of(parking.take_attempts(1.0)) == {"group": "ab"}


def test_the_latest_word_about_an_alarm_counts():
    parking = ParkedPolls()
    park_all(parking, "a")

    parking.set_alarm("group", 3.0)
    parking.set_alarm("group", 4.0)
    assert parking.take_attempts(3.0) == []
    parking.set_alarm("group", None)

    assert parking.take_attempts(4.0) == []


def test_an_alarm_that_goes_off_while_polls_are_out_is_not_lost():
    parking = ParkedPolls()
    park_all(parking, "a")
    parking.wake("queue", 1, 1.0)
    out = attempt(parking, 1.0)
    parking.set_alarm("group", 2.0)
    assert parking.take_attempts(2.0) == []

    parking.returned("group", out, served=0, now=2.5)

    assert polls_of(parking.take_attempts(2.5)) == {"group": "a"}


def test_an_alarm_outlives_an_attempt_made_for_another_reason():
    parking = ParkedPolls()
    park_all(parking, "a")
    parking.set_alarm("group", 5.0)
    parking.wake("queue", 1, 1.0)

    parking.returned("group", attempt(parking, 1.0), served=0, now=1.1)

    assert polls_of(parking.take_attempts(5.0)) == {"group": "a"}


def test_an_alarm_goes_off_once():
    parking = ParkedPolls()
    park_all(parking, "a")
    parking.set_alarm("group", 1.0)

    parking.returned("group", attempt(parking, 1.0), served=0, now=1.0)

    assert parking.take_attempts(9.0) == []


def test_an_alarm_for_nobody_is_ignored():
    parking = ParkedPolls()

    parking.set_alarm("group", 1.0)

    assert parking.next_due(0.0) is None


# Sweeps


def sweep_times(parking, until, now=0.0):
    """Follow `next_due` and return when sweeps were taken; nothing else may be due."""
    times = []
    while (now := parking.next_due(now)) is not None and now <= until:
        assert parking.take_attempts(now) == []
        assert parking.take_sweep(now)
        times.append(now)
    return times


def gaps(times):
    return [round(later - earlier, 6) for earlier, later in pairwise(times)]


def test_a_scope_is_asked_about_three_times_in_quick_succession_and_then_less_and_less():
    parking = ParkedPolls(SweepPolicy(interval_s_max=1.6))
    park_all(parking, "a")

    assert gaps([0.0, *sweep_times(parking, until=3.0)])[:6] == [0.1, 0.1, 0.1, 0.2, 0.4, 0.8]


def test_the_longest_interval_is_kept_for_ever():
    parking = ParkedPolls()
    park_all(parking, "a", deadline=10_000.0)

    times = sweep_times(parking, until=5_000.0)

    assert max(gaps(times)) <= 1.0
    assert len(times) < 5_000 / 0.75


@pytest.mark.parametrize("wake", ["wake", "wake_scope"])
def test_a_wake_up_starts_the_intervals_again(wake):
    parking = ParkedPolls()
    park_all(parking, "a", deadline=99.0)
    sweep_times(parking, until=20.0)

    getattr(parking, wake)({"wake": "queue", "wake_scope": "group"}[wake], 1, 20.5)
    parking.returned("group", attempt(parking, 20.5), served=0, now=20.5)

    assert gaps([20.5, *sweep_times(parking, until=21.5, now=20.5)])[:4] == [0.1, 0.1, 0.1, 0.2]


def test_an_alarm_that_is_only_set_leaves_the_intervals_as_they_are():
    parking = ParkedPolls()
    park_all(parking, "a", deadline=99.0)
    sweep_times(parking, until=20.0)
    expected = parking.next_due(20.0)

    parking.set_alarm("group", 50.0)

    assert parking.next_due(20.0) == expected


def test_after_an_alarm_in_vain_the_database_is_asked_soon():
    parking = ParkedPolls()
    park_all(parking, "a", deadline=99.0)
    sweep_times(parking, until=20.0)

    parking.set_alarm("group", 20.5)
    parking.returned("group", attempt(parking, 20.5), served=0, now=20.5)

    assert gaps([20.5, *sweep_times(parking, until=21.5, now=20.5)])[:3] == [0.1, 0.2, 0.4]


def test_a_poll_served_by_an_alarm_starts_the_intervals_again():
    parking = ParkedPolls()
    park_all(parking, "abcd", deadline=99.0)
    sweep_times(parking, until=20.0)

    parking.set_alarm("group", 20.5)
    attempt(parking, 20.5)
    parking.returned("group", [], served=1, now=20.5)
    parking.returned("group", attempt(parking, 20.5), served=0, now=20.5)

    assert parking.next_due(20.5) == pytest.approx(20.6)


def test_a_sweep_takes_along_what_is_due_soon():
    parking = ParkedPolls(SweepPolicy(slack_s=0.2))
    park_all(parking, "a", scope="first", now=0.0)
    park_all(parking, "b", scope="soon", now=0.05)

    assert parking.take_sweep(0.09) == []
    assert parking.take_sweep(0.1) == ["first", "soon"]


def test_a_scope_that_is_due_or_out_is_not_asked_about():
    parking = ParkedPolls()
    park_all(parking, "ab")
    parking.wake("queue", 1, 0.05)
    assert parking.take_sweep(1.0) == []

    out = attempt(parking, 1.0)
    assert parking.take_sweep(2.0) == []
    parking.returned("group", out, served=0, now=2.0)

    assert parking.take_sweep(2.1) == ["group"]


def test_a_thousand_idle_scopes_share_about_one_sweep_a_second():
    parking = ParkedPolls()
    random = Random(7)
    parked_at = sorted(random.uniform(0, 3) for _ in range(1_000))
    for scope, now in enumerate(parked_at):
        park_all(parking, "a", scope=scope, now=now, deadline=999.0)
    sweep_times(parking, until=10.0)

    asked_at = {scope: [] for scope in range(1_000)}
    sweep_count, now = 0, 10.0
    while (now := parking.next_due(now)) <= 30.0:
        sweep_count += 1
        for scope in parking.take_sweep(now):
            asked_at[scope].append(now)

    assert sweep_count <= 26
    assert all(max(gaps([10.0, *times, 30.0])) <= 1.0 for times in asked_at.values())


def test_scopes_that_come_all_the_time_do_not_make_more_sweeps():
    parking = ParkedPolls()
    sweeps = []
    for step in range(1_000):
        now = step / 100
        park_all(parking, "a", scope=step, now=now, deadline=999.0)
        if parking.take_sweep(now):
            sweeps.append(now)

    assert min(gaps(sweeps)) >= 0.1


@given(
    policy=st.builds(
        SweepPolicy, interval_s_max=st.floats(0.1, 10), slack_s=st.floats(0.001, 0.05)
    ),
    checks=st.integers(0, 10_000),
    now=st.floats(0, 1e7),
)
def test_the_next_check_is_ahead_but_never_further_than_the_longest_interval(policy, checks, now):
    wait_s = policy.next_check_at(checks, now) - now

    assert 0 < wait_s <= policy.interval_s_max + 1e-6


@pytest.mark.parametrize(
    "changes",
    [
        {"interval_s_min": 0.0},
        {"interval_s_min": 2.0, "interval_s_max": 1.0},
        {"slack_s": 0.0},
        {"slack_s": 0.6, "interval_s_max": 1.0},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(changes):
    with pytest.raises(ValueError, match=r"interval|slack"):
        SweepPolicy(**changes)


# Ending


def test_a_poll_expires_at_its_deadline():
    parking = ParkedPolls()
    park_all(parking, "a", deadline=0.05)
    park_all(parking, "b", deadline=0.07)

    assert parking.next_due(0.0) == 0.05
    assert parking.take_expired(0.04) == []
    assert parking.take_expired(0.05) == ["a"]
    assert len(parking) == 1


def test_a_poll_that_is_out_expires_only_after_it_returned():
    parking = ParkedPolls()
    park_all(parking, "a", deadline=2.0)
    parking.wake("queue", 1, 1.0)
    out = attempt(parking, 1.0)
    assert parking.take_expired(3.0) == []

    parking.returned("group", out, served=0, now=3.0)

    assert parking.next_due(3.0) == 3.0
    assert parking.take_expired(3.0) == ["a"]


def test_a_poll_that_left_is_neither_tried_nor_expired():
    parking = ParkedPolls()
    first, _ = park_all(parking, "ab", deadline=2.0)

    assert parking.leave(first) is True
    assert parking.leave(first) is False
    parking.wake("queue", 9, 1.0)

    assert polls_of(parking.take_attempts(1.0)) == {"group": "b"}
    assert parking.take_expired(2.0) == []


def test_a_poll_that_left_while_it_was_out_is_not_taken_back():
    parking = ParkedPolls()
    park_all(parking, "ab")
    parking.wake("queue", 2, 1.0)
    first, second = attempt(parking, 1.0)

    assert parking.leave(first) is False
    parking.returned("group", [first, second], served=0, now=1.0)
    parking.wake("queue", 2, 2.0)

    assert polls_of(parking.take_attempts(2.0)) == {"group": "b"}


def test_what_a_poll_was_sent_for_is_not_lost_when_its_client_goes():
    parking = ParkedPolls()
    park_all(parking, "ab")
    parking.wake("queue", 1, 1.0)
    (first,) = attempt(parking, 1.0)

    parking.leave(first)
    parking.returned("group", [], served=0, now=1.0)

    assert polls_of(parking.take_attempts(1.0)) == {"group": "b"}


def test_a_poll_that_found_nothing_has_said_so_even_if_its_client_is_gone():
    parking = ParkedPolls()
    park_all(parking, "ab")
    parking.wake("queue", 1, 1.0)
    (first,) = attempt(parking, 1.0)

    parking.leave(first)
    parking.returned("group", [first], served=0, now=1.0)

    assert parking.take_attempts(1.0) == []


def test_a_ticket_of_the_past_cannot_disturb_a_new_poll():
    parking = ParkedPolls()
    (old,) = park_all(parking, "a")
    parking.leave(old)
    park_all(parking, "b")

    assert parking.leave(old) is False
    assert len(parking) == 1


def test_an_attempt_ends_once():
    parking = ParkedPolls()
    park_all(parking, "ab")
    parking.wake("queue", 1, 1.0)
    out = attempt(parking, 1.0)
    parking.returned("group", out, served=0, now=1.0)

    with pytest.raises(AssertionError):
        parking.returned("group", out, served=0, now=1.0)


# Without an attempt


def test_a_poll_joins_those_that_wait_in_vain():
    parking = ParkedPolls()
    assert not parking.may_join("group")
    park_all(parking, "a")

    assert parking.may_join("group")


def test_a_poll_does_not_join_when_there_is_reason_to_try():
    parking = ParkedPolls()
    park_all(parking, "a")
    parking.wake("queue", 1, 1.0)

    assert not parking.may_join("group")
    out = attempt(parking, 1.0)
    assert parking.may_join("group")
    parking.returned("group", out, served=0, now=1.0)
    assert parking.may_join("group")


def test_as_many_polls_try_as_partitions_were_announced_beyond_those_that_waited():
    parking = ParkedPolls()
    park_all(parking, "a")
    parking.wake("queue", 3, 1.0)
    attempt(parking, 1.0)

    assert [parking.may_join("group") for _ in range(4)] == [False, False, True, True]


def take_for(parking, topic, count, *, scopes=("group",), may_get=str.islower):
    return parking.take_for(topic, count, fits=lambda scope: scope in scopes, may_get=may_get)


def test_polls_are_handed_out_for_what_is_pushed_oldest_first():
    parking = ParkedPolls()
    park_all(parking, "abc")

    assert take_for(parking, "queue", 2) == ["a", "b"]
    assert len(parking) == 1
    assert take_for(parking, "queue", 2, scopes=()) == []
    assert take_for(parking, "other", 2) == []


def test_polls_that_may_not_get_what_is_pushed_stay():
    parking = ParkedPolls()
    park_all(parking, "Abc")

    assert take_for(parking, "queue", 2) == ["b"]
    assert take_for(parking, "queue", 1) == []
    assert len(parking) == 2


def test_polls_that_have_a_reason_to_try_are_not_handed_out():
    parking = ParkedPolls()
    park_all(parking, "a")
    parking.wake("queue", 1, 1.0)

    assert take_for(parking, "queue", 1) == []


def memory_of(parking):
    """Count everything that is kept about polls, scopes and topics, wake-ups excepted."""
    timetables = (parking._checks, parking._alarms, parking._deadlines)
    heaps = sum(len(timetable._heap) + len(timetable) for timetable in timetables)
    return heaps + len(parking._scopes) + len(parking._by_topic) + len(parking._due)


def test_polls_that_come_and_go_leave_nothing_behind():
    parking = ParkedPolls()
    (steady,) = park_all(parking, "a", scope="steady")
    for scope in range(1_000):
        (ticket,) = park_all(parking, "b", scope=scope, topic=scope)
        parking.set_alarm("steady", 5.0 + scope % 2)
        parking.leave(ticket)
    parking.leave(steady)

    assert memory_of(parking) < 250


def test_only_recent_wake_ups_are_remembered():
    parking = ParkedPolls(wake_memory_s=10.0)
    for second in range(1_000):
        parking.wake(second, 1, float(second))
        parking.wake_scope(second, 1, float(second))

    assert len(parking._topic_wakes._at) == 11
    assert len(parking._scope_wakes._at) == 11


# Everything at once

SCOPES = {"a": "x", "b": "x", "c": "y"}
HINTS = st.integers(0, 3)


class ParkingMachine(RuleBasedStateMachine):
    """Drives the parking as a broker would and keeps its own lists."""

    @initialize()
    def build(self):
        self.parking = ParkedPolls(SweepPolicy())
        self.now = 1_000.0
        self.parked = {scope: [] for scope in SCOPES}
        self.out = {}
        self.sent = {}
        self.wanted = dict.fromkeys(SCOPES, 0)
        self.alarms = {}
        self.tickets = []
        self.ended = []

    @rule(scope=st.sampled_from(sorted(SCOPES)), patience_s=st.sampled_from([0.0, 0.15, 1.0, 7.0]))
    def park(self, scope, patience_s):
        ticket = self.parking.park(
            scope,
            SCOPES[scope],
            len(self.tickets),
            deadline=self.now + patience_s,
            now=self.now,
        )
        self.tickets.append(ticket)
        self.parked[scope].append(ticket)

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def leave(self, data):
        ticket = data.draw(st.sampled_from(self.tickets))
        was_parked = ticket in self.parked[ticket.scope]
        assert self.parking.leave(ticket) is was_parked
        if was_parked:
            self.parked[ticket.scope].remove(ticket)
            self.ended.append(ticket.poll)
            self.forget_if_empty(ticket.scope)
        elif ticket in self.out.get(ticket.scope, []):
            self.out[ticket.scope].remove(ticket)
            self.ended.append(ticket.poll)

    @rule(topic=st.sampled_from("xyz"), count=st.integers(1, 3))
    def hand_over(self, topic, count):
        scopes = SCOPES.keys() - {"b"}
        polls = take_for(self.parking, topic, count, scopes=scopes, may_get=lambda _: True)
        fitting = [
            scope
            for scope, topic_of_scope in SCOPES.items()
            if topic_of_scope == topic and scope != "b"
            if self.parked[scope] and not self.wanted[scope]
        ]
        assert bool(polls) == bool(fitting)
        for scope in fitting:  # there is no topic with two
            taken, self.parked[scope] = self.parked[scope][:count], self.parked[scope][count:]
            assert polls == [ticket.poll for ticket in taken]
            self.ended += polls
            self.forget_if_empty(scope)

    @rule(scope=st.sampled_from(sorted(SCOPES)))
    def ask_to_join(self, scope):
        if self.parking.may_join(scope):
            assert self.is_known(scope)
            assert not self.wanted[scope]

    @rule(topic=st.sampled_from("xyz"), hint=HINTS)
    def push(self, topic, hint):
        self.parking.wake(topic, hint, self.now)
        for scope, topic_of_scope in SCOPES.items():
            if topic_of_scope == topic:
                self.want(scope, max(hint, 1))

    @rule(scope=st.sampled_from(sorted(SCOPES)), hint=HINTS)
    def release(self, scope, hint):
        self.parking.wake_scope(scope, hint, self.now)
        self.want(scope, max(hint, 1))

    @rule(
        scope=st.sampled_from(sorted(SCOPES)),
        in_s=st.none() | st.sampled_from([-0.5, 0.0, 0.05, 2.0]),
    )
    def set_alarm(self, scope, in_s):
        at = None if in_s is None else self.now + in_s
        self.parking.set_alarm(scope, at)
        if at is None:
            self.alarms.pop(scope, None)
        elif self.is_known(scope):
            self.alarms[scope] = at

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def return_attempt(self, data):
        scope = data.draw(st.sampled_from(sorted(self.out)))
        self.end_attempt(scope, data.draw(st.integers(0, len(self.out[scope]))))

    def end_attempt(self, scope, served_count):
        out = self.out.pop(scope)
        served, unserved = out[:served_count], out[served_count:]
        self.parking.returned(scope, unserved, served=served_count, now=self.now)
        self.ended.extend(ticket.poll for ticket in served)
        self.parked[scope][:0] = unserved
        if not unserved:
            self.wanted[scope] = max(self.wanted[scope], 2 * self.sent[scope])
        self.forget_if_empty(scope)

    @rule(order=st.permutations(["expire", "attempt", "sweep"]))
    def work(self, order):
        """Something is due exactly when `next_due` says so."""
        due_at = self.parking.next_due(self.now)
        found = [getattr(self, step)() for step in order]
        assert any(found) == (due_at == self.now)
        assert self.owed() == set()

    def expire(self):
        expired = self.parking.take_expired(self.now)
        due = {
            ticket.poll
            for tickets in self.parked.values()
            for ticket in tickets
            if ticket.deadline <= self.now
        }
        assert set(expired) == due
        self.ended.extend(expired)
        for scope, tickets in self.parked.items():
            tickets[:] = [ticket for ticket in tickets if ticket.poll not in due]
            self.forget_if_empty(scope)
        return bool(expired)

    def attempt(self):
        attempts = dict(self.parking.take_attempts(self.now))
        assert set(attempts) == self.owed()
        for scope, tickets in attempts.items():
            # Without a wake-up it was an alarm, and an alarm is for one poll.
            assert len(tickets) == min(max(self.wanted[scope], 1), len(self.parked[scope]))
            assert tickets == self.parked[scope][: len(tickets)]
            del self.parked[scope][: len(tickets)]
            self.wanted[scope] = 0
            if self.alarms.get(scope, self.now) <= self.now:
                self.alarms.pop(scope, None)
            self.out[scope] = list(tickets)
            self.sent[scope] = len(tickets)
        return bool(attempts)

    def sweep(self):
        scopes = self.parking.take_sweep(self.now)
        assert len(set(scopes)) == len(scopes)
        for scope in scopes:
            assert self.parked[scope]
            assert scope not in self.out
            assert not self.wanted[scope]
        return bool(scopes)

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.7]))
    def let_time_pass(self, seconds):
        self.now += seconds

    @rule()
    def sleep_until_due(self):
        due_at = self.parking.next_due(self.now)
        if due_at is not None:
            self.now = due_at
        self.work(["expire", "attempt", "sweep"])

    @invariant()
    def no_poll_is_lost(self):
        assert len(self.parking) == sum(map(len, self.parked.values()))
        held = [t.poll for tickets in self.parked.values() for t in tickets]
        held += [t.poll for tickets in self.out.values() for t in tickets]
        assert sorted(held + self.ended) == list(range(len(self.tickets)))

    @invariant()
    def a_scope_with_polls_parked_is_never_left_alone_for_long(self):
        due_at = self.parking.next_due(self.now)
        if any(tickets and scope not in self.out for scope, tickets in self.parked.items()):
            assert self.now <= due_at <= self.now + 1.0

    def teardown(self):
        """Let everybody return and wait: all polls end, and nothing stays."""
        if not hasattr(self, "parking"):
            return
        while self.out or len(self.parking):
            for scope in sorted(self.out):
                self.end_attempt(scope, served_count=0)
            self.sleep_until_due()
        self.no_poll_is_lost()
        assert len(self.ended) == len(self.tickets)
        assert memory_of(self.parking) <= 3 * 64

    def is_known(self, scope):
        return bool(self.parked[scope]) or scope in self.out

    def owed(self):
        """The scopes that must be tried now."""
        return {
            scope
            for scope in SCOPES
            if self.parked[scope] and scope not in self.out
            if self.wanted[scope] or self.alarms.get(scope, self.now + 1) <= self.now
        }

    def want(self, scope, hint):
        if self.is_known(scope):
            self.wanted[scope] += hint

    def forget_if_empty(self, scope):
        if not self.is_known(scope):
            self.wanted[scope] = 0
            self.alarms.pop(scope, None)


TestParkingMachine = ParkingMachine.TestCase
TestParkingMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
