"""Pushing around duplicates: any subset may be there already."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sql.support.letters import transaction_ids
from tests.sql.support.log import envelope, key_of


async def push(log, letters):
    """Push letters (id, partition) as `dlq:id`; return (offset, is_duplicate) by letter."""
    ordered = sorted(letters, key=lambda letter: (letter[1], letter[0]))
    rows = await log.rows(
        "select * from skep.push_letters($1, $2, $3, $4)",
        [id_ for id_, _ in ordered],
        [partition for _, partition in ordered],
        [key_of(f"dlq:{id_}") for id_, _ in ordered],
        [envelope(f"dlq:{id_}").encode() for id_, _ in ordered],
    )
    return {row[0]: (row[2], row[3]) for row in rows}


def test_what_is_there_stays_and_the_rest_is_appended_in_order(log, arun):
    @settings(max_examples=25, deadline=None)
    @given(st.sets(st.integers(1, 5)), st.sets(st.integers(6, 9)))
    def check(known_a, known_b):
        async def run():
            await log.clear()
            partitions = await log.provision("hive", "a", "b")
            letters = [(id_, partitions[id_ > 5]) for id_ in range(1, 10)]
            for partition, known in zip(partitions, (known_a, known_b), strict=True):
                if known:
                    await log.push(
                        partition, *(f"dlq:{id_}" for id_ in sorted(known, reverse=True))
                    )

            pushed = await push(log, letters)

            assert {id_ for id_, (_, is_known) in pushed.items() if is_known} == known_a | known_b
            for partition, known, ids in zip(
                partitions, (known_a, known_b), (range(1, 6), range(6, 10)), strict=True
            ):
                fresh = [id_ for id_ in ids if id_ not in known]
                stored = await transaction_ids(log, partition)
                assert stored == [f"dlq:{id_}" for id_ in [*sorted(known, reverse=True), *fresh]]
                assert all(stored[pushed[id_][0] - 1] == f"dlq:{id_}" for id_ in ids)

        arun(run())

    check()


async def test_a_partition_that_does_not_exist_gets_nothing(log):
    assert await push(log, [(1, 1 << 40)]) == {}
