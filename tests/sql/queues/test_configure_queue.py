import json

import asyncpg
import pytest


async def configure(log, queue, namespace=None, task=None, /, **columns):
    row = await log.row(
        "select * from skep.configure_queue($1, $2, $3, $4)",
        queue,
        namespace,
        task,
        json.dumps(columns),
    )
    return json.loads(row["queue"]), row["default_partition_id"]


async def test_a_new_queue_has_the_defaults_and_what_was_given(log):
    queue, _ = await configure(log, "hive", lease_time_s=30, dead_letter_queue=True)

    assert (queue["lease_time_s"], queue["dead_letter_queue"]) == (30, True)
    assert (queue["retry_limit"], queue["retention_enabled"]) == (3, False)


async def test_a_configured_queue_has_the_namespace_given_and_not_one_from_its_name(log):
    bare, _ = await configure(log, "hive.wax")
    named, _ = await configure(log, "hive.comb", "bees", "build")

    assert (bare["namespace"], bare["task"]) == ("", "")
    assert (named["namespace"], named["task"]) == ("bees", "build")


async def test_options_that_are_not_given_keep_their_values(log):
    await configure(log, "hive", "bees", "build", lease_time_s=30, retry_limit=9)

    queue, _ = await configure(log, "hive", lease_time_s=40)

    assert (queue["lease_time_s"], queue["retry_limit"]) == (40, 9)
    assert (queue["namespace"], queue["task"]) == ("bees", "build")


async def test_a_queue_that_came_into_being_by_a_push_keeps_its_namespace(log):
    await log.provision("hive.wax", "a")

    queue, _ = await configure(log, "hive.wax", lease_time_s=30)

    assert (queue["namespace"], queue["task"], queue["lease_time_s"]) == ("hive", "wax", 30)


async def test_every_option_can_be_set(log):
    options = {
        "priority": -1, "lease_time_s": 1, "retry_limit": 2, "retry_delay_ms": 3, "max_size": 4,
        "ttl_s": 5, "dead_letter_queue": True, "dlq_after_max_retries": True,
        "delayed_processing_s": 6, "window_buffer_s": 7, "retention_s": 8,
        "completed_retention_s": 9, "retention_enabled": True, "encryption_enabled": True,
        "max_wait_time_s": 10, "dedup_window_s": 11, "max_deliveries": 12,
        "retry_delay_ms_max": 13, "ack_mode": "individual", "overflow": "drop_oldest",
        "json_schema": {"type": "object"}, "archive_after_s": 14, "archive_before_delete": True,
        "lake_table": "typed", "deferral": "always", "is_strict": True,
    }  # fmt: skip

    queue, _ = await configure(log, "hive", **options)

    fixed = {"id", "name", "namespace", "task", "created_at", "updated_at", "version", "is_paused"}
    assert {column: queue[column] for column in queue.keys() - fixed} == options


async def test_identity_cannot_be_changed_by_options(log):
    before, _ = await configure(log, "hive", "bees")
    await log.advance()

    after, _ = await configure(log, "hive", id=77, name="wax", namespace="x", created_at="now")

    kept = ("id", "name", "namespace", "created_at")
    assert [after[column] for column in kept] == [before[column] for column in kept]
    assert after["updated_at"] > before["updated_at"]


async def test_every_change_makes_a_new_version(log):
    created, _ = await configure(log, "hive")
    renamed, _ = await configure(log, "hive", "bees")
    changed, _ = await configure(log, "hive", lease_time_s=30)

    versions = [created["version"], renamed["version"], changed["version"]]
    assert versions == sorted(set(versions))


async def test_a_pause_is_not_an_option(log):
    queue, _ = await configure(log, "hive", is_paused=True)

    assert queue["is_paused"] is False


async def test_a_schema_keeps_its_text(log):
    await configure(log, "hive")
    await log.value(
        "select default_partition_id from skep.configure_queue('hive', null, null, $1)",
        '{"json_schema": {"b": 1e99, "a": 1.50}}',
    )

    assert await log.value("select json_schema::text from skep.queue") == '{"b": 1e99, "a": 1.50}'


async def test_the_default_partition_is_there_afterwards(log):
    _, created = await configure(log, "hive")
    _, found = await configure(log, "hive")

    assert [created] == await log.provision("hive", "Default")
    assert found == created


async def test_a_value_of_the_wrong_type_changes_nothing(log):
    await configure(log, "hive", retry_limit=9)

    with pytest.raises(asyncpg.DataError):
        await configure(log, "hive", retry_limit=1, lease_time_s="long")

    assert await log.value("select retry_limit from skep.queue") == 9
