"""Consumer groups over HTTP: listings, lag, seek, subscriptions, delete, pause."""

import json
from urllib.parse import quote

import pytest

from tests.support.broker import payloads

GROUPS = "/api/v1/consumer-groups"


def path_of(group, queue=None, tail=""):
    path = f"{GROUPS}/{quote(group, safe='')}"
    return path + (f"/queues/{quote(queue, safe='')}" if queue is not None else "") + tail


async def ask(client, method, path, members=None, *, status=200):
    body = b"" if members is None else json.dumps(members).encode()
    answer = await client.call(method, path, body)
    assert answer.status == status, answer
    return json.loads(answer.body)


async def entries(client, queue, *, query=""):
    found = await ask(client, "GET", f"{GROUPS}?queue={quote(queue)}{query}")
    return {entry["name"]: entry for entry in found}


async def consumed(client, queue, group="bees", **parameters):
    """Take everything there is for a group, acknowledged at once; return the payloads in order."""
    found = await client.pop(
        queue, consumerGroup=group, autoAck=True, batch=1000, partitions=100, **parameters
    )
    return sorted(payloads(found))


async def three_read(client, queue, *, partition="Default"):
    """Push five messages; the group `bees` has read three of them."""
    await client.push_payloads(queue, *range(1, 6), partition=partition)
    await client.pop(queue, partition, consumerGroup="bees", batch=3, autoAck=True)


async def age(broker, queue, seconds):
    """Let everything in a queue have happened so much earlier."""
    async with broker.sql() as sql:
        for table, column in (("segment", "created_at"), ("cursor", "available_at")):
            await sql.execute(
                f"""
                update skep.{table} t set {column} = t.{column} - make_interval(secs => $2)
                from skep.queue q where q.id = t.queue_id and q.name = $1
                """,
                queue,
                seconds,
            )


# Listing


async def test_a_group_is_listed_with_the_members_of_the_wire_and_ours(client, queue):
    await three_read(client, queue)

    entry = (await entries(client, queue))["bees"]

    times = ("subscriptionCreatedAt", "lastPolledAt", "lastProgressAt")
    assert {name: entry[name] for name in entry if name not in times} == {
        "name": "bees",
        "topics": [queue],
        "queueName": queue,
        "members": 1,
        "partitionCount": 1,
        "lanes": 1,
        "partitionsWithLag": 1,
        "totalLag": 2,
        "maxTimeLag": 0,
        "state": "Stable",
        "condition": "consuming",
        "subscriptionMode": "all",
        "subscriptionTimestamp": None,
        "isPaused": False,
        "conflation": False,
        "estimated": False,
    }
    assert all(entry[name].endswith("Z") for name in times)


async def test_defect_39_the_total_lag_is_a_number_for_each_group_by_itself(client, queue):
    await three_read(client, queue)
    await client.pop(queue, consumerGroup="ants")

    found = await entries(client, queue)

    lags = {name: entry["totalLag"] for name, entry in found.items()}
    assert lags == {"bees": 2, "ants": 5}


async def test_defect_39_a_group_that_never_consumed_is_not_dead_for_that(client, queue):
    await client.pop(queue, consumerGroup="bees")

    assert (await entries(client, queue))["bees"]["state"] == "Idle"


async def seen(broker, queue, **ages):
    """Let what is known of the group `bees` be so many seconds old."""
    async with broker.sql() as sql:
        await sql.execute(
            """
            insert into skep.group_activity
            select g.id, k.now - make_interval(secs => $2), k.now - interval '1 day',
                   k.now - make_interval(secs => $3), k.now - make_interval(secs => $4)
            from skep.consumer_group g join skep.queue q on q.id = g.queue_id
            cross join (select skep.now()) k(now)
            where q.name = $1 and g.name = 'bees'
            on conflict (group_id) do update
            set polled_at = excluded.polled_at, expected_from = excluded.expected_from,
                progressed_at = excluded.progressed_at, failed_at = excluded.failed_at
            """,
            queue,
            *(ages.get(name) for name in ("polled", "progressed", "failed")),
        )
        await sql.execute(
            """
            update skep.consumer_group g set first_polled_at = '2020-01-01'
            from skep.queue q
            where q.id = g.queue_id and q.name = $1 and g.first_polled_at is not null
            """,
            queue,
        )


