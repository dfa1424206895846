"""The functions for applications: the same rules as over HTTP."""

import asyncpg
import pytest

from skep.broker.kv.operations import VALUE_BYTES_MAX


@pytest.fixture(autouse=True)
def no_keys(arun, log):
    arun(log.execute("delete from skep.kv_entry"))


async def test_a_put_answers_with_the_key_as_it_is_now(log):
    put = await log.row("select * from skep.kv_put('n', 'k', '[1]')")

    applied, reason, value, version = put
    assert (applied, reason, value) == (True, None, "[1]")
    assert await log.value("select version from skep.kv") == version


async def test_a_put_replaces_the_expiry(log):
    await log.value("select skep.kv_put('n', 'k', '1', ttl_seconds => 60)")
    await log.value("select skep.kv_put('n', 'k', '2')")

    assert await log.value("select expires_at from skep.kv") is None


async def test_a_lost_condition_tells_the_key_as_it_is(log):
    version = await log.value("select version from skep.kv_put('n', 'k', '1')")

    for query, reason in (
        ("select * from skep.kv_put('n', 'k', '2', expect => 0)", "exists"),
        (f"select * from skep.kv_put('n', 'k', '2', expect => {version - 1})", "version"),
        (f"select * from skep.kv_delete('n', 'k', expect => {version - 1})", "version"),
        ("select * from skep.kv_put_if_absent('n', 'k', '2')", "exists"),
        ("select * from skep.kv_incr('n', 'k', 5, max => 5)", "limit"),
    ):
        assert tuple(await log.row(query)) == (False, reason, "1", version), query


async def test_a_check_that_fails_ends_the_transaction(log):
    with pytest.raises(asyncpg.PostgresError) as error:
        await log.execute("select skep.kv_check('n', 'k', 7)")

    assert error.value.sqlstate == "SK412"


async def test_a_number_is_added_exactly_and_keeps_its_expiry(log):
    await log.value("select skep.kv_incr('n', 'k', 0.1, ttl_seconds => 60)")
    expires_at = await log.value("select expires_at from skep.kv")
    await log.advance(10)

    total = await log.value("select value_now from skep.kv_incr('n', 'k', 0.2, ttl_seconds => 90)")

    assert total == "0.3"
    assert await log.value("select expires_at from skep.kv") == expires_at


@pytest.mark.parametrize(
    "query",
    [
        "select skep.kv_put('N', 'k', '1')",
        "select skep.kv_put('n', '', '1')",
        "select skep.kv_put('n', repeat('k', 513), '1')",
        "select skep.kv_put('n', 'k', null)",
        "select skep.kv_put('n', 'k', '1', ttl_seconds => 0)",
        "select skep.kv_put('n', 'k', '1', expect => -1)",
        f"select skep.kv_put('n', 'k', to_jsonb(repeat('x', {VALUE_BYTES_MAX - 1})))",
        "select skep.kv_check('n', 'k', null)",
    ],
)
async def test_what_http_refuses_is_refused_here(log, query):
    with pytest.raises(asyncpg.PostgresError) as error:
        await log.execute(query)

    assert error.value.sqlstate in {"22023", "23514"}
    assert await log.value("select count(*) from skep.kv_entry") == 0


async def test_spaces_that_postgresql_adds_do_not_count(log):
    largest = VALUE_BYTES_MAX // 2 - 1  # compact, an array of so many digits has as many bytes

    await log.value(
        "select skep.kv_put('n', 'k', (select jsonb_agg(1) from generate_series(1, $1::int)))",
        largest,
    )

    assert await log.value("select octet_length(value::text) from skep.kv") > VALUE_BYTES_MAX


async def test_the_sweep_deletes_a_bounded_number_of_expired_keys(log):
    for number in range(3):
        await log.value("select skep.kv_put('n', $1, '1', ttl_seconds => 1)", f"{number}")
    await log.value("select skep.kv_put('n', 'stays', '1')")
    await log.advance(2)

    assert await log.value("select count(*) from skep.kv") == 1
    assert [await log.value("select skep.sweep_kv(2)") for _ in range(3)] == [2, 1, 0]
    assert await log.value("select count(*) from skep.kv_entry") == 1


async def test_namespaces_are_listed_with_their_keys(log):
    for ns, key in (("b", "1"), ("a", "1"), ("a", "2"), ("a-b", "1")):
        await log.value("select skep.kv_put($1, $2, '1')", ns, key)

    rows = await log.rows("select * from skep.kv_namespaces(1000)")

    assert [tuple(row) for row in rows] == [("a", 2), ("a-b", 1), ("b", 1)]
