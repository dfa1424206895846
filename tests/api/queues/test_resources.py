"""Queues, partitions, namespaces and tasks over HTTP: listings, counts, pause, clear and delete."""

import asyncio
import json
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

import pytest

from tests.support.broker import payloads


async def fetch(client, path, **parameters):
    answer = await client.call("GET", f"/api/v1/{path}?{urlencode(parameters)}")
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def send(client, method, path):
    answer = await client.call(method, f"/api/v1/{path}")
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def describe(client, queue, **parameters):
    return await fetch(client, f"resources/queues/{quote(queue, safe='')}", **parameters)


async def listed(client, queue):
    """Return the queue as the listing shows it, or None."""
    found = await fetch(client, "resources/queues", search=queue, limit=1000)
    return next((each for each in found["queues"] if each["name"] == queue), None)


async def refusal(client, method, path):
    answer = await client.call(method, f"/api/v1/{path}")
    return answer.status, json.loads(answer.body)["error"]


def items(queue, *names, partition="Default"):
    return [
        {"queue": queue, "partition": partition, "transactionId": name, "payload": name}
        for name in names
    ]


class TestNamesInPaths:
    @pytest.mark.parametrize("name", ["a%2Fb", "100%25", "b\N{HONEYBEE}"])
    async def test_a_path_names_the_same_queue_however_often_it_is_asked_for(
        self, client, queue, name
    ):
        await client.configure(f"{queue}-{name}")

        names = [(await describe(client, f"{queue}-{name}"))["name"] for _ in range(3)]

        assert names == [f"{queue}-{name}"] * 3


class TestListingQueues:
    async def test_a_queue_shows_its_partitions_and_messages(self, client, queue):
        await client.configure(queue, {"namespace": "shop", "task": "bill"})
        await client.push_payloads(queue, 1, 2, 3)
        await client.push_payloads(queue, 4, partition="b")

        found = await listed(client, queue)

        assert found["id"] == (await client.configure(queue))["queueId"]
        assert [found["namespace"], found["task"]] == ["shop", "bill"]
        assert [found["partitions"], found["estimated"], found["isPaused"]] == [2, False, False]
        assert found["messages"] == {
            "total": 4, "pending": 4, "processing": 0, "completed": 0, "failed": 0, "deadLetter": 0,
        }  # fmt: skip

    async def test_a_queue_shows_what_waits_and_what_flows(self, client, queue):
        await client.configure(queue)
        idle = await listed(client, queue)
        await client.push_payloads(queue, 1)
        (waiting,) = (await fetch(client, "resources/queues", search=queue, minutes=3))["queues"]

        assert [idle["condition"], idle["inPerSecond"], idle["pushed"]] == ["idle", 0, []]
        assert waiting["condition"] == "waiting"
        assert [len(waiting[name]) for name in ("pushed", "popped")] == [3, 3]

    async def test_a_condition_selects_among_all_queues(self, client, queue):
        for number in range(4):
            await client.push_payloads(f"{queue}-{number}", 1)
        await client.configure(f"{queue}-idle")
        await client.post(f"/api/v1/queues/{queue}-3/pause", {})

        async def names(condition, **page):
            found = await fetch(
                client, "resources/queues",
                search=f"{queue}-", sort="name", condition=condition, **page,
            )  # fmt: skip
            assert {each["condition"] for each in found["queues"]} == {condition}
            return [each["name"][-1] for each in found["queues"]], found["total"]

        assert await names("waiting", limit=2) == (["0", "1"], 3)
        assert await names("waiting", limit=2, offset=2) == (["2"], 3)
        assert await names("paused") == (["3"], 1)
        assert await names("idle") == (["e"], 1)

    async def test_the_newest_comes_first_and_names_or_age_on_request(self, client, queue):
        names = [f"{queue}-order-{letter}" for letter in "bca"]
        for name in names:
            await client.configure(name)

        async def ordered(**parameters):
            found = await fetch(client, "resources/queues", search=f"{queue}-ORDER", **parameters)
            return [each["name"] for each in found["queues"]]

        assert await ordered() == names[::-1]
        assert await ordered(sort="oldest") == names
        assert await ordered(sort="name") == sorted(names)

    async def test_pages_tell_the_total_also_beyond_the_end(self, client, queue):
        for number in range(3):
            await client.configure(f"{queue}-page-{number}")

        async def page(limit, offset):
            found = await fetch(
                client, "resources/queues",
                search=f"{queue}-page-", sort="name", limit=limit, offset=offset,
            )  # fmt: skip
            assert found["pagination"] == {"limit": limit, "offset": offset}
            return [each["name"][-1] for each in found["queues"]], found["total"]

        assert await page(2, 0) == (["0", "1"], 3)
        assert await page(2, 2) == (["2"], 3)
        assert await page(2, 4) == ([], 3)

    async def test_namespace_and_task_select_exactly(self, client, queue):
        await client.configure(f"{queue}-1", {"namespace": queue, "task": "bill"})
        await client.configure(f"{queue}-2", {"namespace": queue, "task": "pack"})
        await client.configure(f"{queue}-3", {"namespace": f"{queue}x", "task": "bill"})

        for path in ("resources/queues", "status/queues"):
            of_namespace = await fetch(client, path, namespace=queue)
            of_both = await fetch(client, path, namespace=queue, task="pack")

            assert of_namespace["total"] == 2
            assert [each["name"] for each in of_both["queues"]] == [f"{queue}-2"]

    async def test_defect_36_a_name_with_a_slash_and_a_percent_sign_is_found(self, client, queue):
        name = f"{queue}/50% of a"
        await client.push_payloads(name, 1)

        assert (await describe(client, name))["name"] == name

    async def test_defect_36_an_empty_listing_is_a_body_and_not_nothing(self, client, queue):
        found = await fetch(client, "resources/queues", search=f"{queue}-nothing")

        assert [found["queues"], found["total"]] == [[], 0]


