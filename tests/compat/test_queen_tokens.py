"""The Python clients that Queen publishes, unmodified, with a bearer token."""

import pytest

from tests.support.tokens import SECRET, claims, sign

pytestmark = pytest.mark.slow

SCENARIOS = "token_scenarios.py"


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1", jwt_enabled="true", jwt_secret=SECRET) as broker:
        yield broker


def test_a_client_with_a_token_works_and_its_messages_carry_its_name(play, queue, monkeypatch):
    grants = {"queues": [f"{queue}*"]}
    monkeypatch.setenv("TOKEN", sign(claims("read-write", sub="alice", skep_grants=grants)))

    assert play("work") == {
        "pushed": ["queued", "queued"],
        "acked": True,
        "committed": True,
        "forwarded": [3],
        "producers": ["alice", "alice"],
        "name": queue,
    }


def test_a_client_is_told_why_it_is_not_let_in(play, queue, monkeypatch):
    monkeypatch.setenv("TOKEN", sign(claims("read-write", skep_grants={"queues": [queue]})))

    seen = play("trespass")
    assert "Authentication required" in seen["without"]
    assert f"no read-write grant on the queue '{queue}-theirs'" in seen["elsewhere"]
