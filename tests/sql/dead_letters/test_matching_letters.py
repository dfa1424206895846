"""What a filter of dead letters means, against the same meaning in Python."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sql.support.letters import Filter, bury
from tests.sql.support.log import NOON, QUEUE_MODE

QUERY = "select id from skep.matching_letters($1, $2, $3, $4, $5, $6, $7) order by id"
LETTERS = [
    ("hive", "a", QUEUE_MODE, "red", 0),
    ("hive", "a", "g", "red and blue", 10),
    ("hive", "b", QUEUE_MODE, "blue", 20),
    ("comb", "a", "g", "100% _red_", 30),
]


def maybe(*values):
    return st.one_of(st.none(), st.sampled_from(values))


def moments():
    return maybe(*(NOON + timedelta(seconds=s) for s in (-5, 0, 5, 10, 20, 30, 31)))


filters = st.builds(
    Filter,
    queue=st.sampled_from(["hive", "comb", "none"]),
    group=maybe(QUEUE_MODE, "g", "nobody"),
    partition=maybe("a", "b", "none"),
    since=moments(),
    until=moments(),
    error=maybe("red", "blue", "%", "_red_", "RED"),
    ids=st.one_of(st.none(), st.lists(st.integers(0, 4), max_size=4)),
)


@pytest.fixture
def letters(log, arun):
    async def make():
        found = {}
        for number, (queue, partition, group, error, second) in enumerate(LETTERS):
            await log.set_clock(NOON + timedelta(seconds=second))
            [id_] = await bury(
                log, f"m{number}", queue=queue, partition=partition, group=group, error=error
            )
            found[id_] = (queue, partition, group, error, log.now)
        return found

    return arun(make())


def fits(chosen, id_, letter):
    queue, partition, group, error, failed_at = letter
    return (
        chosen.queue in (None, queue)
        and chosen.group in (None, group)
        and chosen.partition in (None, partition)
        and (chosen.since is None or failed_at >= chosen.since)
        and (chosen.until is None or failed_at <= chosen.until)
        and (chosen.error is None or chosen.error in error)
        and (chosen.ids is None or id_ in chosen.ids)
    )


def test_a_filter_finds_what_fits_all_its_parts(log, arun, letters):
    ids = list(letters)

    @settings(max_examples=60, deadline=None)
    @given(filters)
    def check(chosen):
        if chosen.ids is not None:
            chosen = chosen._replace(ids=[(*ids, 0)[number] for number in chosen.ids])
        found = [row[0] for row in arun(log.rows(QUERY, *chosen))]
        assert found == [id_ for id_ in ids if fits(chosen, id_, letters[id_])]

    check()


async def test_an_empty_filter_finds_all(log, letters):
    assert [row[0] for row in await log.rows(QUERY, *Filter())] == list(letters)