class TestCounting:
    async def counts(self, client, queue):
        totals = (await describe(client, queue))["totals"]
        assert (await listed(client, queue))["messages"] == totals
        return [totals[name] for name in ("total", "pending", "processing", "completed")]

    async def test_leased_messages_are_processing_and_still_pending(self, client, queue):
        await client.push_payloads(queue, 1, 2, 3)
        await client.pop(queue, batch=2)

        assert await self.counts(client, queue) == [3, 3, 2, 0]

    async def test_acknowledged_messages_are_completed(self, client, queue):
        await client.push_payloads(queue, 1, 2, 3)
        await client.pop(queue, batch=2, autoAck=True)

        assert await self.counts(client, queue) == [3, 1, 0, 2]

    async def test_where_only_named_groups_consume_the_slowest_decides(self, client, queue):
        await client.push_payloads(queue, 1, 2, 3)
        await client.pop(queue, batch=3, autoAck=True, consumerGroup="fast")
        await client.pop(queue, batch=1, autoAck=True, consumerGroup="slow")

        assert await self.counts(client, queue) == [3, 2, 0, 1]

    async def test_the_slowest_group_decides_beside_queue_mode(self, client, queue):
        await client.push_payloads(queue, 1, 2, 3)
        await client.pop(queue, batch=2, autoAck=True)
        await client.pop(queue, batch=1, autoAck=True, consumerGroup="slow")

        assert await self.counts(client, queue) == [3, 2, 0, 1]

    async def test_defect_39_more_groups_do_not_multiply_the_counts(self, client, queue):
        await client.push_payloads(queue, 1, 2)
        for group in ("a", "b", "c"):
            await client.pop(queue, batch=2, consumerGroup=group)

        status = await fetch(client, f"status/queues/{queue}")

        assert await self.counts(client, queue) == [2, 2, 2, 0]
        assert status["totals"]["total"] == status["totals"]["messages"]["total"] == 2

    async def test_failed_messages_and_dead_letters_are_counted(self, client, queue):
        await client.configure(queue, retryLimit=1, retryDelay=0)
        await client.push_payloads(queue, 1, 2)
        (message,) = await client.pop(queue)
        await client.ack(message, "failed")
        retrying = (await describe(client, queue))["totals"]
        (message,) = await client.pop(queue)
        await client.ack(message, "failed")

        buried = (await describe(client, queue))["totals"]

        assert [retrying["failed"], retrying["deadLetter"]] == [1, 0]
        assert [buried["failed"], buried["deadLetter"], buried["pending"]] == [0, 1, 1]


