"""Duplicates are found, without a search under a partition's lock, where the cache lacks keys."""

from datetime import UTC, datetime

import pytest

from tests.faults.support.in_process import item, running


@pytest.fixture(scope="module")
def database_url(postgres_server, migrated_template):
    url = postgres_server.create_database(migrated_template)
    yield url
    postgres_server.drop_database(url)


def statuses(results):
    return [result["status"] for result in results]


def calls_of(broker, function):
    return broker.broker.core.meters.calls[function].durations.count


def key_cache(broker):
    return broker.broker.push._cache


async def push_each(broker, queue, names):
    for name in names:
        await broker.push(item(queue, name))


async def test_after_a_restart_the_window_is_read_before_the_first_push(database_url):
    async with running(database_url) as before:
        await push_each(before, "restart", "abc")

    async with running(database_url) as broker:
        results = await broker.push(item("restart", "b"), item("restart", "x"))

        assert statuses(results) == ["duplicate", "queued"]
        assert calls_of(broker, "read_window") == 1
        assert calls_of(broker, "push_segments") == 0


async def test_what_the_cache_had_to_forget_is_searched_before_the_push(database_url):
    async with running(database_url) as broker:
        await push_each(broker, "forgotten", "abc")
        cache = key_cache(broker)
        cache._runs.horizon = datetime.now(UTC)
        cache._young.clear()

        results = await broker.push(*(item("forgotten", name) for name in "xby"))
        again = await broker.push(item("forgotten", "x"), item("forgotten", "a"))

        assert statuses(results) == ["queued", "duplicate", "queued"]
        assert statuses(again) == ["duplicate", "duplicate"]
        assert calls_of(broker, "search_windows") == 2
        assert calls_of(broker, "push_segments") == 0
        assert calls_of(broker, "read_window") == 0


async def test_much_that_others_stored_is_read_before_the_push(database_url):
    async with running(database_url) as broker, running(database_url) as other:
        await push_each(broker, "others", "a")
        for start in range(0, 70_000, 10_000):
            await other.push(*(item("others", f"{n}") for n in range(start, start + 10_000)))

        results = await broker.push(*(item("others", name) for name in ("a", "7", "69999", "x")))

        assert statuses(results) == ["duplicate", "duplicate", "duplicate", "queued"]
        assert calls_of(broker, "push_segments") == 0
        assert calls_of(broker, "push_contested") > 0


async def test_a_key_that_another_process_stored_just_now_is_found(database_url):
    async with running(database_url) as broker, running(database_url) as other:
        await push_each(broker, "just now", "ab")
        await push_each(other, "just now", "cd")

        results = await broker.push(*(item("just now", name) for name in "xcy"))

        assert statuses(results) == ["queued", "duplicate", "queued"]


async def test_transactions_find_what_was_pushed_beside_them(database_url):
    async with running(database_url) as broker:
        await push_each(broker, "both", "a")
        push = {"type": "push", "items": [{"queue": "both", "partition": "a", "payload": 1}]}

        push["items"][0]["transactionId"] = "b"
        await broker.commit(push)
        results = await broker.push(item("both", "b"), item("both", "c"))
        push["items"][0]["transactionId"] = "c"
        answer = await broker.commit(push)

        assert statuses(results) == ["duplicate", "queued"]
        assert [each["status"] for each in answer["results"]] == ["duplicate"]


async def test_an_id_that_the_broker_made_is_stored_without_a_look_and_found_later(database_url):
    async with running(database_url) as broker:
        await broker.push(item("made", "named"))  # now the partition is known
        before = key_cache(broker).searched_count
        [first, second] = await broker.push(item("made"), item("made"))
        after = key_cache(broker).searched_count
        [again] = await broker.push(item("made", second["transaction_id"]))

        assert statuses([first, second, again]) == ["queued", "queued", "duplicate"]
        assert again["message_id"] == second["message_id"]
        assert after == before
