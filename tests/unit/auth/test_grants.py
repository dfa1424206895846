"""What a token's grants allow, and which claims are refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.errors import InvalidToken
from skep.server.auth.access import Level
from skep.server.auth.identity import GRANTS_MAX, NamePattern, parse_grants

NONE, READ, WRITE, ADMIN = Level
NAMES = st.text(alphabet="ab*.", max_size=8)


def grants(*entries, ceiling=ADMIN):
    return parse_grants(list(entries), ceiling=ceiling)


def level_of(of, queue, namespace):
    return max(of.level_of_name(queue), of.level_of_namespace(namespace))


@given(pattern=NAMES, name=NAMES)
def test_a_pattern_matches_as_if_each_asterisk_were_any_text(pattern, name):
    expected = ".*".join(re.escape(part) for part in pattern.split("*"))

    assert NamePattern(pattern).matches(name) == bool(re.fullmatch(expected, name))


def test_a_pattern_of_many_asterisks_is_matched_in_no_time():
    assert not NamePattern("*a" * 100 + "*b").matches("a" * 255)


def test_a_token_without_the_claim_is_not_restricted():
    assert parse_grants(None, ceiling=READ) is None


def test_a_token_with_an_empty_claim_has_no_queue():
    assert level_of(grants(), "orders", "shop") is NONE


def test_one_grant_may_stand_alone():
    alone = parse_grants({"queues": ["orders"]}, ceiling=WRITE)

    assert alone is not None
    assert alone.level_of_name("orders") is WRITE


def test_the_highest_grant_that_fits_counts():
    several = grants(
        {"queues": ["*"], "rights": "read-only"},
        {"queues": ["orders*"], "rights": "read-write"},
        {"namespaces": ["shop"], "rights": "admin"},
    )

    assert level_of(several, "mails", "") is READ
    assert level_of(several, "orders-eu", "press") is WRITE
    assert level_of(several, "mails", "shop") is ADMIN


def test_the_role_is_the_ceiling_of_all_rights():
    capped = grants({"queues": ["orders"], "rights": "admin"}, ceiling=READ)

    assert capped.level_of_name("orders") is READ


def test_a_token_without_a_role_has_no_rights_whatever_it_is_granted():
    assert grants({"queues": ["*"]}, ceiling=NONE).level_of_name("orders") is NONE


def test_a_pattern_for_all_namespaces_does_not_cover_queues_without_one():
    assert level_of(grants({"namespaces": ["*"]}), "orders", "") is NONE
    assert level_of(grants({"namespaces": ["*"]}), "orders", "shop") is ADMIN


@pytest.mark.parametrize(
    "claim",
    [
        "orders",
        7,
        [["orders"]],
        [{"queues": "orders"}],
        [{"queues": [1]}],
        [{"queues": [""]}],
        [{"queues": ["x" * 256]}],
        [{"queues": ["x"], "rights": "write"}],
        [{"queues": ["x"], "rights": ["admin"]}],
        [{"queues": ["x"], "unless": "friday"}],
        [{}] * (GRANTS_MAX + 1),
        [{"namespaces": ["x"] * (GRANTS_MAX + 1)}],
    ],
)
def test_a_claim_that_cannot_be_read_refuses_the_token(claim):
    with pytest.raises(InvalidToken):
        parse_grants(claim, ceiling=ADMIN)
