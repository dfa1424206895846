"""The requests of the guide to queues work, one after the other, as a reader would send them."""

import re
from pathlib import Path

import httpx
import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "reference" / "queues.md"
REQUEST = re.compile(r"^(GET|POST) (\S+)\n((?:[\]{\s].*\n)*)", re.MULTILINE)


def requests():
    blocks = re.findall(r"```http\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return [match.groups() for block in blocks for match in REQUEST.finditer(block)]


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker of its own: the README uses the same names."""
    with start_broker("--workers", "1") as broker:
        yield broker


@pytest.fixture(scope="module")
def answers(broker):
    with httpx.Client(base_url=broker.url, timeout=60) as client:
        return {
            (method, path): client.request(method, path, content=body.strip() or None)
            for method, path, body in requests()
        }


def test_the_guide_has_as_many_requests_as_it_shows():
    written = re.findall(r"^(?:GET|POST) /", GUIDE.read_text(), re.MULTILINE)

    assert len(requests()) == len(written) > 10


def test_every_request_of_the_guide_succeeds(answers):
    failed = {key: answer.text for key, answer in answers.items() if not answer.is_success}

    assert failed == {}


def test_the_items_of_the_push_are_stored_and_scheduled(answers):
    results = answers["POST", "/api/v1/push"].json()

    assert [each["status"] for each in results] == ["queued"] * 3 + ["scheduled"]


def test_the_pops_bring_what_was_pushed(answers):
    for (method, path), answer in answers.items():
        if method == "GET" and path.startswith("/api/v1/pop"):
            totals = {message["data"]["total"] for message in answer.json()["messages"]}
            assert totals <= {42, 43, 44}
            assert totals


def test_the_options_of_the_guide_are_those_of_the_broker(answers):
    shown = set(answers["POST", "/api/v1/configure"].json()["options"])
    rows = re.findall(r"^\| (`.*?) \|", GUIDE.read_text(), re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert described == shown
