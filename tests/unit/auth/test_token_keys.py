"""Which keys verify which algorithm."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from skep.server.auth.tokens import (
    UnusableKey,
    document_keys,
    matching,
    pem_keys,
    secret_key,
    spelled,
)
from tests.support.tokens import SECRET, key_document, private_key, public_entry, public_pem

PUBLIC = ["RS256", "ES256", "EdDSA"]


def pem_of(key):
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


def algorithms(keys):
    return [each for each in ("HS256", *PUBLIC) if matching(keys, each, None)]


@pytest.mark.parametrize("algorithm", PUBLIC)
def test_a_public_key_verifies_one_algorithm_only(algorithm):
    assert algorithms(pem_keys(public_pem(algorithm))) == [algorithm]
    assert algorithms(document_keys(key_document(public_entry(algorithm)))) == [algorithm]


def test_a_secret_verifies_hs256_only():
    assert algorithms((secret_key(SECRET),)) == ["HS256"]


def test_a_short_secret_is_refused():
    with pytest.raises(UnusableKey):
        secret_key("s" * 31)


def test_pem_blocks_may_follow_each_other_on_one_line():
    text = "".join(public_pem(each) for each in PUBLIC).replace("\n", "\\n")

    assert algorithms(pem_keys(text)) == PUBLIC


@pytest.mark.parametrize(
    "text",
    [
        "no key",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        pem_of(ec.generate_private_key(ec.SECP384R1())),
        pem_of(rsa.generate_private_key(public_exponent=65537, key_size=1024)),
    ],
    ids=["no block", "no key in it", "another curve", "too short"],
)
def test_a_text_without_a_usable_key_is_refused(text):
    with pytest.raises(UnusableKey):
        pem_keys(text)


def test_a_private_key_is_refused_and_not_quoted():
    pem = private_key("ES256").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    with pytest.raises(UnusableKey) as refusal:
        pem_keys(pem.decode())

    assert pem.decode().splitlines()[1] not in str(refusal.value)


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "alg": "HS256"},
        {"kty": "new", "x": "?"},
        {"kty": "RSA"},
        {},
        public_entry("RS256", use="enc"),
        public_entry("RS256", alg="RS512"),
        public_entry("RS256", alg="HS256"),
    ],
)
def test_an_entry_of_another_kind_is_passed_over(entry):
    keys = document_keys(key_document(entry, public_entry("ES256")))

    assert algorithms(keys) == ["ES256"]


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[]}', b"\xff"])
def test_a_document_without_a_usable_key_is_refused(document):
    with pytest.raises(UnusableKey):
        document_keys(document)


def test_a_key_is_found_by_its_id_and_one_without_is_meant_by_any():
    keys = document_keys(
        key_document(
            public_entry("ES256", "a", kid="a"),
            public_entry("ES256", "b", kid="b"),
        )
    )

    assert [key.id for key in matching(keys, "ES256", "b")] == ["b"]
    assert [key.id for key in matching(keys, "ES256", None)] == ["a", "b"]
    assert matching(keys, "ES256", "c") == []
    assert matching(pem_keys(public_pem("ES256")), "ES256", "c") != []


def test_a_set_differs_from_one_with_another_key_of_the_same_id():
    before = document_keys(key_document(public_entry("EdDSA", "a", kid="k")))
    same = document_keys(key_document(public_entry("EdDSA", "a", kid="k")))
    after = document_keys(key_document(public_entry("EdDSA", "b", kid="k")))

    assert spelled(before) == spelled(same) != spelled(after)


def test_no_key_is_shown_with_its_set():
    assert SECRET not in repr(matching((secret_key(SECRET),), "HS256", None))