async def condition_of(client, queue, group="bees"):
    listed = (await entries(client, queue))[group]["condition"]
    lag = await ask(client, "GET", path_of(group, queue, "/lag"))
    assert lag["condition"] == listed
    return listed


@pytest.mark.parametrize(
    ("ages", "condition"),
    [
        ({"polled": 1, "progressed": 1}, "lagging"),
        ({"polled": 1, "progressed": 1000}, "stalled"),
        ({"polled": 1, "progressed": 500, "failed": 1}, "stalled"),
        ({"polled": 1000, "progressed": 1000}, "no-consumers"),
    ],
    ids=str,
)
async def test_a_group_that_is_behind_has_a_condition(client, broker, queue, ages, condition):
    await client.pop(queue, consumerGroup="bees")
    await client.push_payloads(queue, 1)
    await age(broker, queue, 1000)
    await seen(broker, queue, **ages)

    assert await condition_of(client, queue) == condition


async def test_pausing_shows_and_resuming_starts_afresh(client, broker, queue):
    await client.pop(queue, consumerGroup="bees")
    await client.push_payloads(queue, 1)
    await age(broker, queue, 1000)
    await seen(broker, queue, polled=1, progressed=1000)
    for path in (path_of("bees", queue), f"/api/v1/queues/{quote(queue)}"):
        await ask(client, "POST", f"{path}/pause")
        assert await condition_of(client, queue) == "paused"
        await ask(client, "POST", f"{path}/resume")
        assert await condition_of(client, queue) == "lagging"


async def test_groups_in_need_come_first_and_can_be_found(client, broker, queue):
    for group in ("ants", "bees"):
        await client.pop(queue, consumerGroup=group)
    await client.push_payloads(queue, 1)
    await age(broker, queue, 1000)
    await seen(broker, queue, polled=1, progressed=1000)
    path = f"{GROUPS}?queue={quote(queue)}"

    worst = await ask(client, "GET", f"{path}&sort=worst&limit=1")
    found = await ask(client, "GET", f"{path}&condition=no-consumers")
    page = await client.call("GET", f"{path}&condition=stalled&limit=1&offset=1")

    assert [entry["name"] for entry in worst] == ["bees"]
    assert [entry["name"] for entry in found] == ["ants"]
    assert [page.body, page.headers["x-total-count"]] == [b"[]", "1"]


async def test_old_messages_that_nobody_asks_for_make_a_group_dead(client, broker, queue):
    await client.pop(queue, consumerGroup="bees")
    await client.push_payloads(queue, 1)
    await age(broker, queue, 1000)

    entry = (await entries(client, queue))["bees"]

    assert entry["state"] == "Dead"
    assert 1000 <= entry["maxTimeLag"] < 1060


async def test_old_messages_in_the_hands_of_a_consumer_make_a_group_lag(client, broker, queue):
    await client.push_payloads(queue, 1)
    await age(broker, queue, 1000)
    await client.pop(queue, consumerGroup="bees")

    assert (await entries(client, queue))["bees"]["state"] == "Lagging"


async def test_a_list_is_a_page_of_a_known_whole(client, queue):
    for group in ("ants", "bees", "cats"):
        await client.pop(queue, consumerGroup=group)

    answer = await client.call("GET", f"{GROUPS}?queue={queue}&limit=2&offset=1")

    assert [entry["name"] for entry in json.loads(answer.body)] == ["bees", "cats"]
    assert answer.headers["x-total-count"] == "3"


async def test_queue_mode_is_no_group_of_a_queue_that_only_named_groups_read(client, queue):
    await client.push_payloads(queue, 1)
    await client.pop(queue, consumerGroup="bees")
    lagging = f"{GROUPS}/lagging?minLagSeconds=0&queue={queue}"

    assert list(await entries(client, queue)) == ["bees"]
    assert [partition["consumer_group"] for partition in await ask(client, "GET", lagging)] == [
        "bees"
    ]
    await client.pop(queue)
    assert list(await entries(client, queue)) == ["__QUEUE_MODE__", "bees"]


