"""The pure cores of the client: pauses, brokers, buffers, verdicts, leases."""

import json
import os
from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.client.endpoints import ORDERS_MAX, Endpoints
from skep.client.errors import error_of
from skep.client.http import Answer
from skep.client.leases import Renewals
from skep.client.options import RetryPolicy
from skep.client.pushes import (
    PLACES,
    BufferLimits,
    Item,
    Outbox,
    TransactionIds,
    alike_body,
    by_field,
    spread,
)
from skep.client.values import PushResults
from skep.client.verdicts import (
    COMPLETED,
    RETRY,
    BatchProgress,
    DeadLetterMessage,
    RetryMessage,
    dead_letter,
    failed,
    verdict_of,
)
from skep.model.errors import BadRequest

chances = st.floats(0, 1)

# Retrying


@given(
    failures=st.integers(1, 10_000),
    asked=st.none() | st.floats(0, 1e6),
    chance=chances,
    longest=st.floats(0.01, 600),
)
def test_a_pause_is_within_its_limits_and_not_shorter_than_asked_for(
    failures, asked, chance, longest
):
    policy = RetryPolicy(max_retry_delay=longest)

    pause = policy.pause_s(failures, asked, chance)

    assert 0 < pause <= longest
    if asked is not None:
        assert pause >= min(asked, longest)


@given(failures=st.integers(1, 40), chance=chances)
def test_pauses_grow_and_differ_between_clients_by_no_more_than_half(failures, chance):
    policy = RetryPolicy()

    shortest, longest = (policy.pause_s(failures, None, edge) for edge in (0, 1))

    assert shortest <= policy.pause_s(failures, None, chance) <= longest
    assert shortest == pytest.approx(longest / 2)
    assert policy.pause_s(failures + 1, None, chance) >= policy.pause_s(failures, None, chance)


def test_a_policy_may_ignore_what_the_broker_asks_for():
    policy = RetryPolicy(honor_retry_after=False)

    assert policy.pause_s(1, 20.0, 1) == pytest.approx(0.1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 500, 501])
def test_refusals_and_defects_are_final(status):
    assert not RetryPolicy().is_repeated(status)


@pytest.mark.parametrize("status", [None, 502, 503, 504])
def test_a_broker_that_is_away_is_asked_again(status):
    assert RetryPolicy(retry_on_429=False).is_repeated(status)


def test_429_is_repeated_unless_it_is_not_wanted():
    assert RetryPolicy().is_repeated(429)
    assert not RetryPolicy(retry_on_429=False).is_repeated(429)