class TestDescribingAQueue:
    async def test_everything_is_told(self, client, queue):
        configured = await client.configure(queue, leaseTime=77)
        await client.push_payloads(queue, 1)
        await client.pop(queue, consumerGroup="bees", subscriptionMode="new")

        found = await describe(client, queue)

        assert found["options"]["leaseTime"] == 77
        assert found["options"].keys() == configured["options"].keys()
        assert [(each["name"], each["subscriptionMode"]) for each in found["groups"]] == [
            ("__QUEUE_MODE__", "all"),
            ("bees", "new"),
        ]
        (partition,) = found["partitions"]
        assert partition["id"] == configured["partitionId"]
        assert [partition["name"], partition["head"], partition["tail"]] == ["Default", 1, 1]
        assert partition["stats"]["total"] == 1
        assert partition["oldestMessage"] == partition["newestMessage"] is not None

    async def test_defect_38_the_whole_configuration_can_be_read(self, client, queue):
        configured = await client.configure(
            queue, {"namespace": "n", "task": "t"}, windowBuffer=5, retentionSeconds=9
        )

        assert await fetch(client, f"queues/{queue}/config") == configured

    async def test_partitions_come_in_pages_by_name(self, client, queue):
        for name in "cab":
            await client.push_payloads(queue, 1, partition=name)

        found = await describe(client, queue, partitionLimit=2, partitionOffset=1)

        assert [each["name"] for each in found["partitions"]] == ["b", "c"]
        assert found["partitionsTotal"] == 3

    async def test_defect_40_times_are_utc(self, client, queue):
        before = datetime.now(UTC)
        await client.push_payloads(queue, 1)

        (partition,) = (await describe(client, queue))["partitions"]

        assert partition["lastActivity"].endswith("Z")
        assert abs((datetime.fromisoformat(partition["lastActivity"]) - before).seconds) < 60

    @pytest.mark.parametrize(
        "path",
        [
            "resources/queues/{}",
            "status/queues/{}",
            "status/queues/{}/messages",
            "queues/{}/config",
            "resources/partitions?queue={}",
        ],
    )
    async def test_defect_36_what_does_not_exist_is_a_404(self, client, queue, path):
        assert await refusal(client, "GET", path.format(queue)) == (404, "Queue not found")


class TestListingPartitions:
    async def test_a_queue_is_paged_by_name_from_partition_to_partition(self, client, queue):
        for name in "ecdab":
            await client.push_payloads(queue, 1, partition=name)
        seen, after = [], {}
        while True:
            page = await fetch(client, "resources/partitions", queue=queue, limit=2, **after)
            seen.append([each["name"] for each in page["partitions"]])
            assert page["total"] == 5
            if page["nextAfter"] is None:
                break
            after = {"after": page["nextAfter"]}

        assert seen == [["a", "b"], ["c", "d"], ["e"]]

    async def test_a_search_finds_part_of_a_name_in_any_queue(self, client, queue):
        await client.push_payloads(f"{queue}-1", 1, partition=f"Tenant-{queue}.")
        await client.push_payloads(f"{queue}-2", 1, partition=f"x-tenant-{queue}.")

        page = await fetch(client, "resources/partitions", search=f"tenant-{queue}.")

        assert [each["queue"] for each in page["partitions"]] == [f"{queue}-1", f"{queue}-2"]
        assert page["total"] == 2

    async def test_a_partition_tells_what_it_holds(self, client, queue):
        await client.push_payloads(queue, 1, 2, 3, partition="a")
        await client.pop(queue, batch=1, autoAck=True)

        page = await fetch(client, "resources/partitions", queue=queue)

        (partition,) = page["partitions"]
        assert [partition["head"], partition["tail"], partition["stats"]["pending"]] == [3, 1, 2]

    async def test_a_page_behind_a_partition_that_was_removed_is_not_taken_for_the_last(
        self, client, broker, queue
    ):
        await client.push_payloads(queue, 1, partition="a")
        await client.push_payloads(queue, 2, partition="b")
        page = await fetch(client, "resources/partitions", queue=queue, limit=1)
        last = await fetch(client, "resources/partitions", queue=queue, after=page["nextAfter"])
        async with broker.sql() as sql:
            await sql.execute(
                "select skep.drop_partitions(array[p.id]) from skep.partition p"
                " join skep.queue q on q.id = p.queue_id where q.name = $1 and p.name = 'a'",
                queue,
            )

        path = f"resources/partitions?queue={queue}&after={page['nextAfter']}"
        assert [each["name"] for each in last["partitions"]] == ["b"]
        assert await refusal(client, "GET", path) == (
            404, "the partition given as after was removed: start without after",
        )  # fmt: skip

    async def test_after_must_be_a_partition(self, client, queue):
        status, error = await refusal(client, "GET", "resources/partitions?after=7")

        assert (status, error) == (400, "after must be the id of a partition, not '7'")


