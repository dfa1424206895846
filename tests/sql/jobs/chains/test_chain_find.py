"""What is found, counted and listed by a filter are the same chains (chain_where)."""

from datetime import timedelta

import pytest

from skep.jobs.identifiers import new_id

FIND = "select * from skep.chain_find($1, $2, $3, $4, $5, $6, $7, $8, $9)"
COUNT = "select count(*) from skep.chain_find($1, $2, $3, $4, $5, $6, $7, null, $8)"
LIST = "select id from skep.chain_list($1, $2, $3, $4, $5, $6, $7, true, $8, $9)"
NAMES = ("type", "state", "parent", "key", "ids", "since", "until")


@pytest.fixture
def filters(arun, chains, worker):
    """Filters by what they say, with the chains that match each."""
    return arun(make_filters(chains, worker))


async def make_filters(chains, worker):
    parent = new_id()
    old = await chains.start("o'clock", key="it's", parent=parent)
    await chains.run(worker, "o'clock", outcome="failed", error="x")
    await chains.advance(60)
    new = [await chains.start("new") for _ in range(3)]
    between = chains.now - timedelta(seconds=30)
    return [
        ({}, [old, *new]),
        ({"type": "o'clock"}, [old]),
        ({"type": "nobody"}, []),
        ({"state": "failed"}, [old]),
        ({"state": "open"}, new),
        ({"key": "it's"}, [old]),
        ({"parent": parent}, [old]),
        ({"ids": [old, new[0]]}, [old, new[0]]),
        ({"ids": []}, []),
        ({"since": between}, new),
        ({"until": between}, [old]),
        ({"type": "new", "state": "failed"}, []),
    ]


def values(which):
    return [which.get(name) for name in NAMES]


async def test_a_filter_means_the_same_wherever_it_stands(chains, filters):
    for which, expected in filters:
        newest_first = sorted(expected, reverse=True)

        found = await chains.rows(FIND, *values(which), None, 100)
        listed = await chains.rows(LIST, *values(which), None, 100)

        assert [row[0] for row in found] == newest_first, which
        assert [row[0] for row in listed] == newest_first, which
        assert await chains.value(COUNT, *values(which), 100) == len(expected), which


async def test_pages_begin_behind_the_last_of_the_page_before(chains):
    ids = [await chains.start() for _ in range(5)]

    (first,) = await chains.rows(FIND, *[None] * 8, 1)
    rest = await chains.rows(FIND, *[None] * 7, first[0], 100)

    assert [first[0], *(row[0] for row in rest)] == ids[::-1]


async def test_a_count_ends_at_its_bound(chains):
    await chains.start_all(*({} for _ in range(5)))

    assert await chains.value(COUNT, *[None] * 7, 3) == 3
