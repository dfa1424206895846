"""Encryption of payloads, and the keys it is done with."""

import json
import pickle
from base64 import b64decode, b64encode
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.encryption import (
    NONCE_BYTES,
    TAG_BYTES,
    CannotDecrypt,
    KeyRing,
    NoEncryptionKey,
    is_sealed,
)
from skep.model.encryption_key import EncryptionKey
from skep.model.errors import Defect
from skep.settings import InvalidSettings, Settings, load_settings
from skep.settings.keys import encryption_keys

SECRET, OTHER_SECRET = bytes(range(32)), bytes(range(32, 64))
KEY, OTHER = EncryptionKey("one", SECRET), EncryptionKey("two", OTHER_SECRET)
DIGITS, OTHER_DIGITS = SECRET.hex(), OTHER_SECRET.hex()
RING = KeyRing([KEY])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
json_texts = st.builds(
    lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only).encode(
        errors="replace"  # half of a surrogate pair, which no client can send unescaped
    ),
    json_values,
    st.booleans(),
)
odd_texts = st.sampled_from(
    ['{"enc":"one",', ',"data":', '"}', '","data":"', "\\", "é", '{"enc":"one","data":"AAAA"}']
)


def envelope(payload=b"{}", transaction_id="t", expires_at=None):
    """Build an envelope as a push does."""
    start = b'{"expiresAt":"%b",' % expires_at.encode() if expires_at else b"{"
    name = json.dumps(transaction_id).encode()
    members = b'"transactionId":%b,"traceId":null,"producerSub":null,"data":%b}'
    return start + members % (name, payload)


def data_of(sealed):
    """Return the bytes behind the base64 of a sealed envelope."""
    return b64decode(json.loads(sealed)["data"])


def with_data(sealed, data):
    head = sealed.partition(b',"data":')[0]
    return b'%b,"data":"%b"}' % (head, b64encode(data))


class TestSealing:
    @given(json_texts, st.text(), st.none() | st.just("2026-01-01T00:00:00Z"))
    def test_whatever_is_sealed_opens_byte_for_byte(self, payload, transaction_id, expires_at):
        plain = envelope(payload, transaction_id, expires_at)

        assert RING.open_envelope(RING.seal_envelope(plain)) == plain

    @given(json_values)
    def test_a_sealed_envelope_is_json_with_its_head_in_clear(self, payload):
        plain = envelope(json.dumps(payload).encode(), "t", "soon")

        members = json.loads(RING.seal_envelope(plain))

        assert list(members) == [
            "enc",
            "expiresAt",
            "transactionId",
            "traceId",
            "producerSub",
            "data",
        ]
        assert members["enc"] == "one"
        assert isinstance(members["data"], str)

    def test_the_payload_is_not_in_it(self):
        payload = b'{"card":"4111111111111111"}'

        sealed = RING.seal_envelope(envelope(payload))

        assert b"4111" not in sealed
        assert payload not in data_of(sealed)
        assert len(data_of(sealed)) == NONCE_BYTES + len(payload) + TAG_BYTES

    def test_the_same_payload_looks_different_every_time(self):
        sealed = {RING.seal_envelope(envelope(b"1")) for _ in range(100)}

        assert len(sealed) == 100

    def test_defect_33_what_is_sealed_is_not_sealed_again(self):
        sealed = RING.seal_envelope(envelope(b"1"))

        assert RING.seal_envelope(sealed) == sealed
        assert KeyRing([OTHER, KEY]).seal_envelope(sealed) == sealed

    def test_an_envelope_without_data_is_a_defect(self):
        with pytest.raises(Defect, match="no data"):
            RING.seal_envelope(b'{"transactionId":"t"}')


class TestFailingClosed:
    def test_defect_48_without_a_key_nothing_is_sealed(self):
        empty = KeyRing([])

        assert not empty.can_encrypt
        with pytest.raises(NoEncryptionKey, match="no encryption key"):
            empty.seal_envelope(envelope())

    def test_without_a_key_what_was_never_sealed_can_be_read(self):
        assert KeyRing([]).open_envelope(envelope(b"1")) == envelope(b"1")

    def test_a_missing_key_is_named(self):
        sealed = RING.seal_envelope(envelope())

        with pytest.raises(CannotDecrypt, match="key 'one', which this instance does not have"):
            KeyRing([OTHER]).open_envelope(sealed)

    def test_another_key_under_the_same_id_does_not_open_it(self):
        sealed = RING.seal_envelope(envelope())

        with pytest.raises(CannotDecrypt, match="does not open with key 'one'"):
            KeyRing([EncryptionKey("one", OTHER_SECRET)]).open_envelope(sealed)

    def test_the_key_id_is_bound_to_what_it_sealed(self):
        renamed = RING.seal_envelope(envelope()).replace(b'"one"', b'"two"', 1)

        with pytest.raises(CannotDecrypt):
            KeyRing([KEY, EncryptionKey("two", SECRET)]).open_envelope(renamed)

    @given(json_texts, st.integers(min_value=0), st.integers(1, 255))
    def test_a_byte_that_was_altered_anywhere_is_noticed(self, payload, place, change):
        sealed = RING.seal_envelope(envelope(payload))
        data = bytearray(data_of(sealed))
        data[place % len(data)] ^= change

        with pytest.raises(CannotDecrypt):
            RING.open_envelope(with_data(sealed, bytes(data)))

    @given(json_texts, st.integers(min_value=1))
    def test_bytes_that_are_missing_are_noticed(self, payload, count):
        sealed = RING.seal_envelope(envelope(payload))
        data = data_of(sealed)

        with pytest.raises(CannotDecrypt):
            RING.open_envelope(with_data(sealed, data[: -(count % len(data)) or -1]))

    @pytest.mark.parametrize("data", [b'""', b'"AAAA"', b'"!"', b"null", b"1", b'"\xc3\xa9"'])
    def test_data_that_is_no_ciphertext_is_damaged(self, data):
        broken = b'{"enc":"one","transactionId":"t","data":%b}' % data

        with pytest.raises(CannotDecrypt, match="damaged"):
            RING.open_envelope(broken)