def test_tries_end_unless_there_is_no_limit():
    assert [RetryPolicy(retries=2).has_try_left(count) for count in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert RetryPolicy(retries=None).has_try_left(10**9)


# Choosing a broker

urls = st.lists(st.integers(1, 60_000), min_size=1, max_size=6, unique=True).map(
    lambda ports: [f"http://127.0.0.1:{port}" for port in ports]
)


@given(urls=urls, key=st.text(max_size=20), now=st.floats(0, 1e6))
def test_a_key_keeps_its_broker_while_that_is_well(urls, key, now):
    endpoints = Endpoints(urls)
    chosen = endpoints.choose(key, now)
    for other in endpoints.all:
        if other is not chosen:
            endpoints.report_failure(other, now)

    assert endpoints.choose(key, now) is chosen
    assert Endpoints(list(reversed(urls))).choose(key, now).address == chosen.address


@given(urls=urls, keys=st.lists(st.text(max_size=5), max_size=20), now=st.floats(0, 1e6))
def test_losing_a_broker_moves_its_own_keys_only_and_they_come_back(urls, keys, now):
    endpoints = Endpoints(urls, cool_off_s=5)
    before = {key: endpoints.choose(key, now) for key in keys}
    lost = endpoints.all[0]

    endpoints.report_failure(lost, now)
    meanwhile = {key: endpoints.choose(key, now) for key in keys}
    endpoints.report_success(lost)

    for key in keys:
        assert before[key] is lost or meanwhile[key] is before[key]
        assert meanwhile[key] is not lost or len(urls) == 1
        assert endpoints.choose(key, now) is before[key]


@given(urls=urls, now=st.floats(0, 1e6))
def test_every_broker_is_tried_before_one_is_tried_twice(urls, now):
    endpoints = Endpoints(urls)
    tried = []
    while endpoints.has_other(now, tried):
        tried.append(endpoints.choose("key", now, tried))

    assert sorted(map(id, tried)) == sorted(map(id, endpoints.all))


def test_when_all_are_shunned_the_one_whose_time_comes_first_is_asked():
    endpoints = Endpoints(["http://a", "http://b"], cool_off_s=5)
    first, second = endpoints.all
    endpoints.report_failure(second, 0)
    endpoints.report_failure(first, 1)

    assert endpoints.choose("key", 2) is second
    assert not endpoints.has_other(2, [])


def test_keys_are_spread_over_the_brokers_and_not_all_remembered():
    endpoints = Endpoints(["http://a", "http://b", "http://c"])
    counts = {}
    for number in range(3 * ORDERS_MAX):
        chosen = endpoints.choose(f"key {number}", 0)
        counts[chosen] = counts.get(chosen, 0) + 1

    assert min(counts.values()) > 0.8 * ORDERS_MAX


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://a:port"])
def test_what_is_no_url_of_a_broker_is_refused(url):
    with pytest.raises(BadRequest):
        Endpoints([url])


def test_a_url_may_leave_out_what_is_usual():
    addresses = [
        endpoint.address
        for endpoint in Endpoints(["localhost", "https://a", "http://[::1]:7/skep/"]).all
    ]

    assert [address.port for address in addresses] == [6632, 443, 7]
    assert [address.is_tls for address in addresses] == [False, True, False]
    assert addresses[2].prefix == "/skep"
    assert addresses[2].host_header == "[::1]:7"


# Buffering


@given(
    sizes=st.lists(st.integers(1, 50), max_size=60),
    count=st.integers(1, 10),
    bytes_=st.integers(1, 100),
)
def test_everything_leaves_once_in_order_and_within_the_limits(sizes, count, bytes_):
    limits = BufferLimits(count=count, bytes=bytes_, backlog_bytes=10_000)
    outbox = Outbox(limits)
    items = [bytes([number]) * size for number, size in enumerate(sizes)]
    left = []
    for item in items:
        outbox.add(item, 0.0)
        while outbox.due_in_s(0.0) == 0.0:
            left.append(outbox.take())
    while len(outbox):
        left.append(outbox.take())

    assert [item for request in left for item in request] == items
    for request in left:
        assert 1 <= len(request) <= count
        assert len(request) == 1 or sum(map(len, request)) <= bytes_
    assert outbox.due_in_s(0.0) is None
    assert outbox.has_room


def test_an_item_leaves_when_it_is_old_enough():
    outbox = Outbox(BufferLimits(age_s=1.0))
    outbox.add(b"x", 10.0)

    assert outbox.due_in_s(10.25) == 0.75
    assert outbox.due_in_s(12) == 0


def test_a_full_buffer_has_no_room_until_something_left():
    outbox = Outbox(BufferLimits(bytes=10, backlog_bytes=20))
    outbox.add(b"x" * 20, 0)

    assert not outbox.has_room
    outbox.take()
    assert outbox.has_room


@pytest.mark.parametrize(
    "limits", [{"count": 0}, {"count": 10_001}, {"bytes": 0}, {"age_s": -1}, {"backlog_bytes": 1}]
)
def test_limits_that_make_no_sense_are_refused(limits):
    with pytest.raises(BadRequest):
        BufferLimits(**limits)


# Settling

verdicts = st.sampled_from([COMPLETED, RETRY, failed("no"), dead_letter("never")])


@given(
    partitions=st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    script=st.lists(verdicts, min_size=12, max_size=12),
    explicit=st.sets(st.integers(0, 11)),
    handled=st.integers(0, 12),
)
def test_nothing_of_a_partition_is_handled_after_a_message_of_it_that_did_not_succeed(
    partitions, script, explicit, handled
):
    progress = BatchProgress(partitions)
    done, told = [], set()
    for place, partition in enumerate(partitions[:handled]):
        is_open = progress.is_open(place)
        has_failed = any(
            not script[other].is_success and partitions[other] == partition for other in done
        )
        assert is_open == (not has_failed)
        if not is_open:
            continue
        done.append(place)
        is_plain = script[place] is COMPLETED and place not in explicit
        if not (is_plain and progress.complete_next(place)):
            told |= set(progress.take_completed())
            assert progress.settle(place, script[place])
            told.add(place)
        assert progress.is_settled(place)
    told |= set(progress.take_completed())

    assert told == set(done)
    given_back = progress.places_to_give_back()
    for partition in set(partitions):
        members = [place for place, other in enumerate(partitions) if other == partition]
        is_stopped = any(place in done and not script[place].is_success for place in members)
        left = [place for place in members if place not in done]
        assert [place for place in given_back if partitions[place] == partition] == (
            [] if is_stopped else left[:1]
        )


def test_the_first_verdict_counts():
    progress = BatchProgress(["a", "a"])

    assert progress.settle(0, dead_letter("no"))
    assert not progress.settle(0, COMPLETED)
    assert not progress.complete_next(0)
    assert not progress.is_complete
    assert progress.settle(1, COMPLETED)
    assert progress.is_complete


def test_what_was_completed_in_line_stays_settled_when_something_else_is_said():
    progress = BatchProgress(["a", "a", "a"])
    assert progress.complete_next(0)

    assert not progress.settle(0, failed("late"))
    assert progress.settle(1, failed("no"))
    assert list(progress.take_completed()) == [0]
    assert not progress.is_open(2)


def test_the_rest_of_a_batch_is_completed_at_once_only_while_nothing_else_was_said():
    plain, other = BatchProgress(["a", "a", "b"]), BatchProgress(["a", "a", "b"])
    plain.complete_next(0)
    other.settle(0, failed("no"))

    assert plain.complete_rest()
    assert plain.is_complete
    assert list(plain.take_completed()) == [0, 1, 2]
    assert not other.complete_rest()
    assert other.open_places() == [2]


@pytest.mark.parametrize(
    ("returned", "raised", "status", "error"),
    [
        (None, None, "completed", None),
        ("anything", None, "completed", None),
        (RETRY, None, "retry", None),
        (failed("why"), None, "failed", "why"),
        (None, ValueError("bad"), "failed", "ValueError: bad"),
        (None, RetryMessage(), "retry", None),
        (None, DeadLetterMessage("poison"), "dlq", "poison"),
        (None, DeadLetterMessage(), "dlq", "given up by its handler"),
    ],
)
def test_what_a_handler_does_is_its_verdict(returned, raised, status, error):
    verdict = verdict_of(returned, raised)

    assert (verdict.status, verdict.error) == (status, error)


def test_an_error_text_has_a_limit():
    assert len(failed("x" * 10_000).error or "") == 2_000


# Renewing


@given(
    length=st.floats(1, 600),
    answers=st.lists(st.booleans(), max_size=40),
    delay=st.floats(0, 0.3),
)
def test_a_lease_is_renewed_before_it_ends_or_known_to_be_lost(length, answers, delay):
    renewals = Renewals()
    lease = renewals.keep("id", "", length_s=length, limit_s=inf, now_s=0.0)
    now, end = 0.0, length
    for is_answered in answers:
        now = max(renewals.due_at_s(), now)
        if not renewals.take_due(now):
            break
        assert now < end
        asked, now = now, now + delay * length / 15
        if is_answered:
            renewals.renewed(lease, asked)
            end = asked + length
        else:
            renewals.postponed(lease, now)

    assert lease.is_lost == (len(renewals) == 0)
    if lease.is_lost:
        assert now >= end


def test_one_renewal_may_fail_and_the_lease_is_kept():
    renewals = Renewals()
    lease = renewals.keep("id", "", length_s=30, limit_s=inf, now_s=0)

    renewals.postponed(renewals.take_due(10)[0], 10)
    (again,) = renewals.take_due(renewals.due_at_s())
    renewals.renewed(again, 12)

    assert not lease.is_lost
    assert lease.ends_at_s == 42


def test_a_lease_is_not_renewed_beyond_its_limit():
    renewals = Renewals()
    renewals.keep("id", "", length_s=30, limit_s=10, now_s=0)

    assert renewals.take_due(10) == []
    assert renewals.due_at_s() == inf


def test_what_the_broker_does_not_know_any_more_is_lost():
    renewals = Renewals()
    lease = renewals.keep("id", "", length_s=30, limit_s=inf, now_s=0)

    renewals.lose(lease)

    assert lease.is_lost
    assert len(renewals) == 0


# Items


def test_transaction_ids_are_never_made_twice():
    ids = TransactionIds()
    made = [*ids.take(2_500), *ids.take(1), *TransactionIds().take(10)]

    assert len(set(made)) == len(made) == 2_511


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(
    names=st.tuples(st.text(), st.none() | st.text()),
    headers=st.none() | st.just({"traceparent": 'a "b"'}),
    payloads=st.lists(JSON, min_size=1),
)
def test_payloads_of_one_partition_are_sent_as_items_are(names, headers, payloads):
    queue, partition = names
    model = Item(queue, partition=partition, headers=headers)

    items = json.loads(alike_body(model, payloads, TransactionIds()))["items"]

    assert [item.pop("payload") for item in items] == payloads
    ids = [item.pop("transactionId") for item in items]
    assert len(set(ids)) == len(ids)
    alike = {"queue": queue, "partition": partition, "headers": headers}
    assert items == [{name: value for name, value in alike.items() if value is not None}] * len(ids)


def test_more_payloads_than_ids_begin_alike_have_ids_of_their_own():
    raw = msgspec.Raw(b'{"lines":\n[1,\n2]}')

    items = json.loads(alike_body(Item("q"), [raw] * (2 * PLACES + 1), TransactionIds()))["items"]

    assert len({item["transactionId"] for item in items}) == 2 * PLACES + 1
    assert {json.dumps(item["payload"]) for item in items} == {'{"lines": [1, 2]}'}


def test_a_forked_process_makes_other_ids(monkeypatch):
    ids = TransactionIds()
    ours = ids.take(1)[0]

    monkeypatch.setattr(os, "getpid", lambda: -1)
    theirs = ids.take(1)[0]

    assert theirs[:20] != ours[:20]


def test_items_keep_the_ids_they_have():
    items = [Item("q", 1, transaction_id="mine"), Item("q", 2)]

    TransactionIds().complete(items)

    assert items[0].transaction_id == "mine"
    assert items[1].transaction_id


@given(key=st.text(), partitions=st.integers(1, 1_000))
def test_a_key_has_one_of_the_partitions_and_always_the_same(key, partitions):
    names = {spread(number, partitions) for number in range(50)}

    assert spread(key, partitions) == spread(key, partitions)
    assert len({len(name) for name in names}) == 1
    assert 0 <= int(spread(key, partitions)[1:]) < partitions


def test_keys_are_spread_the_same_in_every_version():
    assert [spread(key, 16) for key in ("a", "b", 7)] == ["p03", "p09", "p02"]


def test_partitions_follow_a_field_of_the_payload():
    class Order:
        customer = 7

    choose = by_field("customer")

    assert choose({"customer": "c"}) == "c"
    assert choose(Order()) == "7"
    with pytest.raises(BadRequest, match="customer"):
        choose({})


# Errors


@pytest.mark.parametrize(
    ("status", "code", "name"),
    [
        (400, "bad_request", "BadRequest"),
        (400, "invalid_payload", "InvalidPayload"),
        (404, "not_found", "NotFound"),
        (404, "gone", "NotFound"),
        (409, "refused", "Refused"),
        (413, "payload_too_large", "PayloadTooLarge"),
        (429, "queue_full", "QueueFull"),
        (429, "", "Overloaded"),
        (503, "overloaded", "Overloaded"),
        (503, "unavailable", "Unavailable"),
        (502, "", "Unavailable"),
        (500, "defect", "Defect"),
        (401, "", "AccessDenied"),
        (403, "", "AccessDenied"),
        (403, "forged_notice", "ForgedNotice"),
        (418, "", "UnexpectedAnswer"),
    ],
)
def test_a_refusal_is_the_error_its_code_says(status, code, name):
    body = b'{"error":"the text","code":"%b"}' % code.encode()

    error = error_of(Answer(status, b"", body))

    assert type(error).__name__ == name
    assert error.message == "the text"


def results_of(*statuses):
    fields = {"transaction_id": '","status":"queued","message_id"', "message_id": "m"}
    return [{**fields, "status": status} for status in statuses]


@pytest.mark.parametrize("count", [0, 3])
def test_results_are_counted_however_their_members_are_ordered(count):
    results = results_of("queued", "queued", "failed")

    counts = PushResults([msgspec.json.encode(results)], item_count=count).counts

    assert (counts.queued, counts.failed, counts.total) == (2, 1, 3)


def test_a_refusal_that_is_no_json_is_quoted():
    assert error_of(Answer(502, b"", b"<html>bad gateway")).message == "<html>bad gateway"
