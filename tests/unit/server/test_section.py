"""How routes are declared: what a handler takes, and what Litestar and the document see of it."""

from typing import Annotated

import msgspec
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from skep.broker.paging import Page
from skep.server.api_document.openapi import document_of
from skep.server.auth import access
from skep.server.routes.parameters import FIRST_50, Rows
from skep.server.routes.section import AnyRequest, Body, Parts, in_query, routes_of


class Filter(msgspec.Struct):
    queue: str | None = None


class Wish(msgspec.Struct):
    count: int = 7


Chosen = Annotated[Filter, Parts(queue=Annotated[str | None, in_query("The queue.", "name")])]


@routes_of("Things")
def thing_routes(section):
    @section.get("/things", access.READ)
    async def list_things(which: Chosen, page: Rows = FIRST_50) -> list[str]:
        """List things."""
        assert isinstance(page, Page)
        return [str(which.queue), str(page.limit), str(page.offset)]

    @section.post(
        "/things", access.WRITE, body=Body(Wish, is_required=False), responses={409: "No."}
    )
    async def make_things(request: AnyRequest, asked: Wish) -> dict[str, int]:
        """Make things.

        As many as are asked for.
        """
        return {request.method: asked.count}


@pytest.fixture
def client():
    with TestClient(Litestar(thing_routes())) as http:
        yield http


@pytest.mark.parametrize(
    ("query", "given"),
    [
        ("", ["None", "50", "0"]),
        ("?name=a&offset=3", ["a", "50", "3"]),
        ("?queue=a&limit=1", ["None", "1", "0"]),
    ],
)
def test_a_handler_gets_parameters_that_belong_together_as_one_object(client, query, given):
    assert client.get("/things" + query).json() == given


def test_a_part_that_is_out_of_bounds_is_refused_by_its_name(client):
    answer = client.get("/things?limit=0")

    assert answer.status_code == 400
    assert answer.json()["extra"][0]["key"] == "limit"


@pytest.mark.parametrize(("body", "count"), [(b'{"count": 2}', 2), (b"", 7), (b" \n", 7)])
def test_a_handler_gets_its_body_beside_the_request(client, body, count):
    assert client.post("/things", content=body).json() == {"POST": count}


def test_the_document_shows_parts_bodies_and_errors():
    paths = document_of(Litestar(thing_routes()), [])["paths"]
    reads, makes = paths["/things"]["get"], paths["/things"]["post"]

    assert [each["name"] for each in reads["parameters"]] == ["name", "limit", "offset"]
    assert (makes["operationId"], makes["summary"]) == ("makeThings", "Make things")
    assert makes["description"] == "As many as are asked for."
    assert makes["requestBody"]["required"] is False
    assert makes["responses"]["409"]["description"] == "No."
    assert reads["x-access"] == "read-only"