class TestForging:
    @given(json_texts | odd_texts.map(lambda text: json.dumps(text).encode()), odd_texts)
    def test_defect_48_a_producer_cannot_make_a_message_look_sealed(self, payload, transaction_id):
        plain = envelope(payload, transaction_id)

        assert not is_sealed(plain)
        assert RING.open_envelope(plain) == plain

    def test_defect_48_a_payload_that_looks_sealed_is_delivered_as_it_is(self):
        forged = RING.seal_envelope(envelope(b'"secret"'))

        assert RING.open_envelope(envelope(forged)) == envelope(forged)
        assert RING.open_envelope(RING.seal_envelope(envelope(forged))) == envelope(forged)


class TestRotation:
    def test_the_first_key_seals_and_all_of_them_open(self):
        before = RING.seal_envelope(envelope(b"1"))
        rotated = KeyRing([OTHER, KEY])
        after = rotated.seal_envelope(envelope(b"2"))

        assert [json.loads(each)["enc"] for each in (before, after)] == ["one", "two"]
        assert rotated.open_envelope(before) == envelope(b"1")
        assert rotated.open_envelope(after) == envelope(b"2")

    def test_an_instance_that_has_only_the_old_key_says_so(self):
        after = KeyRing([OTHER, KEY]).seal_envelope(envelope())

        with pytest.raises(CannotDecrypt, match="'two'"):
            RING.open_envelope(after)


def load(**environment):
    return load_settings(environment=environment).settings


@pytest.fixture(autouse=True)
def no_file_around(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class TestKeys:
    def test_without_settings_there_is_none(self):
        assert encryption_keys(Settings()) == ()

    def test_a_key_without_an_id_is_named_after_its_hash(self):
        assert encryption_keys(load(SKEP_ENCRYPTION_KEYS=DIGITS)) == (
            EncryptionKey(sha256(SECRET).hexdigest()[:8], SECRET),
        )

    @pytest.mark.parametrize("between", [",", ", ", " ", "\n"])
    def test_keys_keep_their_order(self, between):
        text = between.join([f"two:{OTHER_DIGITS.upper()}", f"one:{DIGITS}"])

        assert encryption_keys(load(SKEP_ENCRYPTION_KEYS=text)) == (OTHER, KEY)

    def test_the_variable_of_queen_is_understood(self):
        [key] = encryption_keys(load(QUEEN_ENCRYPTION_KEY=DIGITS))

        assert key.secret == SECRET

    def test_the_keys_of_the_file_come_after_the_others(self, tmp_path):
        file = tmp_path / "keys"
        file.write_text(f"# old\none:{DIGITS}  # until May\n\n")

        settings = load(SKEP_ENCRYPTION_KEYS=f"two:{OTHER_DIGITS}", SKEP_ENCRYPTION_KEY_FILE=file)

        assert encryption_keys(settings) == (OTHER, KEY)

    def test_the_same_key_given_twice_is_one(self):
        assert encryption_keys(load(SKEP_ENCRYPTION_KEYS=f"one:{DIGITS},one:{DIGITS}")) == (KEY,)

    @pytest.mark.parametrize(
        "text",
        [
            "secret",
            DIGITS[:-1],
            DIGITS + "0",
            f"{DIGITS[:-1]}g",
            f":{DIGITS}",
            f'a"b:{DIGITS}',
            "one:",
        ],
    )
    def test_a_wrong_key_stops_the_start_and_is_not_quoted(self, text):
        with pytest.raises(InvalidSettings, match="64 hexadecimal digits") as refusal:
            load(SKEP_ENCRYPTION_KEYS=f"one:{DIGITS},{text}")

        assert "key 2 of encryption_keys" in refusal.value.message
        assert text not in refusal.value.message
        assert DIGITS not in refusal.value.message

    def test_one_id_for_two_keys_is_refused(self):
        with pytest.raises(InvalidSettings, match="two different keys have the id 'one'"):
            load(SKEP_ENCRYPTION_KEYS=f"one:{DIGITS},one:{OTHER_DIGITS}")

    def test_a_file_that_is_not_there_stops_the_start(self, tmp_path):
        with pytest.raises(InvalidSettings, match="cannot read encryption_key_file"):
            load(SKEP_ENCRYPTION_KEY_FILE=tmp_path / "absent")

    @pytest.mark.parametrize(
        ("content", "error"),
        [(b"", "contains no key"), (b"# none\n", "contains no key"), (b"\xff", "is not text")],
    )
    def test_a_file_without_keys_stops_the_start(self, tmp_path, content, error):
        file = tmp_path / "keys"
        file.write_bytes(content)

        with pytest.raises(InvalidSettings, match=error):
            load(SKEP_ENCRYPTION_KEY_FILE=file)

    def test_no_key_is_ever_shown(self):
        settings = load(SKEP_ENCRYPTION_KEYS=f"one:{DIGITS}")
        shown = [settings, settings.printable(), encryption_keys(settings), KeyRing([KEY])]

        assert not [each for each in shown if DIGITS in repr(each) or repr(SECRET) in repr(each)]
        assert settings.printable()["encryption_keys"] == "***"

    def test_the_keys_reach_the_worker_processes(self):
        settings = load(SKEP_ENCRYPTION_KEYS=f"one:{DIGITS}")

        assert encryption_keys(pickle.loads(pickle.dumps(settings))) == (KEY,)
