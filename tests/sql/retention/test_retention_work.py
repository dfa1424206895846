import pytest

WORK = """
  select q.name, w.kind from skep.retention_work() w join skep.queue q on q.id = w.queue_id
"""


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({}, set()),
        ({"retention_s": 5, "completed_retention_s": 5}, set()),
        ({"retention_enabled": True}, set()),
        ({"retention_enabled": True, "retention_s": 5}, {"retention"}),
        ({"ttl_s": 5}, {"retention"}),
        ({"retention_enabled": True, "completed_retention_s": 5}, {"completed"}),
        ({"max_wait_time_s": 5}, {"eviction"}),
    ],
    ids=str,
)
async def test_a_queue_wants_what_its_options_say(log, options, kinds):
    await log.configure("hive", **options)
    await log.configure("idle")

    assert {tuple(row) for row in await log.rows(WORK)} == {("hive", kind) for kind in kinds}


async def test_a_paused_queue_wants_nothing_evicted(log):
    await log.configure("hive", max_wait_time_s=5)
    await log.execute("update skep.queue set is_paused = true")

    assert await log.rows(WORK) == []
