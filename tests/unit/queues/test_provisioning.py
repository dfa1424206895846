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
    async def prepare(self, created, found):
        pass


async def test_what_cannot_be_had_fails_only_the_requests_for_it():
    directory, database, ends = Directory(), Database(), []
    rule_book = RuleBook(database, seal=bytes)
    provisioner = PartitionProvisioner(database, directory, rule_book, Listener())
    batch = [
        PartitionRequest([("hive", "a")], on_done=ends.append),
        PartitionRequest([("dying", "a")], on_done=ends.append),
        PartitionRequest([("dying", "a")], creates=False, on_done=ends.append),
        PartitionRequest([("hive", "b")], creates=False, on_done=ends.append),
    ]

    await provisioner.execute(batch, is_repeated=False)

    assert [type(error) for error in ends] == [NoneType, Unavailable, NotFound, NoneType]
    assert all(request.is_settled for request in batch)
