"""The rules of queues as one process knows them: which it keeps, and what a bad schema does."""

import gc
import json

from skep.broker.push.rules import RuleBook
from skep.model.envelopes import build_envelope

TEXT_ONLY = {"type": "string"}
BROKEN = {"type": "no such type"}


class Queues:
    """Stands for the database: the version and the schema of each queue that exists."""

    def __init__(self, **queues):
        self.by_id = {int(name[1:]): queue for name, queue in queues.items()}
        self.calls = 0

    async def call(self, statement, queue_ids):
        self.calls += 1
        return [
            (queue_id, version, 0, False, None, None, schema and json.dumps(schema), "asked", False)
            for queue_id in queue_ids
            if queue_id in self.by_id
            for version, schema in [self.by_id[queue_id]]
        ]


def book_of(queues):
    return RuleBook(queues, seal=lambda envelope: envelope)


def refusal(rules, payload):
    return rules.refusal_of(build_envelope("a", json.dumps(payload).encode()))


async def test_rules_are_known_as_long_as_they_are_in_use():
    book = book_of(Queues(q1=(1, None), q2=(1, None)))
    used = (await book.read_new([1, 2]))[1]
    gc.collect()

    assert len(book) == 1
    assert (await book.read([1]))[1] is used


async def test_the_rules_of_a_deleted_queue_are_reset_for_those_who_still_use_them():
    queues = Queues(q1=(3, TEXT_ONLY))
    book = book_of(queues)
    rules = (await book.read_new([1]))[1]
    del queues.by_id[1]

    await book.read_known(1)

    assert (rules.version, rules.validator, rules.is_plain) == (0, None, True)
    del rules
    assert len(book) == 0


async def test_rules_that_are_not_in_use_are_not_read_again():
    queues = Queues(q1=(1, None))
    await book_of(queues).read_known(1)

    assert queues.calls == 0


async def test_a_schema_is_compiled_once_for_each_version():
    queues = Queues(q1=(1, TEXT_ONLY))
    book = book_of(queues)
    rules = (await book.read([1]))[1]
    first = rules.validator

    await book.read([1])
    assert rules.validator is first

    queues.by_id[1] = (2, {"type": "number"})
    await book.read([1])
    assert refusal(rules, "text")
    assert refusal(rules, 1) is None


async def test_a_schema_that_does_not_compile_refuses_everything_and_only_in_its_queue():
    queues = Queues(q1=(2, BROKEN), q2=(1, TEXT_ONLY))
    book = book_of(queues)
    both = await book.read([1, 2])
    for _ in range(2):
        assert "jsonSchema" in refusal(both[1], "text")
        assert refusal(both[2], "text") is None
        await book.read([1, 2])
    assert not both[1].is_plain

    queues.by_id[1] = (3, TEXT_ONLY)
    await book.read([1])

    assert refusal(both[1], "text") is None