async def test_a_list_of_nothing_is_an_empty_array(client, queue):
    assert await ask(client, "GET", f"{GROUPS}?queue={queue}") == []


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=1001", "offset=-1", "limit=many", "offset=99999999999999999999"],
)
@pytest.mark.parametrize("path", [GROUPS, f"{GROUPS}/lagging", f"{GROUPS}/bees"])
async def test_a_page_that_makes_no_sense_is_a_400(client, path, query):
    await ask(client, "GET", f"{path}?{query}", status=400)


# Lagging


async def lagging(client, queue, seconds=0, query=""):
    path = f"{GROUPS}/lagging?queue={queue}&consumerGroup=bees&minLagSeconds={seconds}{query}"
    return await ask(client, "GET", path)


async def test_lagging_partitions_come_worst_first_in_the_words_of_the_wire(client, broker, queue):
    await client.pop(queue, consumerGroup="bees")
    await client.push_payloads(queue, 1, 2, partition="old")
    await age(broker, queue, 7200)
    await client.push_payloads(queue, 3, partition="young")

    old, young = await lagging(client, queue)

    assert 7200 <= old.pop("time_lag_seconds") < 7260
    assert old.pop("oldest_unconsumed_at").endswith("Z")
    assert old.pop("partition_id")
    assert old == {
        "consumer_group": "bees",
        "queue_name": queue,
        "partition_name": "old",
        "worker_id": None,
        "offset_lag": 2,
        "lag_hours": 2.0,
        "last_consumed_at": None,
    }
    assert young["partition_name"] == "young"
    assert len(await lagging(client, queue, 3600)) == 1
    assert await lagging(client, queue, query="&offset=1") == [young]


async def test_a_lagging_partition_that_is_held_names_its_lease(client, queue):
    await client.push_payloads(queue, 1)
    (message,) = await client.pop(queue, consumerGroup="bees")

    (partition,) = await lagging(client, queue)

    assert partition["worker_id"] == message["leaseId"]


async def test_the_least_lag_must_be_a_number(client):
    await ask(client, "GET", f"{GROUPS}/lagging?minLagSeconds=-1", status=400)


async def test_a_group_named_lagging_can_be_read_with_an_escape(client, queue):
    await client.push_payloads(queue, 1)
    await client.pop(queue, consumerGroup="lagging", autoAck=True)

    found = await ask(client, "GET", f"{GROUPS}/%6Cagging?queue={queue}")

    assert found[queue]["partitions"][0]["totalConsumed"] == 1


# Detail and lag


async def test_the_detail_of_a_group_lists_partitions_by_queue(client, queue):
    await three_read(client, queue)
    (message,) = await client.pop(queue, consumerGroup="bees")

    found = await ask(client, "GET", path_of("bees") + f"?queue={queue}")

    assert found == {
        queue: {
            "partitions": [
                {
                    "partition": "Default",
                    "partitionId": message["partitionId"],
                    "workerId": message["leaseId"],
                    "lastConsumedAt": None,
                    "totalConsumed": 3,
                    "offsetLag": 2,
                    "timeLagSeconds": 0,
                    "leaseActive": True,
                }
            ]
        }
    }


async def test_the_detail_pages_over_all_queues(client, queue):
    group, second = f"group-{queue}", f"{queue}-second"
    for name in (queue, second):
        for partition in ("a", "b"):
            await client.push_payloads(name, 1, partition=partition)
        await client.pop(name, consumerGroup=group)

    found = await ask(client, "GET", path_of(group) + "?limit=2&offset=1")

    names = {
        name: [partition["partition"] for partition in progress["partitions"]]
        for name, progress in found.items()
    }
    assert names == {queue: ["b"], second: ["a"]}


async def test_names_may_hold_anything(client, queue):
    queue, group, partition = f"{queue}/ü", "b/ee?s", "p/1 %"
    await client.push_payloads(queue, 1, partition=partition)
    await client.pop(queue, partition, consumerGroup=group)

    found = await ask(client, "GET", path_of(group))
    sought = await ask(
        client, "POST", path_of(group, queue, f"/partitions/{quote(partition, safe='')}/seek")
    )

    assert found[queue]["partitions"][0]["partition"] == partition
    assert sought["partitionName"] == partition


