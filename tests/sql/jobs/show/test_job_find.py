"""What is found, counted and listed by a filter are the same jobs (job_scope)."""

from datetime import timedelta

import pytest

from tests.sql.jobs.show.test_job_list import make_states

FIND = "select * from skep.job_find($1, $2, $3, $4, $5, $6, $7, $8, $9)"
COUNT = "select count(*) from skep.job_find($1, $2, $3, $4, $5, $6, $7, null, $8)"
LIST = "select id from skep.job_list($1, $2, $3, $4, $5, $6, $7, true, $8, $9)"


async def same_everywhere(chains, *what, since=None, until=None):
    """Return what a filter finds, in the order in which it does."""
    which = (*what, since, until)
    found = [row[0] for row in await chains.rows(FIND, *which, None, 100)]
    assert found == [row[0] for row in await chains.rows(LIST, *which, None, 100)]
    assert await chains.value(COUNT, *which, 100) == len(found)
    return found


@pytest.mark.parametrize("name", [None, "work", "second"])
async def test_a_filter_means_the_same_wherever_it_stands(chains, worker, name):
    states = await make_states(chains, worker)

    for state, job_id in states.items():
        found = await same_everywhere(chains, name, state, None, None, None)
        assert (job_id in found) or name is not None, state
    everything = await same_everywhere(chains, name, None, None, None, None)
    assert everything == sorted(everything, reverse=True)


async def test_jobs_are_found_by_chain_id_and_blocker(chains, worker):
    states = await make_states(chains, worker)
    chain_id, ready = states["continued"], states["ready"]

    assert len(await same_everywhere(chains, None, None, chain_id, None, None)) == 2
    assert await same_everywhere(chains, None, None, None, [ready], None) == [ready]
    assert await same_everywhere(chains, None, None, None, None, ready) == [states["blocked"]]


async def test_pages_begin_behind_the_last_of_the_page_before(chains):
    ids = [await chains.start(delay_s=60) for _ in range(4)]

    (first,) = await chains.rows(FIND, None, "scheduled", *[None] * 6, 1)
    rest = await chains.rows(FIND, None, "scheduled", *[None] * 5, first[0], 100)

    assert [first[0], *(row[0] for row in rest)] == ids[::-1]


async def test_a_count_ends_at_its_bound(chains):
    await chains.start_all(*({} for _ in range(5)))

    assert await chains.value(COUNT, None, "ready", *[None] * 5, 3) == 3


async def test_jobs_are_found_by_the_time_of_their_creation(chains):
    ids = []
    for _ in range(3):
        ids.append(await chains.start())
        await chains.advance(60)
    minute = timedelta(seconds=60)
    everything = [None] * 5

    since = chains.now - 2 * minute
    assert await same_everywhere(chains, *everything, since=since) == ids[:0:-1]
    assert await same_everywhere(chains, *everything, until=since) == ids[:1]
    ready = [None, "ready", None, None, None]
    assert await same_everywhere(chains, *ready, since=since, until=since + minute) == [ids[1]]