@pytest.mark.parametrize("kind", ["namespace", "task"])
async def test_labels_sum_up_their_queues(client, queue, kind):
    for number in (1, 2):
        await client.configure(f"{queue}-{number}", {kind: f"0-{queue}"})
        await client.push_payloads(f"{queue}-{number}", 1, 2)
    await client.pop(f"{queue}-1", autoAck=True)

    found = await fetch(client, f"resources/{kind}s", limit=1000)

    (label,) = [each for each in found[f"{kind}s"] if each[kind] == f"0-{queue}"]
    assert label == {
        kind: f"0-{queue}",
        "queues": 2,
        "partitions": 2,
        "messages": {"total": 4, "pending": 3},
        "estimated": False,
    }
    assert min(found["total"], 1000) == len(found[f"{kind}s"])


async def test_the_overview_sums_up_everything(client, queue):
    before = await fetch(client, "resources/overview")
    await client.push_payloads(queue, *range(600))
    await client.pop(queue, batch=100, autoAck=True)

    after = await fetch(client, "resources/overview")

    def grown(*path):
        old, new = before, after
        for name in path:
            old, new = old[name], new[name]
        return new - old

    assert [grown("queues"), grown("partitions")] == [1, 1]
    assert [grown("messages", "total"), grown("messages", "pending")] == [600, 500]
    assert grown("throughput", "ingestedPerSecond") == pytest.approx(2, abs=0.5)
    assert after["throughput"]["processedPerSecond"] is None
    assert after["lag"]["offset"]["max"] >= 500
    assert after["lag"]["time"]["max"] >= after["lag"]["time"]["min"] >= 0
    assert after["statsAge"] == 0
    assert after["timestamp"].endswith("Z")


async def test_there_is_nothing_to_refresh(client):
    report = await send(client, "POST", "stats/refresh")

    assert list(report) == ["partition", "queue", "namespace", "task", "system", "cleanup"]
    assert {step["status"] for step in report.values()} == {"done"}


class TestNewestMessages:
    async def test_they_come_newest_first_with_what_became_of_them(self, client, queue):
        await client.push(*items(queue, "t1", "t2", "t3", "t4"))
        await client.pop(queue, batch=1, autoAck=True)
        (message,) = await client.pop(queue)
        await client.ack(message, "dlq")
        await client.pop(queue)

        found = await fetch(client, f"status/queues/{queue}/messages")

        assert [(each["transactionId"], each["status"]) for each in found] == [
            ("t4", "pending"),
            ("t3", "processing"),
            ("t2", "dead_letter"),
            ("t1", "completed"),
        ]
        assert found[2]["id"] == message["id"]
        assert {each["queuePath"] for each in found} == {f"{queue}/Default"}

    async def test_defect_36_limit_and_offset_work(self, client, queue):
        await client.push(*items(queue, "t1", "t2"))
        await client.push(*items(queue, "t3", partition="b"))
        await client.push(*items(queue, "t4", "t5"))

        async def page(limit, offset):
            found = await fetch(
                client, f"status/queues/{queue}/messages", limit=limit, offset=offset
            )
            return [each["transactionId"] for each in found]

        assert await page(2, 0) == ["t5", "t4"]
        assert await page(3, 1) == ["t4", "t3", "t2"]
        assert await page(9, 4) == ["t1"]
        assert await page(9, 5) == []

    async def test_payloads_that_look_like_envelopes_confuse_nobody(self, client, queue):
        payload = {"transactionId": "forged", "data": {"x": ',"data":'}, "nul": "\0"}
        item = {"queue": queue, "transactionId": ',"data":"', "payload": payload}
        await client.push(item)

        (found,) = await fetch(client, f"status/queues/{queue}/messages")

        assert found["transactionId"] == ',"data":"'


class TestPausing:
    async def test_a_paused_queue_says_so_until_it_is_resumed(self, client, queue):
        await client.configure(queue)

        paused = await send(client, "POST", f"queues/{queue}/pause")
        shown = (await describe(client, queue))["isPaused"], (await listed(client, queue))
        resumed = await send(client, "POST", f"queues/{queue}/resume")

        assert paused == {"queue": queue, "isPaused": True, "success": True}
        assert [shown[0], shown[1]["isPaused"]] == [True, True]
        assert resumed["isPaused"] is False
        assert (await describe(client, queue))["isPaused"] is False

    @pytest.mark.parametrize("verb", ["pause", "resume"])
    async def test_what_does_not_exist_cannot_be_paused(self, client, queue, verb):
        path = f"queues/{queue}/{verb}"

        assert await refusal(client, "POST", path) == (404, "Queue not found")


