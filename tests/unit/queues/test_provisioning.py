"""How names become known: what one request lacks is no other request's failure."""

from types import NoneType

from skep.broker.directory import Directory, PartitionProvisioner, PartitionRequest
from skep.broker.push.rules import RuleBook
from skep.model.errors import NotFound, Unavailable


class Database:
    """Has every partition except those of a queue that is being deleted."""

    async def call(self, statement, *arguments):
        if "provision_partitions" not in statement:
            return []
        return [
            {
                "queue_name": queue,
                "partition_name": partition,
                "queue_id": 1,
                "partition_id": 7,
                "created": True,
            }
            for queue, partition in zip(*arguments[:2], strict=True)
            if queue != "dying"
        ]


class Listener:
    """Needs long for a partition `large`."""

    def __init__(self, ends):
        self.ends, self.told = ends, []

    async def prepare(self, created, found, on_ready):
        on_ready([partition for partition in created if partition.key[1] != "large"])
        self.told = list(self.ends)
        on_ready([partition for partition in created if partition.key[1] == "large"])


def provisioner_with(listener):
    database = Database()
    rule_book = RuleBook(database, seal=bytes)
    return PartitionProvisioner(database, Directory(), rule_book, listener)


async def test_a_request_does_not_wait_for_the_partitions_of_others():
    ends = []
    listener = Listener(ends)
    batch = [
        PartitionRequest([("hive", "a")], on_done=ends.append),
        PartitionRequest([("hive", "a"), ("hive", "large")], on_done=ends.append),
    ]

    await provisioner_with(listener).execute(batch, is_repeated=False)

    assert (listener.told, ends) == ([None], [None, None])


async def test_what_cannot_be_had_fails_only_the_requests_for_it():
    ends = []
    provisioner = provisioner_with(Listener(ends))
    batch = [
        PartitionRequest([("hive", "a")], on_done=ends.append),
        PartitionRequest([("dying", "a")], on_done=ends.append),
        PartitionRequest([("dying", "a")], creates=False, on_done=ends.append),
        PartitionRequest([("hive", "b")], creates=False, on_done=ends.append),
    ]

    await provisioner.execute(batch, is_repeated=False)

    assert [type(error) for error in ends] == [NoneType, Unavailable, NotFound, NoneType]
    assert all(request.is_settled for request in batch)
