import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.model.envelopes import DATA_MARK, build_envelope, cut_envelope
from tests.sql.support.log import NOON

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
HEADERS = st.dictionaries(
    TEXT | st.just("data"),
    TEXT | st.integers(-(10**15), 10**15) | st.booleans() | st.none() | st.just(',"data":'),
)


async def spell(log, transaction_id, payload, trace_id=None, headers=None, expires_at=None):
    return await log.value(
        "select skep.spell_envelope($1, $2, $3, $4, $5)",
        transaction_id,
        payload,
        trace_id,
        headers,
        expires_at,
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=TEXT,
    payload=st.recursive(st.none() | TEXT, lambda inner: st.dictionaries(TEXT, inner)),
    trace_id=st.none() | st.uuids(),
    headers=st.none() | HEADERS,
    expires_at=st.none() | st.datetimes(datetime(2020, 1, 1), datetime(2050, 1, 1)),  # noqa: DTZ001
)
def test_brokers_read_the_same_as_from_their_own(
    log, arun, name, payload, trace_id, headers, expires_at
):
    data = json.dumps(payload)
    expires_at = expires_at and expires_at.replace(tzinfo=UTC)
    spelled = arun(spell(log, name, data, trace_id, json.dumps(headers or {}), expires_at)).encode()
    built = build_envelope(
        name,
        data.encode(),
        trace_id=trace_id and str(trace_id),
        headers=headers,
        expires_at=expires_at,
    )

    head, payload_bytes = cut_envelope(spelled)
    own_head, own_payload = cut_envelope(built)

    assert payload_bytes == own_payload == data.encode()
    assert json.loads(head + b"}") == json.loads(own_head + b"}")
    assert [name for name, _ in members(head)] == [name for name, _ in members(own_head)]


def members(head):
    return json.loads(head + b"}", object_pairs_hook=list)


async def test_a_plain_message_is_spelled_to_the_byte(log):
    spelled = await spell(
        log,
        'it\'s "x"',
        '{"b": 1}',
        UUID(int=7),
        '{"data": 1, "z": "ü"}',
        NOON + timedelta(microseconds=1999),
    )

    assert spelled.encode() == build_envelope(
        'it\'s "x"',
        b'{"b": 1}',
        trace_id=str(UUID(int=7)),
        headers={"z": "ü", "data": 1},
        expires_at=NOON + timedelta(microseconds=1999),
    )


async def test_empty_headers_are_none(log):
    assert DATA_MARK in (await spell(log, "x", "1", None, "{}")).encode()
    assert "headers" not in await spell(log, "x", "1", None, "{}")
