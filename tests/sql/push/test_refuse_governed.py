import asyncpg
import pytest


@pytest.mark.parametrize(
    "rule", ["encryption_enabled = true", "json_schema = '{}'", "max_size = 1"]
)
async def test_a_queue_with_rules_for_its_messages_is_refused_by_name(log, rule):
    [plain] = await log.provision("hive", "a")
    [governed] = await log.provision("nest", "a")
    await log.execute(f"update skep.queue set {rule} where name = 'nest'")

    with pytest.raises(asyncpg.PostgresError, match=r"queue nest .* use skep\.stage") as refusal:
        await log.value("select skep.refuse_governed($1)", [plain, governed])

    assert refusal.value.sqlstate == "SK403"


async def test_queues_without_rules_are_fine(log):
    partitions = await log.provision("hive", "a", "b")
    await log.execute("update skep.queue set ttl_s = 5, is_paused = true")

    await log.value("select skep.refuse_governed($1)", partitions)
