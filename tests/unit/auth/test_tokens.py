"""Which tokens are believed."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.errors import InvalidToken, Unauthenticated
from skep.server.auth.tokens import (
    TOKEN_BYTES_MAX,
    TokenRules,
    UnknownKey,
    bearer_token,
    document_keys,
    pem_keys,
    secret_key,
    verify_token,
)
from tests.support.tokens import (
    SECRET,
    claims,
    key_document,
    private_key,
    public_entry,
    public_pem,
    sign,
    spelled,
)

EVERY = frozenset({"HS256", "RS256", "ES256", "EdDSA"})
PUBLIC = ["RS256", "ES256", "EdDSA"]
KEYS = (secret_key(SECRET), *pem_keys("".join(public_pem(each) for each in PUBLIC)))


def verify(token, keys=KEYS, **rules):
    return verify_token(token, keys, TokenRules(**{"algorithms": EVERY, **rules}))


def key_of(algorithm):
    return SECRET if algorithm == "HS256" else private_key(algorithm)


@pytest.mark.parametrize("algorithm", sorted(EVERY))
def test_a_token_signed_with_a_known_key_is_believed(algorithm):
    token = sign(claims("read-write"), algorithm, key_of(algorithm))

    assert verify(token)["role"] == "read-write"


@pytest.mark.parametrize("algorithm", sorted(EVERY))
def test_a_forged_token_is_refused(algorithm):
    head, _, signature = sign(claims("read-only"), algorithm, key_of(algorithm)).split(".")
    _, body, _ = sign(claims("admin"), algorithm, key_of(algorithm)).split(".")

    with pytest.raises(InvalidToken, match="signature"):
        verify(f"{head}.{body}.{signature}")


@pytest.mark.parametrize("algorithm", sorted(EVERY))
def test_a_token_signed_with_another_key_is_refused(algorithm):
    other = "x" * 40 if algorithm == "HS256" else private_key(algorithm, "other")

    with pytest.raises(InvalidToken, match="signature"):
        verify(sign(claims(), algorithm, other))


@pytest.mark.parametrize("spelling", ["none", "None", "NONE", "nOnE", ""])
def test_a_token_without_a_signature_is_refused(spelling):
    with pytest.raises(InvalidToken, match="algorithm"):
        verify(spelled({"alg": spelling, "typ": "JWT"}, claims()))


@pytest.mark.parametrize("algorithm", PUBLIC)
def test_a_public_key_is_no_secret(algorithm):
    """The signature is an HMAC under the text of the public key, which everybody has."""
    import hashlib
    import hmac

    unsigned = spelled({"alg": "HS256", "typ": "JWT"}, claims()).rpartition(".")[0]
    for secret in (public_pem(algorithm), public_pem(algorithm).strip()):
        forged = hmac.new(secret.encode(), unsigned.encode(), hashlib.sha256).digest()
        token = unsigned + "." + spelled({}, {}, forged).rpartition(".")[2]

        with pytest.raises(InvalidToken):
            verify(token)
        with pytest.raises(InvalidToken):
            verify(token, pem_keys(public_pem(algorithm)))


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256", "HS512"])
def test_defect_50_a_token_is_not_verified_as_if_it_were_of_another_algorithm(algorithm):
    key = SECRET * 2 if algorithm == "HS512" else private_key("RS256")

    with pytest.raises(InvalidToken, match="algorithm"):
        verify(sign(claims(), algorithm, key))


def test_an_algorithm_that_is_not_allowed_is_refused_although_there_is_a_key():
    with pytest.raises(InvalidToken, match="algorithm"):
        verify(sign(claims()), algorithms=frozenset({"RS256"}))


def test_defect_50_a_token_that_never_expires_is_refused():
    with pytest.raises(InvalidToken, match="exp"):
        verify(sign(claims(exp=None)))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"lives_s": -60}, "expired"),
        ({"nbf": time.time() + 86_400}, "not valid yet"),
        ({"iat": time.time() + 86_400}, "not valid yet"),
        ({"iss": "somebody"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"aud": "others"}, "audience"),
        ({"aud": None}, "aud"),
        ({"aud": ["others", "more"]}, "audience"),
        ({"exp": "soon"}, "malformed"),
        ({"exp": float("inf")}, "malformed"),
        ({"nbf": "soon"}, "malformed"),
    ],
)
def test_a_token_for_another_time_place_or_issuer_is_refused(members, reason):
    token = sign(claims(**{"iss": "us", "aud": "skep", **members}))

    with pytest.raises(InvalidToken, match=reason):
        verify(token, issuer="us", audiences=("skep",))


def test_one_of_several_audiences_is_enough():
    token = sign(claims(aud=["a", "skep"]))

    assert verify(token, audiences=("other", "skep"))["sub"] == "tester"


def test_issuer_and_audience_are_not_looked_at_unless_asked_for():
    assert verify(sign(claims(iss="anybody", aud="anything")))


def test_clocks_may_differ_a_little():
    token = sign(claims(lives_s=-20, nbf=time.time() - 600))

    assert verify(token, leeway_s=30)
    with pytest.raises(InvalidToken, match="expired"):
        verify(token, leeway_s=10)


def test_a_key_that_is_not_known_is_told_from_a_wrong_signature():
    keys = document_keys(key_document(public_entry("ES256", kid="old")))
    token = sign(claims(), "ES256", private_key("ES256", "new"), kid="new")

    with pytest.raises(UnknownKey):
        verify(token, keys)


def test_a_key_without_an_id_does_not_stand_for_one_that_is_not_known():
    token = sign(claims(), "ES256", private_key("ES256", "new"), kid="new")

    with pytest.raises(UnknownKey):
        verify(token, pem_keys(public_pem("ES256", "old")))
    assert verify(token, pem_keys(public_pem("ES256", "new")))


def test_the_keys_of_an_algorithm_are_tried_for_a_token_that_names_none():
    keys = pem_keys(public_pem("EdDSA", "other") + public_pem("EdDSA"))

    assert verify(sign(claims(), "EdDSA", private_key("EdDSA")), keys)


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "HS256", "crit": ["exp"]},
        {"alg": "HS256", "kid": 7},
        {"alg": ["HS256"]},
        {"alg": None},
        {},
    ],
)
def test_a_header_with_surprises_is_refused(header):
    with pytest.raises(InvalidToken):
        verify(spelled(header, claims(), b"x"))


@given(st.text(max_size=200) | st.lists(st.text(alphabet="abeyJ-_=.", max_size=20)).map(".".join))
def test_whatever_is_no_token_is_refused_as_such(text):
    with pytest.raises(InvalidToken):
        verify(text)


@given(st.recursive(st.none() | st.booleans() | st.text(max_size=5), st.lists, max_leaves=5))
def test_whatever_the_claims_are_nothing_but_a_refusal_comes_out(value):
    token = sign({"exp": int(time.time()) + 60, "x": value}, key=SECRET)

    assert verify(token)["x"] == json.loads(json.dumps(value))


class TestHeader:
    @pytest.mark.parametrize(
        "header", [b"Bearer t.o.k", b"bearer t.o.k", b"BEARER  t.o.k ", b"t.o.k"]
    )
    def test_a_token_comes_with_or_without_the_word_bearer(self, header):
        assert bearer_token(header) == "t.o.k"

    @pytest.mark.parametrize("header", [None, b""])
    def test_no_header_is_no_token(self, header):
        with pytest.raises(Unauthenticated) as refusal:
            bearer_token(header)

        assert not isinstance(refusal.value, InvalidToken)

    @pytest.mark.parametrize("header", [b"Basic dTpw", b"Bearer \xff", b"Bearer t o"])
    def test_another_header_is_refused(self, header):
        with pytest.raises(InvalidToken):
            verify(bearer_token(header))

    def test_an_oversized_token_is_not_looked_at(self):
        with pytest.raises(InvalidToken, match="larger"):
            bearer_token(b"Bearer " + b"x" * TOKEN_BYTES_MAX)