async def test_the_lag_of_a_group_in_total_and_by_partition(client, queue):
    await three_read(client, queue, partition="a")
    await client.push_payloads(queue, 6, partition="b")
    (message,) = await client.pop(queue, "b", consumerGroup="bees")
    await client.configure(queue, retryDelay=60_000)
    await client.ack(message, "failed")

    found = await ask(client, "GET", path_of("bees", queue, "/lag"))
    partitions = {partition.pop("partition"): partition for partition in found.pop("partitions")}

    assert found == {
        "consumerGroup": "bees",
        "queueName": queue,
        "state": "Stable",
        "condition": "consuming",
        "partitionCount": 3,
        "lanes": 3,
        "partitionsWithLag": 2,
        "offsetLag": 3,
        "timeLagSeconds": 0,
        "conflation": False,
        "estimated": False,
        "limit": 100,
        "offset": 0,
    }
    assert partitions.keys() == {"Default", "a", "b"}
    assert partitions["b"].pop("partitionId") == message["partitionId"]
    assert partitions["b"] == {
        "offsetLag": 1,
        "timeLagSeconds": 0,
        "leased": False,
        "failing": 1,
        "head": 1,
        "tail": 1,
        "acked": 0,
    }
    assert [partitions["a"][name] for name in ("offsetLag", "head", "acked")] == [2, 5, 3]


async def test_the_partitions_of_a_lag_page(client, queue):
    for partition in "abc":
        await client.push_payloads(queue, 1, partition=partition)

    found = await ask(client, "GET", path_of("__QUEUE_MODE__", queue, "/lag?limit=1&offset=1"))

    assert [partition["partition"] for partition in found["partitions"]] == ["b"]
    assert (found["partitionCount"], found["offsetLag"]) == (3, 3)


# What does not exist

ROUTES = [
    ("GET", "/lag", None),
    ("POST", "/seek", {"toEnd": True}),
    ("GET", "/seek/preview?to=end", None),
    ("POST", "/partitions/Default/seek", None),
    ("GET", "/partitions/Default/seek/preview?to=end", None),
    ("POST", "/pause", None),
    ("POST", "/resume", None),
    ("GET", "/offsets", None),
]


@pytest.mark.parametrize(("method", "tail", "members"), ROUTES, ids=str)
async def test_unknown_queues_and_groups_are_told_apart(client, queue, method, tail, members):
    await client.configure(queue)

    no_queue = await ask(client, method, path_of("bees", f"no-{queue}", tail), members, status=404)
    no_group = await ask(client, method, path_of("wasps", queue, tail), members, status=404)

    assert no_queue["error"] == "Queue not found"
    assert no_group["error"] == "Consumer group not found"


