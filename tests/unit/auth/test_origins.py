"""Which web pages may call the broker, and by which names browsers may reach it."""

import pytest

from skep.server.auth.browsers import BrowserPolicy, Sender

POLICY = BrowserPolicy(
    ["https://app.example.com", "http://localhost:3000/"],
    hosts=["skep.example.com", "*.skep.example.net"],
)
AGENT = "Mozilla/5.0 (X11; Linux x86_64)"


def judge(*, policy=POLICY, consumes=False, **said):
    return policy.judge(Sender(**{"host": "127.0.0.1:6632", **said}), consumes=consumes)


@pytest.mark.parametrize(
    ("origin", "host", "verdict"),
    [
        ("http://127.0.0.1:6632", "127.0.0.1:6632", "own"),
        ("https://skep.example.com", "skep.example.com", "own"),
        ("HTTPS://Skep.Example.com", "skep.example.COM", "own"),
        ("https://app.example.com", "skep.example.com", "listed"),
        ("http://localhost:3000", "skep.example.com", "listed"),
        ("http://app.example.com", "skep.example.com", "foreign_origin"),
        ("https://app.example.com.evil.org", "skep.example.com", "foreign_origin"),
        ("https://evil.org", "skep.example.com", "foreign_origin"),
        ("http://127.0.0.1:6633", "127.0.0.1:6632", "foreign_origin"),
        ("http://user@127.0.0.1:6632", "127.0.0.1:6632", "foreign_origin"),
        ("null", "skep.example.com", "foreign_origin"),
        ("null", "null", "foreign_origin"),
        ("", "", "foreign_origin"),
        ("https://", "", "foreign_origin"),
        ("*", "*", "foreign_origin"),
    ],
)
def test_a_page_is_our_own_listed_or_foreign(origin, host, verdict):
    assert POLICY._judge_origin(origin, host) == verdict


def test_no_origin_is_listed_by_default():
    verdict = judge(policy=BrowserPolicy(), origin="https://app.example.com")

    assert verdict == "foreign_origin"


PICTURE = {"mode": "no-cors", "destination": "image"}
LINK = {"mode": "navigate", "destination": "document"}
FRAME = {"mode": "navigate", "destination": "iframe"}


@pytest.mark.parametrize(
    ("said", "of_reads", "of_pops"),
    [
        ({}, "own", "own"),
        ({"site": "same-origin", **PICTURE}, "own", "own"),
        ({"site": "none", **LINK}, "own", "own"),
        ({"site": "cross-site", **LINK}, "own", "cross_site"),
        ({"site": "same-site", **LINK}, "own", "cross_site"),
        ({"site": "cross-site", **PICTURE}, "cross_site", "cross_site"),
        ({"site": "same-site", **PICTURE}, "cross_site", "cross_site"),
        ({"site": "cross-site", **FRAME}, "cross_site", "cross_site"),
        ({"site": "a word of the future"}, "cross_site", "cross_site"),
    ],
)
def test_a_page_of_another_site_may_only_link_to_what_consumes_nothing(said, of_reads, of_pops):
    said = {"language": "en", "agent": AGENT, **said} if said else {}

    assert (judge(**said), judge(**said, consumes=True)) == (of_reads, of_pops)


@pytest.mark.parametrize(
    ("who", "verdict"),
    [
        ({"language": "en", "agent": AGENT}, "cross_site"),
        ({"language": "", "agent": AGENT}, "cross_site"),
        ({"language": "*", "agent": "node", "mode": "cors"}, "own"),
        ({"language": "en", "agent": "Bees/1 CFNetwork/1568.200.51 Darwin/24.1.0"}, "own"),
        ({"agent": "Mozilla/5.0 (Windows NT; en-US) WindowsPowerShell/5.1"}, "own"),
        ({"agent": "curl/8.5.0"}, "own"),
    ],
    ids=["browser", "empty language", "Node", "Apple", "PowerShell", "curl"],
)
def test_a_browser_that_does_not_say_for_which_page_cannot_pop(who, verdict):
    assert judge(consumes=True, **who) == verdict
    assert judge(**who) == "own"


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("127.0.0.1:6632", True),
        ("10.1.2.3", True),
        ("[::1]:6632", True),
        ("localhost:6632", True),
        ("LOCALHOST", True),
        ("broker", True),
        ("skep.localhost:6632", True),
        ("skep.default.svc.cluster.local:6632", True),
        ("skep.default.svc:6632", True),
        ("nas.lan", True),
        ("skep.example.com:6632", True),
        ("Skep.Example.COM.", True),
        ("a.b.skep.example.net", True),
        ("app.example.com", True),
        ("evil.org", False),
        ("skep.example.com.evil.org", False),
        ("evil-skep.example.com", False),
        ("localhost.evil.org:6632", False),
        ("127.0.0.1.evil.org", False),
        ("10.1.2.3.nip.io", False),
        ("[::1", False),
    ],
)
def test_a_browser_must_use_an_address_a_local_name_or_one_that_is_allowed(host, is_known):
    expected = "own" if is_known else "unknown_host"
    plain = {"host": host, "language": "en"}

    assert judge(**plain, agent=AGENT) == expected
    assert judge(**plain, agent="curl/8.5.0") == expected  # a page may call itself anything
    assert judge(**plain, origin=f"http://{host.lower()}") in {expected, "listed"}


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"language": "*", "mode": "cors"},
        {"language": "en", "site": "same-origin"},
        {"origin": "https://evil.org"},
    ],
    ids=["curl", "Node", "browser over TLS", "page over TLS"],
)
def test_a_name_does_not_matter_to_programs_and_over_tls(said):
    assert judge(host="evil.org", **said) == "own"


def test_a_name_does_not_matter_where_it_is_not_asked_for():
    for policy in (BrowserPolicy(asks_for_host=False), BrowserPolicy(hosts=["*"])):
        assert judge(policy=policy, host="evil.org", language="en") == "own"
