from hashlib import md5

import asyncpg
import pytest

CHECK = "select skep.check_staged_rules($1, 0, '{1}')"
SCHEMA = '{"type": "object"}'
DIGEST = md5(SCHEMA.encode()).hexdigest()


@pytest.fixture
def check(log, staging):
    async def check():
        try:
            await log.value(CHECK, staging.write_id)
        except asyncpg.PostgresError as error:
            return error.sqlstate, str(error)
        return None

    return check


async def test_a_queue_without_rules_takes_anything(log, staging, check):
    await staging.segment("x")
    assert await check() is None
    await log.partition()
    assert await check() is None


@pytest.mark.parametrize("kind", ["segment", "message", "reject"])
async def test_what_is_in_clear_is_refused_where_encryption_is_demanded(log, staging, check, kind):
    await log.partition()
    await log.set_options("hive", encryption_enabled=True)
    arguments = (log.now,) if kind == "message" else ()
    stage = getattr(staging, kind)
    await stage("x", *arguments, is_sealed=True)
    assert await check() is None

    await stage("y", *arguments)

    assert await check() == (
        "SK409",
        "queue hive was reconfigured while rows were written to it",
    )


async def test_what_was_checked_by_another_schema_is_refused(log, staging, check):
    await log.partition()
    await log.execute("update skep.queue set json_schema = $1::text::json", SCHEMA)
    await staging.reject("never checked")
    await staging.segment("x", schema_digest=DIGEST)
    assert await check() is None

    await staging.segment("y", schema_digest=md5(b"{}").hexdigest())

    state, _ = await check()
    assert state == "SK409"


async def test_a_schema_that_was_dropped_meanwhile_does_no_harm(log, staging, check):
    await log.partition()
    await staging.segment("x", schema_digest=DIGEST, is_sealed=True)

    assert await check() is None


@pytest.mark.parametrize(
    ("waiting", "staged", "overflow", "is_refused"),
    [
        (2, 1, "reject", False),
        (2, 2, "reject", True),
        (3, 1, "reject", True),
        (0, 9, "reject", False),
        (3, 9, "drop_oldest", False),
    ],
)
async def test_a_queue_takes_no_more_than_its_maximum_unless_it_is_empty(
    log, staging, check, waiting, staged, overflow, is_refused
):
    partition, _ = await log.partition()
    await log.set_options("hive", max_size=3, overflow=overflow)
    if waiting:
        await log.push(partition, *(f"old-{number}" for number in range(waiting)))
    for number in range(staged):
        await staging.segment(f"new-{number}")

    assert await check() == (("SK429", "queue hive is full") if is_refused else None)