@pytest.mark.parametrize(
    ("method", "tail", "members"),
    [
        ("GET", "", None),
        ("POST", "/subscription", {"subscriptionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
)
async def test_a_group_that_no_queue_has_is_a_404(client, method, tail, members):
    answer = await ask(client, method, path_of("nobody") + tail, members, status=404)

    assert answer == {"error": "Consumer group not found", "code": "not_found"}


async def test_deleting_a_group_that_is_gone_already_is_fine(client, queue):
    await client.configure(queue)

    nowhere = await ask(client, "DELETE", path_of("nobody"))
    not_here = await ask(client, "DELETE", path_of("nobody", queue))
    no_queue = await ask(client, "DELETE", path_of("nobody", f"no-{queue}"))

    assert [each["deletedPartitions"] for each in (nowhere, not_here, no_queue)] == [0, 0, 0]


@pytest.mark.parametrize(("method", "tail"), [("POST", "/seek"), ("GET", "/seek/preview?to=end")])
async def test_an_unknown_partition_is_a_404_and_is_not_created(client, queue, method, tail):
    await client.configure(queue)
    path = path_of("__QUEUE_MODE__", queue, f"/partitions/nowhere{tail}")

    assert (await ask(client, method, path, status=404))["error"] == "Partition not found"
    assert (await entries(client, queue))["__QUEUE_MODE__"]["partitionCount"] == 1


@pytest.mark.parametrize("name", ["g" * 256, "g\0"])
async def test_a_name_that_cannot_exist_is_a_400(client, queue, name):
    await ask(client, "GET", path_of(name), status=400)
    await ask(client, "POST", path_of(name, queue, "/seek"), {"toEnd": True}, status=400)


# Seek


async def test_a_seek_to_the_end_skips_what_is_there(client, queue):
    await three_read(client, queue)

    sought = await ask(client, "POST", path_of("bees", queue, "/seek"), {"toEnd": True})
    await client.push_payloads(queue, 6)

    assert sought == {
        "success": True,
        "consumerGroup": "bees",
        "queueName": queue,
        "seekToEnd": True,
        "seekToStart": False,
        "targetTimestamp": None,
        "partitionsUpdated": 1,
    }
    assert await consumed(client, queue) == [6]


async def test_a_seek_to_the_start_replays_every_partition(client, queue):
    await three_read(client, queue)
    await client.push_payloads(queue, 6, partition="other")

    sought = await ask(client, "POST", path_of("bees", queue, "/seek"), {"toStart": True})

    assert (sought["partitionsUpdated"], sought["seekToStart"]) == (2, True)
    assert await consumed(client, queue) == [1, 2, 3, 4, 5, 6]


async def test_a_seek_to_a_time_delivers_what_was_stored_since(client, broker, queue):
    await three_read(client, queue)
    await age(broker, queue, 3600)
    await client.push_payloads(queue, 6)
    message = (await client.pop(queue, "Default", consumerGroup="ants", batch=9))[-1]

    body = {"timestamp": message["createdAt"], "toEnd": False}
    sought = await ask(client, "POST", path_of("bees", queue, "/seek"), body)

    assert sought["targetTimestamp"] == message["createdAt"][:-4] + "Z"
    assert await consumed(client, queue) == [6]


async def test_a_seek_ends_leases_and_late_acks_change_nothing(client, queue):
    await client.push_payloads(queue, 1, 2)
    messages = await client.pop(queue, consumerGroup="bees", batch=2)

    await ask(client, "POST", path_of("bees", queue, "/seek"), {"toStart": True})
    result = await client.ack(messages[1])

    assert result["success"] is False
    assert await consumed(client, queue) == [1, 2]


async def test_a_seek_wakes_a_poll_that_waits(client, open_client, queue):
    await three_read(client, queue)
    assert await consumed(client, queue) == [4, 5]
    waiting = await open_client()
    waiting.send_poll(queue, consumerGroup="bees", batch=9, wait=True, timeout=20_000, autoAck=True)

    await ask(client, "POST", path_of("bees", queue, "/seek"), {"toStart": True})

    assert payloads(await waiting.popped()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({}, "Either toEnd, toStart or a timestamp is required"),
        ({"toEnd": False}, "Either toEnd"),
        ({"toEnd": True, "toStart": True}, "only one of"),
        ({"toEnd": True, "timestamp": "2026-01-01"}, "only one of"),
        ({"timestamp": "yesterday"}, "timestamp must be an ISO 8601 timestamp"),
        ({"timestamp": 5}, "Expected `str | null`"),
        ({"offset": 3}, "offset means something else in every partition: seek in one partition"),
        ({"toEnd": "yes"}, "Expected `bool`"),
        ([], "Expected `object`"),
    ],
    ids=str,
)
async def test_a_seek_that_goes_nowhere_is_a_400(client, queue, members, error):
    await client.configure(queue)
    path = path_of("__QUEUE_MODE__", queue, "/seek")

    answer = await ask(client, "POST", path, members, status=400)

    assert answer["error"].startswith(error)


async def test_a_seek_without_a_body_is_a_400_for_a_whole_queue(client, queue):
    await client.configure(queue)

    await ask(client, "POST", path_of("__QUEUE_MODE__", queue, "/seek"), status=400)


@pytest.mark.parametrize(
    ("members", "mode", "expected"),
    [
        ({"toEnd": True}, "new", []),
        ({"toStart": True}, "all", [1]),
        ({"timestamp": "2020-01-01T00:00:00Z"}, "timestamp", [1]),
    ],
    ids=str,
)
async def test_a_seek_can_subscribe_a_group(client, queue, members, mode, expected):
    await client.push_payloads(queue, 1)

    await ask(client, "POST", path_of("bees", queue, "/seek"), {**members, "create": True})

    assert (await entries(client, queue))["bees"]["subscriptionMode"] == mode
    assert await consumed(client, queue) == expected


async def test_a_seek_that_may_create_a_group_creates_no_queue(client, queue):
    body = {"toEnd": True, "create": True}

    await ask(client, "POST", path_of("bees", queue, "/seek"), body, status=404)

    assert await entries(client, queue) == {}


# One partition


def partition_path(queue, tail, group="bees"):
    return path_of(group, queue, f"/partitions/Default{tail}")


async def test_a_partition_goes_to_its_end_without_a_body(client, queue):
    await three_read(client, queue)

    sought = await ask(client, "POST", partition_path(queue, "/seek"))
    again = await ask(client, "POST", partition_path(queue, "/seek"), {})

    moved_to = sought.pop("cursorMovedTo")
    assert sought == {
        "success": True,
        "consumerGroup": "bees",
        "queueName": queue,
        "partitionName": "Default",
        "updated": True,
        "acked": 5,
    }
    assert again["updated"] is False
    last = (await client.pop(queue, "Default", consumerGroup="ants", batch=9))[-1]
    assert moved_to == last["id"]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"toEnd": True}, []),
        ({"toStart": True}, [1, 2, 3, 4, 5]),
        ({"timestamp": "2020-01-01T00:00:00+02:00"}, [1, 2, 3, 4, 5]),
        ({"offset": 2}, [2, 3, 4, 5]),
        ({"offset": 99}, []),
    ],
    ids=str,
)
async def test_a_partition_goes_where_it_is_told(client, queue, members, expected):
    await three_read(client, queue)

    await ask(client, "POST", partition_path(queue, "/seek"), members)

    assert await consumed(client, queue) == expected


