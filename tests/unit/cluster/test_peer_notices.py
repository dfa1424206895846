"""What instances tell each other: signed, bounded, and each notice taken once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.cluster.notices import (
    CHANGES_PER_DATAGRAM,
    DATAGRAM_BYTES_MAX,
    FRESH_MS,
    SENDERS_MAX,
    WAKES_PER_DATAGRAM,
    WINDOW,
    Change,
    Notice,
    NoticeSigner,
    ReplayGuard,
    Stamp,
    Verdict,
    pack_datagram,
    parse_stamp,
    read_datagram,
    spell_stamp,
    split_notices,
    unpack_datagram,
)

SENDER = b"instance" + b"process1"
STAMP = Stamp(SENDER, 1, 1_000_000)
NOTICE = Notice(wake=((7, 2),), changed=(Change("rules", 7),))
SIGNER = NoticeSigner("secret", channel=b"datagram")
UINT32 = st.integers(0, 2**32 - 1)


def stamp(number, sent_at_ms=1_000_000, sender=SENDER):
    return Stamp(sender, number, sent_at_ms)


# Datagrams


def test_a_datagram_arrives_as_it_was_sent():
    sealed = unpack_datagram(pack_datagram(STAMP, NOTICE, SIGNER))

    assert sealed.stamp == STAMP
    assert SIGNER.is_genuine(sealed)
    assert read_datagram(sealed.content) == NOTICE


@given(at=st.integers(0, 2000), bit=st.integers(0, 7))
def test_a_datagram_with_any_bit_changed_is_refused(at, bit):
    data = bytearray(pack_datagram(STAMP, NOTICE, SIGNER))
    data[at % len(data)] ^= 1 << bit

    sealed = unpack_datagram(bytes(data))

    assert sealed is None or not SIGNER.is_genuine(sealed)


@pytest.mark.parametrize(
    "other",
    [
        NoticeSigner("another secret", channel=b"datagram"),
        NoticeSigner("secret", channel=b"request"),
        NoticeSigner(None, channel=b"datagram"),
    ],
    ids=["another secret", "another channel", "no secret"],
)
def test_what_others_signed_is_not_genuine(other):
    assert not SIGNER.is_genuine(unpack_datagram(pack_datagram(STAMP, NOTICE, other)))


@given(st.binary(max_size=2 * DATAGRAM_BYTES_MAX))
def test_garbage_is_never_a_notice_and_never_an_exception(data):
    sealed = unpack_datagram(data)

    assert sealed is None or not SIGNER.is_genuine(sealed)


@given(st.binary(max_size=200))
def test_signed_content_that_is_no_notice_is_no_notice(content):
    notice = read_datagram(content)

    assert notice is None or isinstance(notice, Notice)


def test_another_version_is_not_read():
    data = pack_datagram(STAMP, NOTICE, SIGNER)

    assert unpack_datagram(b"\x02" + data[1:]) is None


@given(
    wake=st.lists(st.tuples(UINT32, st.integers(0, 2**40)), max_size=400),
    changed=st.lists(st.builds(Change, st.sampled_from(["rules", "x" * 32]), UINT32), max_size=50),
)
def test_whatever_is_told_is_told_whole_in_datagrams_that_fit(wake, changed):
    signer = NoticeSigner("secret", channel=b"datagram")
    notices = list(
        split_notices(wake, changed, wakes_max=WAKES_PER_DATAGRAM, changes_max=CHANGES_PER_DATAGRAM)
    )
    datagrams = [pack_datagram(STAMP, notice, signer) for notice in notices]

    told = [read_datagram(unpack_datagram(data).content) for data in datagrams if data]
    assert all(len(data) <= DATAGRAM_BYTES_MAX for data in datagrams)
    assert [pair for each in told for pair in each.wake] == [
        (queue_id, min(count, 2**32 - 1)) for queue_id, count in wake
    ]
    assert [change for each in told for change in each.changed] == changed


# Requests


def test_the_stamp_of_a_request_arrives_as_it_was_sent():
    content = b"{}"
    sealed = parse_stamp(spell_stamp(STAMP, SIGNER.mac(STAMP, content)), content)

    assert sealed.stamp == STAMP
    assert SIGNER.is_genuine(sealed)


@given(
    st.text(max_size=200) | st.from_regex(r"1\.[0-9a-f]{32}\.-?\d{1,25}\.\d{1,25}\.[0-9a-f]{64}")
)
def test_a_stamp_that_nobody_signed_is_refused(header):
    sealed = parse_stamp(header, b"{}")

    assert sealed is None or not SIGNER.is_genuine(sealed)


# Replays


def test_a_notice_is_taken_once():
    guard = ReplayGuard()

    assert guard.judge(stamp(5), 1_000_000) is Verdict.TAKEN
    assert guard.judge(stamp(5), 1_000_000) is Verdict.REPLAYED
    assert guard.judge(stamp(4), 1_000_000) is Verdict.TAKEN
    assert guard.judge(stamp(6), 1_000_000) is Verdict.TAKEN
    assert guard.judge(stamp(4), 1_000_000) is Verdict.REPLAYED


@pytest.mark.parametrize(("skew_ms", "verdict"), [(0, Verdict.TAKEN), (1, Verdict.STALE)])
@pytest.mark.parametrize("direction", [-1, 1], ids=["behind", "ahead"])
def test_a_notice_of_another_time_is_stale(skew_ms, verdict, direction):
    now_ms = 1_000_000 + direction * (FRESH_MS + skew_ms)

    assert ReplayGuard().judge(stamp(1), now_ms) is verdict


def test_senders_have_numbers_of_their_own():
    guard = ReplayGuard()

    assert guard.judge(stamp(1), 1_000_000) is Verdict.TAKEN
    assert guard.judge(stamp(1, sender=b"instance" + b"process2"), 1_000_000) is Verdict.TAKEN


def test_what_a_guard_remembers_is_bounded():
    guard = ReplayGuard()

    for number in range(3 * SENDERS_MAX):
        guard.judge(stamp(1, sender=number.to_bytes(16, "big")), 1_000_000)

    assert len(guard._seen) == SENDERS_MAX


@given(st.lists(st.integers(0, 3 * WINDOW), max_size=300))
def test_nothing_is_ever_taken_twice_and_what_is_within_the_window_always_once(numbers):
    guard, taken, highest = ReplayGuard(), set(), -1

    for number in numbers:
        verdict = guard.judge(stamp(number), 1_000_000)
        is_within = number > highest - WINDOW
        assert (verdict is Verdict.TAKEN) == (is_within and number not in taken)
        if verdict is Verdict.TAKEN:
            taken.add(number)
        highest = max(highest, number)
