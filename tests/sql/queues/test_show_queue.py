import json

from skep.broker.queues.configure import Configure
from skep.db.access.functions import Functions

SHOW = "select * from skep.show_queue($1)"


async def test_a_queue_is_shown_as_configure_showed_it(log):
    configured = await log.row(
        "select * from skep.configure_queue('hive', 'bees', null, $1)", '{"lease_time_s": 30}'
    )

    shown = await log.row(SHOW, "hive")

    assert json.loads(shown["queue"]) == json.loads(configured["queue"])
    assert shown["default_partition_id"] == configured["default_partition_id"]


async def test_a_queue_without_the_default_partition_is_shown_all_the_same(log):
    await log.provision("hive", "a")

    shown = await log.row(SHOW, "hive")

    assert json.loads(shown["queue"])["name"] == "hive"
    assert shown["default_partition_id"] is None


async def test_asking_for_a_queue_does_not_create_it(log):
    assert await log.rows(SHOW, "hive") == []
    assert await log.value("select count(*) from skep.queue") == 0


async def test_with_a_key_encryption_is_stored(log):
    class Session:
        async def call(self, statement, *arguments):
            return await log.rows(statement, *arguments)

    configure = Configure(Functions(Session()), can_encrypt=lambda: True)

    configured = await configure.configure_queue(
        "hive", namespace=None, task=None, options={"encryptionEnabled": True}
    )

    assert configured.options.encryption_enabled
    assert await configure.show("hive") == configured