@pytest.mark.parametrize("members", [{"offset": -1}, {"offset": 2**63}, {"toEnd": 1}, "x"], ids=str)
async def test_a_partition_cannot_go_to_what_is_no_place(client, queue, members):
    await three_read(client, queue)

    await ask(client, "POST", partition_path(queue, "/seek"), members, status=400)


async def test_a_partition_seek_leaves_other_partitions_alone(client, queue):
    await three_read(client, queue)
    await client.push_payloads(queue, 6, partition="other")

    await ask(client, "POST", partition_path(queue, "/seek"))

    assert await consumed(client, queue) == [6]


# Preview


@pytest.mark.parametrize(
    ("query", "skipped", "replayed"),
    [
        ("to=end", 2, 0),
        ("to=start", 0, 3),
        ("timestamp=2020-01-01", 0, 3),
        ("timestamp=2120-01-01T00:00:00Z", 2, 0),
    ],
)
async def test_a_preview_counts_and_changes_nothing(client, queue, query, skipped, replayed):
    await three_read(client, queue)

    whole = await ask(client, "GET", path_of("bees", queue, f"/seek/preview?{query}"))
    single = await ask(client, "GET", partition_path(queue, f"/seek/preview?{query}"))

    expected = {
        "consumerGroup": "bees",
        "queueName": queue,
        "partitionName": None,
        "partitions": 1,
        "skipped": skipped,
        "replayed": replayed,
        "estimated": False,
    }
    assert whole == expected
    assert single == {**expected, "partitionName": "Default"}
    assert await consumed(client, queue) == [4, 5]


async def test_a_preview_of_one_partition_takes_an_offset(client, queue):
    await three_read(client, queue)

    found = await ask(client, "GET", partition_path(queue, "/seek/preview?offset=5"))

    assert (found["skipped"], found["replayed"]) == (1, 0)


@pytest.mark.parametrize("query", ["", "to=nowhere", "to=end&timestamp=2020-01-01", "timestamp=x"])
async def test_a_preview_of_nothing_is_a_400(client, queue, query):
    await three_read(client, queue)

    await ask(client, "GET", path_of("bees", queue, f"/seek/preview?{query}"), status=400)
    await ask(client, "GET", partition_path(queue, f"/seek/preview?{query}"), status=400)


# Positions


