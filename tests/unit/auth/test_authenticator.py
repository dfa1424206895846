"""Headers become identities, and are verified once."""

import time

import pytest

from skep.model.errors import InvalidToken, Unauthenticated
from skep.server.auth import authenticator as module
from skep.server.auth.access import LEVEL_BY_WORD, Level
from skep.server.auth.authenticator import Authenticator
from skep.server.auth.identity import ClaimNames
from skep.server.auth.key_server import KeyServer
from skep.server.auth.tokens import TokenRules, UnknownKey, secret_key
from tests.support.tokens import SECRET, claims, key_document, private_key, public_entry, sign

OTHER_SECRET = "another secret of the tests, which is long enough"


class Clock:
    def __init__(self):
        self.now = time.time()

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


class CountingKeys(tuple):
    """Keys that count how often a token was verified with them."""

    count = 0

    def __iter__(self):
        self.count += 1
        return super().__iter__()


@pytest.fixture
def verified():
    return CountingKeys([secret_key(SECRET)])


@pytest.fixture
def authenticator(clock, verified):
    return Authenticator(
        keys=verified,
        rules=TokenRules(algorithms=frozenset({"HS256", "ES256"}), leeway_s=0),
        names=ClaimNames(levels=LEVEL_BY_WORD),
        now=clock,
    )


def header(*arguments, **members):
    return b"Bearer " + sign(claims(*arguments, **members)).encode()


def test_a_token_tells_who_is_asking(authenticator):
    identity = authenticator.identify(header("read-write"))

    assert (identity.subject, identity.level) == ("tester", Level.READ_WRITE)


def test_a_token_is_verified_once(authenticator, verified):
    once = header()

    assert authenticator.identify(once) is authenticator.identify(once)
    assert verified.count == 1


def test_a_token_that_has_expired_is_not_known_any_more(authenticator, clock, verified):
    short = header(lives_s=60)
    authenticator.identify(short)
    clock.now += 59
    authenticator.identify(short)
    assert verified.count == 1

    clock.now += 1
    authenticator.identify(short)
    assert verified.count == 2


def test_refused_tokens_are_not_remembered(authenticator, verified):
    forged = b"Bearer " + sign(claims(), key=OTHER_SECRET).encode()
    for _ in range(2):
        with pytest.raises(InvalidToken):
            authenticator.identify(forged)

    assert verified.count == 2


def test_no_header_is_no_token(authenticator):
    with pytest.raises(Unauthenticated):
        authenticator.identify(None)


def test_a_token_that_differs_in_one_character_is_another(authenticator):
    good = header()
    authenticator.identify(good)

    with pytest.raises(InvalidToken):
        authenticator.identify(good[:-1] + (b"A" if good[-1:] != b"A" else b"B"))


def test_the_memory_is_bounded_and_forgets_who_was_not_heard_of_longest(
    authenticator, verified, monkeypatch
):
    monkeypatch.setattr(module, "REMEMBERED_MAX", 2)
    first, second, third = (header(sub=name) for name in "abc")
    authenticator.identify(first)
    authenticator.identify(second)
    authenticator.identify(first)
    authenticator.identify(third)
    assert verified.count == 3

    authenticator.identify(first)
    assert verified.count == 3
    authenticator.identify(second)
    assert verified.count == 4


def test_other_keys_end_what_was_remembered(authenticator):
    good = header()
    authenticator.identify(good)
    authenticator.replace_keys((secret_key(OTHER_SECRET),))

    with pytest.raises(InvalidToken):
        authenticator.identify(good)


async def test_without_a_key_server_an_unknown_key_is_refused_at_once(authenticator):
    stranger = b"Bearer " + sign(claims(), "ES256", private_key("ES256"), kid="k").encode()

    with pytest.raises(UnknownKey):
        authenticator.identify(stranger)


async def test_keys_are_rotated_without_a_token_being_refused(authenticator):
    documents = [key_document(public_entry("ES256", "old", kid="old"))]
    moment = Clock()
    server = KeyServer(
        lambda: documents[-1],
        refresh_s=3600,
        timeout_s=5,
        on_change=authenticator.forget,
        now=moment,
    )
    authenticator.ask(server)
    await server.fetch_unknown()
    signed = {
        name: b"Bearer " + sign(claims(), "ES256", private_key("ES256", name), kid=name).encode()
        for name in ("old", "new")
    }
    assert authenticator.identify(signed["old"]).subject == "tester"

    documents.append(key_document(public_entry("ES256", "new", kid="new")))
    moment.now += 60
    assert authenticator.identify(signed["new"]) is None
    assert (await authenticator.identify_patiently(signed["new"])).subject == "tester"

    # The old key was withdrawn: what it signed is not good any more, although it was remembered.
    with pytest.raises(InvalidToken):
        await authenticator.identify_patiently(signed["old"])
