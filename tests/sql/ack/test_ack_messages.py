from uuid import uuid4

from tests.sql.support.log import Ack, Acked, Poll
from tests.sql.support.operating import ACK, defer


async def test_the_answer_names_the_partition_and_tells_what_became_of_it(log):
    partition, group = await log.partition("hive", "comb")
    await log.push(partition, "a", "b")
    poll = Poll()
    await log.pop(group, poll)
    queue_id = await log.value("select id from skep.queue")

    answers = await log.ack(Ack(partition, 2, poll.lease_id))

    assert answers == [Acked(1, "acked", queue_id, "hive", "comb", True, False)]
    assert await log.ack(Ack(partition, 2, poll.lease_id)) == [
        Acked(1, "noop", queue_id, "hive", "comb", False, False)
    ]


async def test_the_cursor_moves_forward_and_never_back(log):
    partition, group = await log.partition()
    await log.push(partition, *"abcde")
    poll = Poll()
    await log.pop(group, poll)

    places = []
    for offset in (2, 1, 4, 3, 5, 1):
        await log.ack(Ack(partition, offset, poll.lease_id))
        places.append((await log.cursor(partition, group))["acked"])

    assert places == [2, 2, 4, 4, 5, 5]


async def test_partitions_and_groups_of_one_call_are_apart(log):
    a, queue_mode = await log.partition()
    [b] = await log.provision("hive", "b")
    bees = await log.subscribe("hive", "bees")
    await log.push_writes({a: "pq", b: "rs"})
    lease = Poll(partitions=2)
    await log.pop(queue_mode, lease)
    await log.pop(bees, lease)

    outcomes = await log.outcomes(
        Ack(b, 2, lease.lease_id, group="bees"),
        Ack(a, 1, lease.lease_id, "failed"),
        Ack(a, 2, lease.lease_id),
        Ack(a, 1, uuid4(), group="bees"),
        Ack(b, 1, lease.lease_id),
    )

    assert outcomes == ["acked", "retried", "redelivered", "lease_lost", "acked"]
    rows = await log.rows("select partition_id, group_id, acked from skep.cursor")
    assert {(r["partition_id"], r["group_id"]): r["acked"] for r in rows} == {
        (a, queue_mode): 0, (b, queue_mode): 1, (a, bees): 0, (b, bees): 2
    }  # fmt: skip


async def test_unknown_partitions_and_groups_get_no_row_and_do_no_harm(log):
    partition, group = await log.partition()
    await log.subscribe("wax", "strangers")
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)

    answers = await log.ack(
        Ack(1_000_000, 1, poll.lease_id),
        Ack(partition, 1, poll.lease_id, group="nobody"),
        Ack(partition, 1, poll.lease_id, group="strangers"),
        Ack(partition, 1, poll.lease_id),
    )

    assert [(answer.item, answer.outcome) for answer in answers] == [(4, "acked")]


async def test_a_call_in_which_nothing_is_known_has_no_rows(log):
    assert await log.ack(Ack(1_000_000, 1, uuid4())) == []


async def test_plain_acks_and_others_of_one_call_are_answered_alike(log):
    partitions = await log.provision("hive", "a", "b", "c")
    group = await log.subscribe("hive")
    await log.push_writes(dict.fromkeys(partitions, "xyz"))
    poll = Poll(partitions=3)
    await log.pop(group, poll)
    a, b, c = partitions

    answers = await log.ack(
        Ack(a, 3, poll.lease_id),
        Ack(b, 1, poll.lease_id),
        Ack(b, 3, poll.lease_id),
        Ack(c, None, poll.lease_id, transaction_id="z"),
    )

    assert [(x.outcome, x.partition_name, x.lease_released, x.has_more) for x in answers] == [
        ("acked", "a", True, False),
        ("acked", "b", True, False),
        ("acked", "b", True, False),
        ("acked", "c", True, False),
    ]


async def test_each_partition_is_acked_as_its_queue_says(log):
    partitions = {}
    for queue, mode in {"hive": "cumulative", "wax": "individual"}.items():
        partition, group = await log.partition(queue)
        await log.set_options(queue, ack_mode=mode)
        await log.push(partition, *"abc")
        poll = Poll()
        await log.pop(group, poll)
        partitions[mode] = (partition, group, poll.lease_id)

    outcomes = await log.outcomes(*(Ack(p, 2, lease) for p, _, lease in partitions.values()))

    assert outcomes == ["acked", "acked"]
    acked = {
        mode: (await log.cursor(p, group))["acked"] for mode, (p, group, _) in partitions.items()
    }
    assert acked == {"cumulative": 2, "individual": 0}


async def test_many_plain_acks_beside_one_that_is_not_are_all_answered(log):
    partitions = await log.provision("hive", *(f"partition {number}" for number in range(200)))
    group = await log.subscribe("hive")
    await log.push_writes(dict.fromkeys(partitions, "x"))
    poll = Poll(batch=1000, partitions=200)
    await log.pop(group, poll)
    first, *rest = partitions

    outcomes = await log.outcomes(
        Ack(first, 1, poll.lease_id, "retry"),
        *(Ack(partition, 1, poll.lease_id) for partition in rest),
    )

    assert outcomes == ["retried", *["acked"] * 199]


async def test_an_ack_waits_behind_operations_and_its_neighbours_do_not(log):
    a, group = await log.partition()
    [b] = await log.provision("hive", "b")
    await log.push_writes({a: "x", b: "y"})
    lease = uuid4()
    await log.pop(group, Poll(partitions=2, lease_id=lease))
    await defer(log, a, type_=ACK)

    answers = await log.ack(Ack(a, 1, lease), Ack(b, 1, lease))

    assert [answer.outcome for answer in answers] == ["deferred", "acked"]
    assert answers[0].partition_name == "a"
    assert await log.value("select acked from skep.cursor where partition_id = $1", a) == 0