async def test_positions_can_be_kept_and_set_again(client, queue):
    await three_read(client, queue, partition="a")
    await client.push_payloads(queue, 6, partition="b")
    path = path_of("bees", queue, "/offsets")
    kept = await ask(client, "GET", path)
    assert await consumed(client, queue) == [4, 5, 6]

    restored = await ask(client, "PUT", path, {"offsets": kept["offsets"]})

    assert kept == {
        "consumerGroup": "bees",
        "queueName": queue,
        "limit": 1000,
        "offset": 0,
        "offsets": {"a": 3, "b": 0},
    }
    assert (restored["partitionsUpdated"], restored["unknownPartitions"]) == (2, [])
    assert await consumed(client, queue) == [4, 5, 6]


async def test_positions_page_by_partition_name(client, queue):
    for partition in "cab":
        await client.push_payloads(queue, 1, partition=partition)

    path = path_of("__QUEUE_MODE__", queue, "/offsets?limit=1&offset=1")

    assert (await ask(client, "GET", path))["offsets"] == {"b": 0}


async def test_positions_subscribe_a_group_that_does_not_exist(client, queue):
    await client.push_payloads(queue, 1, 2)

    body = {"offsets": {"Default": 1, "nowhere": 5}}
    answer = await ask(client, "PUT", path_of("bees", queue, "/offsets"), body)

    assert answer["unknownPartitions"] == ["nowhere"]
    assert await consumed(client, queue) == [2]


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"offsets": []},
        {"offsets": {"Default": -1}},
        {"offsets": {"Default": "3"}},
        {"offsets": {"Default": 2**63}},
        {"offsets": {"p" * 256: 1}},
        {"offsets": dict.fromkeys(map(str, range(10_001)), 0)},
    ],
    ids=lambda members: str(members)[:40],
)
async def test_positions_that_cannot_be_set_are_a_400(client, queue, members):
    await client.configure(queue)

    await ask(client, "PUT", path_of("bees", queue, "/offsets"), members, status=400)

    assert "bees" not in await entries(client, queue)


async def test_positions_of_a_queue_that_does_not_exist_are_a_404(client, queue):
    body = {"offsets": {"Default": 1}}

    await ask(client, "PUT", path_of("bees", queue, "/offsets"), body, status=404)


# Delete and subscription


async def test_a_deleted_group_starts_over_as_its_next_poll_asks(client, queue):
    await three_read(client, queue)

    deleted = await ask(client, "DELETE", path_of("bees", queue))

    assert deleted == {
        "success": True,
        "consumerGroup": "bees",
        "queueName": queue,
        "deletedPartitions": 1,
        "metadataDeleted": True,
    }
    assert "bees" not in await entries(client, queue)
    assert await consumed(client, queue, subscriptionMode="new") == []


async def test_a_group_is_deleted_from_all_its_queues(client, queue):
    group = f"group-{queue}"
    for name in (queue, f"{queue}-second"):
        await client.push_payloads(name, 1)
        await client.pop(name, consumerGroup=group)

    deleted = await ask(client, "DELETE", path_of(group) + "?deleteMetadata=true")

    assert deleted == {
        "success": True,
        "consumerGroup": group,
        "deletedPartitions": 2,
        "metadataDeleted": True,
    }
    await ask(client, "GET", path_of(group), status=404)


@pytest.fixture
def broker_of_new_messages(start_broker):
    """A broker whose groups start at the present unless they say otherwise."""
    with start_broker("--workers", "1", default_subscription_mode="new") as broker:
        yield broker


async def test_defect_14_history_is_reachable_after_a_delete(broker_of_new_messages, queue):
    async with broker_of_new_messages.connect() as client:
        await client.push_payloads(queue, 1, 2)
        assert await consumed(client, queue, subscriptionMode="all") == [1, 2]

        await ask(client, "DELETE", path_of("bees", queue) + "?deleteMetadata=false")
        assert await consumed(client, queue) == [1, 2]
        await ask(client, "DELETE", path_of("bees", queue))
        assert await consumed(client, queue, subscriptionMode="all") == [1, 2]


async def test_a_kept_subscription_stays_listed_and_starts_by_its_rule(client, queue):
    await client.push_payloads(queue, 1)
    await client.pop(queue, consumerGroup="bees", subscriptionMode="new")
    await client.push_payloads(queue, 2)
    assert await consumed(client, queue) == [2]

    deleted = await ask(client, "DELETE", path_of("bees", queue) + "?deleteMetadata=false")

    assert (deleted["deletedPartitions"], deleted["metadataDeleted"]) == (1, False)
    assert (await entries(client, queue))["bees"]["subscriptionMode"] == "new"
    assert await consumed(client, queue) == [2]


