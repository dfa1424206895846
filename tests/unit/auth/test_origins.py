"""Whose web pages may call the broker."""

import pytest

from skep.server.auth.browsers import OriginPolicy

POLICY = OriginPolicy(["https://app.example.com", "http://localhost:3000/"])


@pytest.mark.parametrize(
    ("origin", "host", "verdict"),
    [
        ("http://127.0.0.1:6632", "127.0.0.1:6632", "own"),
        ("https://skep.example.com", "skep.example.com", "own"),
        ("HTTPS://Skep.Example.com", "skep.example.COM", "own"),
        ("https://app.example.com", "skep.example.com", "listed"),
        ("http://localhost:3000", "skep.example.com", "listed"),
        ("http://app.example.com", "skep.example.com", "foreign"),
        ("https://app.example.com.evil.org", "skep.example.com", "foreign"),
        ("https://evil.org", "skep.example.com", "foreign"),
        ("http://127.0.0.1:6633", "127.0.0.1:6632", "foreign"),
        ("http://user@127.0.0.1:6632", "127.0.0.1:6632", "foreign"),
        ("null", "skep.example.com", "foreign"),
        ("null", "null", "foreign"),
        ("", "", "foreign"),
        ("https://", "", "foreign"),
        ("*", "*", "foreign"),
    ],
)
def test_a_page_is_our_own_listed_or_foreign(origin, host, verdict):
    assert POLICY.judge(origin, host) == verdict


def test_nobody_is_listed_by_default():
    assert OriginPolicy().judge("https://app.example.com", "skep") == "foreign"
