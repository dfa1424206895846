"""How long a scrape waits for the figures of the installation."""

import asyncio

import pytest

from skep.broker.stats.scrape import AWAY_S, KEEP_S, PATIENCE_S, STALE_S, ScrapeFacts
from tests.support.virtual_time import VirtualTimeLoop


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


class Database:
    """Answers so late; a new answer each time."""

    def __init__(self):
        self.latency_s = 0.0
        self.count = 0

    async def call(self, statement, *arguments):
        await asyncio.sleep(self.latency_s)
        self.count += 1
        return [(b'{"count":%d}' % self.count,)]


class Scrapes:
    def __init__(self):
        self.database, self.is_away = Database(), False
        self.loop = asyncio.get_running_loop()
        now = self.loop.time
        self.facts = ScrapeFacts(self.database, queues_max=1, now=now, is_away=lambda: self.is_away)

    async def scrape(self, *, after_s=0.0):
        """Return the figures, and how long they took."""
        await asyncio.sleep(after_s)
        began_at = self.loop.time()
        found = await self.facts.read()
        return found and found["count"], pytest.approx(self.loop.time() - began_at)


async def test_while_there_are_recent_figures_no_scrape_waits_for_a_slow_database():
    scrapes = Scrapes()
    first = await scrapes.scrape()
    scrapes.database.latency_s = 1.0

    late = await scrapes.scrape(after_s=KEEP_S)
    next_ = await scrapes.scrape(after_s=1.0)

    assert (first, late, next_) == ((1, 0.0), (1, AWAY_S), (2, 0.0))


async def test_only_the_first_scrape_waits_for_a_database_that_says_nothing():
    scrapes = Scrapes()
    scrapes.database.latency_s = STALE_S

    found = [await scrapes.scrape() for _ in range(3)]

    assert found == [(None, PATIENCE_S), (None, AWAY_S), (None, AWAY_S)]


async def test_no_scrape_waits_for_a_database_that_is_away_and_none_shows_what_it_said():
    scrapes = Scrapes()
    await scrapes.scrape()
    scrapes.is_away, scrapes.database.latency_s = True, STALE_S

    found = [await scrapes.scrape(after_s=after_s) for after_s in (KEEP_S, STALE_S)]

    assert found == [(None, AWAY_S)] * 2
