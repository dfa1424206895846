"""The key of a transaction id, calculated by SQL as brokers calculate it."""

import asyncpg
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, (1 << 60) - 1)
IDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: len(text.encode()) <= 240
)


async def key(log, transaction_id, seed):
    return await log.value("select skep.transaction_key($1, $2)", transaction_id, seed)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(transaction_id=IDS, seed=SEEDS)
def test_any_id_has_the_key_that_brokers_give_it(log, arun, transaction_id, seed):
    expected = xxhash.xxh3_128_digest(transaction_id.encode(), seed)

    assert arun(key(log, transaction_id, seed)) == expected


@pytest.mark.parametrize("transaction_id", ["", "x" * 241, "é" * 121])
async def test_an_id_that_sql_cannot_hash_is_refused(log, transaction_id):
    with pytest.raises(asyncpg.PostgresError, match="1 to 240 bytes") as refusal:
        await key(log, transaction_id, 1)

    assert refusal.value.sqlstate == "SK400"
