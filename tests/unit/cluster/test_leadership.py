import asyncio
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from skep.broker.cluster.leadership import ATTEMPTS_PER_LEASE, RESIGN_S, Leadership, Tenure
from skep.db.access.errors import NotExecuted
from tests.support.virtual_time import run_virtually

LEASE_S = 9.0


class Registry:
    """The leases as the database keeps them, by the clock of the loop."""

    def __init__(self):
        self.holder = None
        self.expires_at = 0.0
        self.is_down = False
        self.latency_s = 0.0

    async def call(self, statement, service, holder, seconds=None):
        assert service == "work"
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self.latency_s)
        if self.is_down:
            raise NotExecuted("the database is away")
        if "resign" in statement:
            is_held = self.holder == holder
            self.holder = None if is_held else self.holder
            return [(is_held,)]
        if self.holder not in (None, holder) and self.expires_at > now:
            return [(False,)]
        self.holder, self.expires_at = holder, now + seconds
        return [(True,)]


def leadership_of(registry):
    return Leadership(registry, "work", lease_s=LEASE_S)


async def seconds_until(condition):
    """Return after how many seconds of virtual time a condition holds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        await asyncio.sleep(0.1)
        assert loop.time() - began < 60, "it never happened"
    return loop.time() - began


def test_the_first_to_ask_leads_and_the_second_waits():
    async def scene():
        registry = Registry()
        first, second = leadership_of(registry), leadership_of(registry)
        first.start()
        await first.wait_until_leader()
        second.start()
        await asyncio.sleep(10 * LEASE_S)
        assert first.is_leader
        assert not second.is_leader
        await second.stop()
        await first.stop()

    run_virtually(scene())


def test_after_a_planned_stop_another_leads_within_a_third_of_a_lease():
    async def scene():
        registry = Registry()
        first, second = leadership_of(registry), leadership_of(registry)
        first.start()
        await first.wait_until_leader()
        second.start()
        await asyncio.sleep(1)
        await first.stop()
        assert not first.is_leader
        waited = await seconds_until(lambda: second.is_leader)
        assert waited <= LEASE_S / ATTEMPTS_PER_LEASE + 0.2
        await second.stop()

    run_virtually(scene())


def test_after_a_crash_another_leads_within_a_lease_and_a_third():
    async def scene():
        registry = Registry()
        registry.holder, registry.expires_at = uuid4(), LEASE_S
        second = leadership_of(registry)
        second.start()
        waited = await seconds_until(lambda: second.is_leader)
        assert waited <= LEASE_S * (1 + 1 / ATTEMPTS_PER_LEASE) + 0.2
        await second.stop()

    run_virtually(scene())


def test_one_lost_answer_does_not_end_a_leadership():
    async def scene():
        registry = Registry()
        leader = leadership_of(registry)
        leader.start()
        await leader.wait_until_leader()
        registry.is_down = True
        await asyncio.sleep(LEASE_S / ATTEMPTS_PER_LEASE + 1)
        registry.is_down = False
        await asyncio.sleep(LEASE_S / ATTEMPTS_PER_LEASE)
        assert leader.is_leader
        await leader.stop()

    run_virtually(scene())


def test_a_leader_that_gets_no_answer_stops_believing_before_the_record_ends():
    async def scene():
        registry = Registry()
        registry.latency_s = 1.0
        leader = leadership_of(registry)
        leader.start()
        await leader.wait_until_leader()
        registry.is_down = True
        await seconds_until(lambda: not leader.is_leader)
        assert asyncio.get_running_loop().time() <= registry.expires_at + 0.1
        registry.is_down = False
        await leader.wait_until_leader()
        await leader.stop()

    run_virtually(scene())


def test_a_leader_who_is_told_no_knows_it_at_once():
    async def scene():
        registry = Registry()
        leader = leadership_of(registry)
        leader.start()
        await leader.wait_until_leader()
        registry.holder, registry.expires_at = uuid4(), 1e9
        await seconds_until(lambda: not leader.is_leader)
        assert asyncio.get_running_loop().time() <= LEASE_S / ATTEMPTS_PER_LEASE + 0.2
        await leader.stop()

    run_virtually(scene())


def test_a_stop_during_the_first_question_leaves_no_lease_behind():
    async def scene():
        registry = Registry()
        registry.latency_s = 1.0
        leader = leadership_of(registry)
        leader.start()
        await asyncio.sleep(0.5)
        registry.holder, registry.expires_at = leader.term.holder, LEASE_S
        await leader.stop()
        assert registry.holder is None

    run_virtually(scene())


def test_a_stop_does_not_wait_for_a_database_that_is_silent():
    async def scene():
        registry = Registry()
        leader = leadership_of(registry)
        leader.start()
        await leader.wait_until_leader()
        registry.latency_s = 100.0
        began = asyncio.get_running_loop().time()
        await leader.stop()
        assert asyncio.get_running_loop().time() - began <= RESIGN_S

    run_virtually(scene())


def test_a_stop_while_the_database_is_away_is_no_error():
    async def scene():
        registry = Registry()
        leader = leadership_of(registry)
        leader.start()
        await leader.wait_until_leader()
        registry.is_down = True
        await leader.stop()
        assert not leader.is_leader

    run_virtually(scene())


@given(
    st.lists(
        st.tuples(st.floats(0.1, 20), st.floats(0, 5), st.sampled_from([True, False, None])),
        max_size=30,
    )
)
def test_belief_never_outlasts_what_was_granted(answers):
    """Each answer: the time since the last question, how long it took, and what it was."""
    tenure, now, granted_until = Tenure(LEASE_S), 0.0, 0.0
    for pause, latency, answer in answers:
        asked_at = now + pause
        now = asked_at + latency
        if answer is not None:
            tenure.heard(asked_at=asked_at, is_granted=answer)
            # The record begins when the database answers, at the earliest when it was asked.
            granted_until = asked_at + LEASE_S if answer else 0.0
        assert tenure.is_leader(now) == (now < granted_until)
        assert not tenure.is_leader(max(now, granted_until))
