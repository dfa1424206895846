"""Pages of messages: however small the steps, every message is listed once."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.broker.messages.contents import Contents
from skep.broker.messages.listing import MessageFilter, MessageList
from skep.db.access.functions import Functions
from skep.db.access.slots import ONE_OFF, Slots
from skep.model.errors import BadRequest
from tests.sql.support.log import NOON, Poll, body_of, envelope

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SEGMENTS = [("a", "12"), ("b", "3"), ("a", "456"), ("c", "7"), ("b", "89"), ("a", "x")]


@pytest.fixture
def slots(arun, log, log_url):
    slots = Slots(log_url, size=1, server_settings=ONE_OFF, statement_timeout_s=20)
    arun(slots.open())
    yield slots
    arun(slots.close())


async def fill(log):
    """Push into three partitions, delete one message and complete some; return ids by state."""
    partitions = dict(zip("abc", await log.provision("hive", *"abc"), strict=True))
    group = await log.subscribe()
    for partition, names in SEGMENTS:
        await log.push(partitions[partition], *names)
        await log.advance()
    await log.value("select skep.delete_message($1, 4)", partitions["a"])
    await log.pop(group, Poll(batch=3, auto_ack=True))
    newest_first = [name for _, names in reversed(SEGMENTS) for name in reversed(names)]
    newest_first.remove("5")
    return newest_first, {"1", "2", "4"}


async def listed(pages, chosen, limit, skip):
    """Follow the cursors from page to page; return the names and the number of pages."""
    page = await pages.read_page(chosen, limit=limit, offset=skip, cursor=None)
    names, count = [message.transaction_id for message in page.messages], 1
    while page.next_cursor:
        assert len(page.messages) <= limit
        page = await pages.read_page(chosen, limit=limit, offset=skip, cursor=page.next_cursor)
        names += [message.transaction_id for message in page.messages]
        count += 1
    return names, count


def test_every_message_is_on_one_page_whatever_the_sizes(log, arun, slots):
    everything, completed = arun(fill(log))
    by_status = {
        None: everything,
        "completed": [name for name in everything if name in completed],
        "pending": [name for name in everything if name not in completed],
        "processing": [],
    }

    @settings(max_examples=60, deadline=None)
    @given(st.integers(1, 8), st.integers(1, 12), st.integers(0, 12), st.sampled_from([*by_status]))
    def check(segments, limit, skip, status):
        pages = MessageList(Functions(slots), hash_seed=1, segments_per_page=segments)
        chosen = MessageFilter(queue="hive", since=LONG_AGO, status=status)
        names, _ = arun(listed(pages, chosen, limit, skip))
        assert names == by_status[status][skip:]

    check()


async def test_a_page_that_found_nothing_in_its_share_of_work_says_how_to_go_on(log, slots):
    await fill(log)
    pages = MessageList(Functions(slots), hash_seed=1, segments_per_page=2)
    chosen = MessageFilter(queue="hive", since=LONG_AGO, status="dead_letter")

    names, count = await listed(pages, chosen, 10, 0)

    assert (names, count) == ([], 4), "six segments in steps of two, and a look beyond"


@pytest.mark.parametrize("status", [None, "pending"])
def test_messages_are_found_by_their_contents_whatever_the_sizes(log, arun, slots, status):
    async def fill_orders():
        [a, b] = await log.provision("hive", "a", "b")
        for n in range(0, 12, 3):
            envelopes = [envelope(f"m{m}", f'{{"n": {m % 4}}}') for m in range(n, n + 3)]
            names = tuple(f"m{m}" for m in range(n, n + 3))
            partition = (a, b)[n % 2]
            await log.push_bodies({partition: names}, {partition: body_of(envelopes)})

    arun(fill_orders())

    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 5), st.integers(1, 500), st.integers(1, 5), st.integers(0, 4))
    def check(segments, size, limit, skip):
        pages = MessageList(
            Functions(slots), hash_seed=1, segments_per_page=segments, bytes_per_page=size
        )
        contents = Contents.parse(None, "$.n = 1")
        chosen = MessageFilter(since=LONG_AGO, status=status, contents=contents)
        names, _ = arun(listed(pages, chosen, limit, skip))
        assert names == ["m9", "m5", "m1"][skip:]

    check()


async def test_a_search_that_stops_early_says_how_far_back_it_looked(log, slots):
    await fill(log)
    pages = MessageList(Functions(slots), hash_seed=1, segments_per_page=2)
    chosen = MessageFilter(since=LONG_AGO, contents=Contents.parse("tenant", None))

    page = await pages.read_page(chosen, limit=9, offset=0, cursor=None)

    assert page.messages == []
    assert page.searched_to == NOON + timedelta(seconds=4)


async def test_one_partition_is_listed_by_itself(log, slots):
    await fill(log)
    pages = MessageList(Functions(slots), hash_seed=1, segments_per_page=1)
    chosen = MessageFilter(queue="hive", partition="b", since=LONG_AGO)

    assert (await listed(pages, chosen, 1, 0))[0] == ["9", "8", "3"]


@pytest.mark.parametrize("cursor", ["?", "bm9uc2Vuc2U=", "WzFd", "e30="])
async def test_a_cursor_of_someone_else_is_refused(slots, cursor):
    pages = MessageList(Functions(slots), hash_seed=1)

    with pytest.raises(BadRequest):
        await pages.read_page(MessageFilter(), limit=1, offset=0, cursor=cursor)
