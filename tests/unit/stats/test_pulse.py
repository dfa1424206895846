"""One sampler for any number of followers, and none without."""

import asyncio

import pytest

from skep.broker.stats import pulse as pulse_module
from skep.broker.stats.pulse import Pulse, activity_of
from skep.model.errors import Unavailable
from skep.telemetry.snapshots import Snapshot


class Source:
    """Samples that are numbered, and taken one by one when a test lets them."""

    def __init__(self):
        self.taken = 0
        self.error = None
        self.wanted = asyncio.Semaphore(0)

    async def take(self):
        await self.wanted.acquire()
        if self.error is not None:
            raise self.error
        self.taken += 1
        return b"%d" % self.taken


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(pulse_module, "INTERVAL_S", 0.0)
    monkeypatch.setattr(pulse_module, "PAUSE_PER_COST", 0)


async def test_all_who_follow_get_the_same_sample(quick):
    source = Source()
    pulse = Pulse(source.take)
    followers = [pulse.follow() for _ in range(50)]
    waiting = [asyncio.ensure_future(anext(each)) for each in followers]
    await asyncio.sleep(0)

    source.wanted.release()

    assert await asyncio.gather(*waiting) == [b"1"] * 50
    assert source.taken == 1
    for each in followers:
        await each.aclose()


async def test_who_comes_later_gets_the_newest_sample_at_once(quick):
    source = Source()
    pulse = Pulse(source.take)
    first = pulse.follow()
    source.wanted.release()
    await anext(first)

    second = pulse.follow()

    assert await anext(second) == b"1"
    assert source.taken == 1
    await first.aclose()
    await second.aclose()


async def test_without_followers_nothing_is_sampled(quick):
    source = Source()
    pulse = Pulse(source.take)
    follower = pulse.follow()
    source.wanted.release()
    await anext(follower)
    await follower.aclose()

    source.wanted.release()
    for _ in range(10):
        await asyncio.sleep(0)
    assert source.taken == 1

    again = pulse.follow()
    assert await anext(again) == b"2"
    await again.aclose()


async def test_a_sample_that_fails_is_told_and_the_next_follower_tries_again(quick):
    source = Source()
    pulse = Pulse(source.take)
    source.error = Unavailable("the database is away")
    source.wanted.release()
    with pytest.raises(Unavailable):
        await anext(pulse.follow())

    source.error = None
    source.wanted.release()
    again = pulse.follow()

    assert await anext(again) == b"1"
    await again.aclose()


async def test_followers_end_when_the_pulse_stops(quick):
    source = Source()
    pulse = Pulse(source.take)
    ending = asyncio.ensure_future(anext(pulse.follow()))
    await asyncio.sleep(0)

    pulse.stop()

    with pytest.raises(StopAsyncIteration):
        await ending


async def test_a_sample_that_costs_much_is_taken_rarely(monkeypatch):
    pauses = []
    clock = iter(range(0, 100, 3))

    async def note_pause(seconds):
        pauses.append(seconds)
        await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: next(clock), raising=False)
    monkeypatch.setattr(pulse_module.asyncio, "sleep", note_pause)
    source = Source()
    source.wanted.release()
    follower = Pulse(source.take).follow()
    await anext(follower)
    await follower.aclose()

    assert pauses == [3 * pulse_module.PAUSE_PER_COST]


async def test_between_rare_samples_the_pulse_still_beats(monkeypatch):
    monkeypatch.setattr(pulse_module, "BEAT_S", 0.001)
    source = Source()
    follower = Pulse(source.take).follow()

    assert await anext(follower) is None
    source.wanted.release()
    while (sample := await anext(follower)) is None:
        pass

    assert sample == b"1"
    await follower.aclose()


def snapshot(worker, pushed, *, calls=(), parked=0):
    return Snapshot(
        worker=worker,
        pid=worker,
        started_at=0.0,
        counters={"skep_pushed_messages": {("a",): pushed, ("b",): pushed}},
        histograms={"skep_engine_call_messages": {("push",): list(calls)}} if calls else {},
        gauges={"skep_parked_polls": {(): parked}},
    )


def test_rates_are_of_all_workers_and_queues():
    before = activity_of([snapshot(0, 10), snapshot(1, 20)], at=100.0)
    now = activity_of([snapshot(0, 20, parked=2), snapshot(1, 40, parked=3)], at=102.0)

    assert now.per_second(before, "pushed") == 30.0
    assert now.per_second(None, "pushed") is None
    assert now.parked == 5


def test_messages_per_commit_are_those_of_the_calls_since():
    before = activity_of([snapshot(0, 0, calls=[4.0, 0.0, 4.0])], at=1.0)
    now = activity_of([snapshot(0, 0, calls=[4.0, 2.0, 44.0])], at=2.0)

    assert now.per_call(before) == 20.0
    assert now.per_call(now) is None
