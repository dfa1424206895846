"""The marks of stored messages: what expired is left out, what is sealed is opened."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.pop.batches import PLAIN_INITIAL, EnvelopeReader, expiry_of, leave_sealed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLAIN = b'{"transactionId":"t","traceId":null,"producerSub":null,"data":{"n":1}}'
MICROSECOND = timedelta(microseconds=1)


def expiring(moment):
    return b'{"expiresAt":"%b",' % moment.isoformat().encode() + PLAIN[1:]


def sealed(envelope):
    return b'{"enc":"key-1",' + envelope[1:]


def reader(now=NOON, open_envelope=leave_sealed):
    return EnvelopeReader(open_envelope, clock=lambda: now)


def test_an_envelope_without_marks_is_delivered_as_it_is():
    assert PLAIN[2] == PLAIN_INITIAL
    assert reader().read(PLAIN) == PLAIN


@pytest.mark.parametrize(
    "envelope", [b"null", expiring(NOON), sealed(PLAIN), sealed(expiring(NOON))]
)
def test_whatever_needs_a_closer_look_differs_in_its_third_byte(envelope):
    assert envelope[2] != PLAIN_INITIAL


def test_a_deleted_message_is_left_out_and_not_counted_as_expired():
    reading = reader()

    assert reading.read(b"null") is None
    assert reading.expired_count == 0


@pytest.mark.parametrize("wrap", [lambda envelope: envelope, sealed])
@pytest.mark.parametrize(
    ("after_expiry", "is_delivered"), [(-MICROSECOND, True), (0 * MICROSECOND, False)]
)
def test_a_message_is_delivered_until_it_expires(wrap, after_expiry, is_delivered):
    envelope = wrap(expiring(NOON))
    reading = reader(NOON + after_expiry)

    assert (reading.read(envelope) == envelope) is is_delivered
    assert reading.expired_count == (not is_delivered)


@pytest.mark.parametrize("text", ["2026-01-01T12:00:00Z", "2026-01-01T13:00:00.000+01:00"])
def test_times_are_understood_in_every_spelling_of_iso_8601(text):
    assert expiry_of(b'{"expiresAt":"%b","transactionId":"t"}' % text.encode()) == NOON


@given(data=st.binary())
def test_what_a_payload_holds_is_never_taken_for_a_mark(data):
    payload = b'{"expiresAt":"never","enc":"%b"}' % data
    envelope = b'{"transactionId":"t","data":%b}' % payload

    assert expiry_of(envelope) is None
    assert reader(open_envelope=lambda _: b"opened").read(envelope) == envelope


def test_a_sealed_envelope_is_opened():
    opened = []

    def open_envelope(envelope):
        opened.append(envelope)
        return PLAIN

    assert reader(open_envelope=open_envelope).read(sealed(PLAIN)) == PLAIN
    assert opened == [sealed(PLAIN)]


def test_a_sealed_envelope_that_expired_is_not_opened():
    def open_envelope(envelope):
        raise AssertionError(envelope)

    assert reader(NOON, open_envelope).read(sealed(expiring(NOON))) is None