class TestClearing:
    async def test_defect_37_a_queue_can_be_cleared(self, client, queue):
        await client.push_payloads(queue, 1, 2)
        await client.push_payloads(queue, 3, partition="b")

        cleared = await send(client, "DELETE", f"queues/{queue}/clear")

        assert cleared == {
            "cleared": True, "queue": queue, "partition": None, "partitions": 2, "messages": 3,
        }  # fmt: skip
        assert await client.pop(queue, partitions=9, batch=9) == []
        totals = (await describe(client, queue))["totals"]
        assert [totals["total"], totals["pending"]] == [0, 0]

    async def test_one_partition_can_be_cleared_alone(self, client, queue):
        await client.push_payloads(queue, 1, partition="a")
        await client.push_payloads(queue, 2, partition="ab")

        cleared = await send(client, "DELETE", f"queues/{queue}/clear?partition=a")

        assert [cleared["partitions"], cleared["messages"]] == [1, 1]
        assert payloads(await client.pop(queue, partitions=9, batch=9)) == [2]

    async def test_what_comes_later_is_delivered(self, client, queue):
        await client.push_payloads(queue, 1)
        await client.pop(queue)
        await send(client, "DELETE", f"queues/{queue}/clear")

        await client.push_payloads(queue, 2)

        assert payloads(await client.pop(queue)) == [2]

    async def test_what_a_hold_keeps_is_not_cleared(self, client, queue):
        hold = f"/api/v1/retention/holds/{queue}/spark"
        await client.push_payloads(queue, 1)
        assert (await client.call("PUT", hold, b'{"position": "1:1:"}')).status == 200

        refused = await refusal(client, "DELETE", f"queues/{queue}/clear")
        assert await refusal(client, "DELETE", f"resources/queues/{queue}") == refused
        await send(client, "DELETE", hold.removeprefix("/api/v1/"))

        assert refused == (
            409, "a hold keeps messages of the queue for a reader: release it first",
        )  # fmt: skip
        assert (await send(client, "DELETE", f"queues/{queue}/clear"))["messages"] == 1

    async def test_the_transaction_ids_of_what_was_cleared_may_be_used_again(self, client, queue):
        await client.push(*items(queue, "t1"))
        await send(client, "DELETE", f"queues/{queue}/clear")

        (again,) = await client.push(*items(queue, "t1"))
        (once_more,) = await client.push(*items(queue, "t1"))

        assert [again["status"], once_more["status"]] == ["queued", "duplicate"]
        assert payloads(await client.pop(queue, batch=9)) == ["t1"]

    async def test_what_does_not_exist_cannot_be_cleared(self, client, queue):
        path = f"queues/{queue}/clear"

        assert await refusal(client, "DELETE", path) == (404, "Queue not found")
        await client.configure(queue)
        found = await refusal(client, "DELETE", f"{path}?partition=x")
        assert found == (404, "Partition not found")


