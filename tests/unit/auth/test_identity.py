"""Who a token's claims make its caller."""

import pytest

from skep.model.errors import Forbidden, InvalidToken
from skep.server.auth.access import LEVEL_BY_WORD, Level
from skep.server.auth.identity import ClaimNames, Identity, identity_of

NAMES = ClaimNames(levels=LEVEL_BY_WORD)


def identity(**claims):
    return identity_of({"exp": 100, **claims}, NAMES, leeway_s=5)


@pytest.mark.parametrize(
    ("claims", "level"),
    [
        ({"role": "read-only"}, Level.READ_ONLY),
        ({"roles": ["read-only", "read-write"]}, Level.READ_WRITE),
        ({"role": "admin", "roles": ["read-only"]}, Level.ADMIN),
        ({"role": "ADMIN"}, Level.NONE),
        ({"role": ["admin"]}, Level.NONE),
        ({"roles": "admin"}, Level.NONE),
        ({"roles": [{"admin": True}, None, "other-system"]}, Level.NONE),
        ({}, Level.NONE),
    ],
)
def test_the_highest_role_that_is_ours_counts(claims, level):
    assert identity(**claims).level is level


def test_roles_may_have_other_names_and_other_claims():
    names = ClaimNames(role="r", roles="rs", levels={"boss": Level.ADMIN})

    assert identity_of({"exp": 1, "rs": ["boss"]}, names, leeway_s=0).level is Level.ADMIN
    assert identity_of({"exp": 1, "role": "admin"}, names, leeway_s=0).level is Level.NONE


def test_a_token_is_good_until_it_expires_and_the_clocks_may_differ():
    assert identity().expires_at == 105


@pytest.mark.parametrize("subject", [7, ["a"], "x" * 256, "a\0b", "\ud800"])
def test_a_subject_that_cannot_be_stored_refuses_the_token(subject):
    with pytest.raises(InvalidToken):
        identity(sub=subject)


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("needed", list(Level))
def test_a_role_may_do_what_lower_roles_may_and_is_told_what_it_lacks(level, needed):
    caller = Identity("me", level)
    if level >= needed:
        caller.require(needed)
        return

    with pytest.raises(Forbidden, match=f"requires the role {needed.word}"):
        caller.require(needed)