async def test_dead_letters_of_a_deleted_group_go_with_it(client, broker, queue):
    await client.push_payloads(queue, 1)
    (message,) = await client.pop(queue, consumerGroup="bees")
    await client.ack(message, "dlq")

    await ask(client, "DELETE", path_of("bees", queue))

    async with broker.sql() as sql:
        left = "select count(*) from skep.dead_letter where transaction_id = $1"
        assert await sql.fetchval(left, message["transactionId"]) == 0


async def test_a_poll_that_waits_subscribes_anew_when_its_group_is_deleted(
    client, open_client, queue
):
    await client.push_payloads(queue, 1)
    assert await consumed(client, queue) == [1]
    waiting = await open_client()
    waiting.send_poll(queue, consumerGroup="bees", wait=True, timeout=20_000)

    await ask(client, "DELETE", path_of("bees", queue))

    assert payloads(await waiting.popped()) == [1]


async def test_a_changed_subscription_decides_where_a_forgotten_group_starts(client, queue):
    group = f"group-{queue}"
    await client.push_payloads(queue, 1)
    await consumed(client, queue, group, subscriptionMode="new")

    body = {"subscriptionTimestamp": "2020-01-01T02:00:00+02:00"}
    changed = await ask(client, "POST", path_of(group) + "/subscription", body)
    assert await consumed(client, queue, group) == []
    await ask(client, "DELETE", path_of(group, queue) + "?deleteMetadata=false")

    assert changed == {
        "success": True,
        "consumerGroup": group,
        "newTimestamp": "2020-01-01T00:00:00.000Z",
        "rowsUpdated": 1,
    }
    assert await consumed(client, queue, group) == [1]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "the request body is empty"),
        (b"{}", "subscriptionTimestamp is required"),
        (b'{"subscriptionTimestamp":null}', "subscriptionTimestamp is required"),
        (b'{"subscriptionTimestamp":"soon"}', "subscriptionTimestamp must be an ISO 8601"),
        (b'{"subscriptionTimestamp":"\xff"}', "the body is not valid UTF-8"),
        (b"{", "the body is not valid JSON"),
    ],
)
async def test_a_subscription_needs_a_time(client, body, error):
    answer = await client.call("POST", path_of("bees") + "/subscription", body)

    assert answer.status == 400
    assert json.loads(answer.body)["error"].startswith(error)


# Pause


async def test_a_group_is_paused_and_resumed(client, queue):
    await client.pop(queue, consumerGroup="bees")

    paused = await ask(client, "POST", path_of("bees", queue, "/pause"))
    entry = (await entries(client, queue))["bees"]
    resumed = await ask(client, "POST", path_of("bees", queue, "/resume"))

    assert paused == {
        "success": True,
        "consumerGroup": "bees",
        "queueName": queue,
        "isPaused": True,
    }
    assert (entry["state"], entry["isPaused"]) == ("Paused", True)
    assert resumed["isPaused"] is False
    assert (await entries(client, queue))["bees"]["state"] == "Idle"


# Document


async def test_every_route_is_documented_with_its_body(client):
    paths = (await ask(client, "GET", "/openapi.json"))["paths"]
    ours = {path: item for path, item in paths.items() if path.startswith(GROUPS)}
    operations = {each["operationId"]: each for item in ours.values() for each in item.values()}

    bodies = {name for name, each in operations.items() if "requestBody" in each}

    assert len(operations) == 15
    assert bodies == {"changeSubscription", "seekQueue", "seekPartition", "importPositions"}


async def test_the_body_of_a_seek_is_described_field_by_field(client):
    paths = (await ask(client, "GET", "/openapi.json"))["paths"]
    operation = paths[f"{GROUPS}/{{group}}/queues/{{queue}}/seek"]["post"]

    schema = operation["requestBody"]["content"]["application/json"]["schema"]

    assert operation["requestBody"]["required"] is True
    assert schema["properties"].keys() == {"toEnd", "toStart", "timestamp", "offset", "create"}
    assert schema["properties"]["toEnd"]["type"] == "boolean"