class TestDeleting:
    async def test_a_deleted_queue_is_gone_with_everything(self, broker, client, queue):
        await client.configure(queue, retryLimit=0)
        await client.push_payloads(queue, 1, 2)
        (message,) = await client.pop(queue, consumerGroup="bees")
        await client.ack(message, "dlq")

        deleted = await send(client, "DELETE", f"resources/queues/{queue}")

        assert deleted == {"queue": queue, "existed": True, "deleted": True}
        assert await listed(client, queue) is None
        assert await left_behind(broker, message["partitionId"]) == [0] * 5

    async def test_deleting_what_is_not_there_is_no_error(self, client, queue):
        deleted = await send(client, "DELETE", f"resources/queues/{queue}")

        assert deleted == {"queue": queue, "existed": False, "deleted": True}

    async def test_a_push_begins_the_queue_anew(self, client, queue):
        await client.configure(queue, leaseTime=7)
        (before,) = await client.push(*items(queue, "t1"))
        await send(client, "DELETE", f"resources/queues/{queue}")

        (after,) = await client.push(*items(queue, "t1"))

        assert after["status"] == "queued"
        assert after["partition_id"] != before["partition_id"]
        assert payloads(await client.pop(queue, batch=9)) == ["t1"]
        assert (await describe(client, queue))["options"]["leaseTime"] == 300

    async def test_defect_14_a_new_queue_inherits_no_subscription(self, client, queue):
        await client.push_payloads(queue, 1)
        await client.pop(queue, consumerGroup="bees", subscriptionMode="new")
        await send(client, "DELETE", f"resources/queues/{queue}")
        await client.push_payloads(queue, 2)

        assert payloads(await client.pop(queue, consumerGroup="bees")) == [2]

    async def test_a_poll_that_waits_gets_what_the_new_queue_brings(
        self, client, open_client, queue
    ):
        waiting = await open_client()
        await client.push_payloads(queue, 1)
        await client.pop(queue, autoAck=True)
        waiting.send_poll(queue, wait=True, timeout=20_000)
        # Polls of a group are served in turn: when this one is answered, the other is parked.
        assert await client.pop(queue) == []

        await send(client, "DELETE", f"resources/queues/{queue}")
        await client.push_payloads(queue, 2)

        async with asyncio.timeout(10):
            assert payloads(await waiting.popped()) == [2]

    async def test_pushes_and_polls_while_queues_are_deleted_are_all_answered(
        self, client, open_client, queue
    ):
        clients = [await open_client() for _ in range(4)]

        async def push_many(number, connection):
            for turn in range(30):
                partition = f"{number}-{turn % 5}"
                (stored,) = await connection.push_payloads(queue, turn, partition=partition)
                assert stored["status"] == "queued"

        async def poll_many(connection):
            for turn in range(30):
                await connection.pop(queue, consumerGroup=f"group-{turn % 5}")

        async def delete_many():
            for _ in range(15):
                await send(client, "DELETE", f"resources/queues/{queue}")

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number, connection in enumerate(clients):
                group.create_task(push_many(number, connection))
            group.create_task(poll_many(await open_client()))
            group.create_task(delete_many())

        await client.push_payloads(queue, "last", partition="last")
        assert payloads(await client.pop(queue, "last")) == ["last"]


async def left_behind(broker, partition_id):
    """Return how many rows of a partition are left in each table that may have some."""
    partition = int(partition_id[:8] + partition_id[9:13] + partition_id[15:18], 16)
    tables = ("segment", "cursor", "dead_letter", "deleted_message")
    async with broker.sql() as sql:
        counts = [
            await sql.fetchval(
                f"select count(*) from skep.{table} where partition_id = $1", partition
            )
            for table in tables
        ]
        return [*counts, await sql.fetchval("select count(*) from skep.removed_queue")]


@pytest.mark.parametrize(
    "path",
    [
        "resources/queues?limit=-1",
        "resources/queues?limit=1001",
        "resources/queues?offset=-1",
        "resources/queues?limit=many",
        "resources/queues?sort=colour",
        "resources/queues?condition=colour",
        "resources/queues?minutes=61",
        "resources/queues?search=%00",
        "resources/queues?namespace=%00",
        "resources/queues/a%00",
        "resources/queues/a?partitionLimit=-1",
        "resources/partitions?offset=-1",
        "resources/partitions?search=%00",
        "resources/namespaces?limit=-1",
        "resources/tasks?offset=-5",
        "status/queues?limit=-1",
        "status/queues/a/messages?offset=100001",
        f"resources/queues?offset={2**31}",
    ],
)
async def test_bad_parameters_are_a_400(client, path):
    answer = await client.call("GET", f"/api/v1/{path}")

    assert answer.status == 400
    assert json.loads(answer.body)["code"] == "bad_request"


OURS = ("/api/v1/resources/", "/api/v1/status/queues", "/api/v1/stats/", "/api/v1/queues/")


async def test_every_route_is_described_with_its_refusals(client):
    document = json.loads((await client.call("GET", "/openapi.json")).body)
    operations = {
        f"{method} {path}": operation
        for path, item in document["paths"].items()
        if path.startswith(OURS)
        for method, operation in item.items()
    }

    assert len(operations) >= 15
    for name, operation in operations.items():
        assert operation["summary"], name
        assert {"200", "500", "503"} <= operation["responses"].keys(), name
        assert ("{queue}" not in name) or "400" in operation["responses"], name
    described = operations["get /api/v1/resources/queues/{queue}"]["responses"]["404"]
    assert described["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorAnswer")
