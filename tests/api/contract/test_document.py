"""The API document and what is served agree: every route of the contract, called and compared."""

import json
import re
from uuid import UUID

import jsonschema_rs
import pytest

from skep.app.parts.interface import describe_api
from tests.api.support.contract_calls import CALLS, REFUSED, fill, fill_path, set_stage
from tools.wire_contract import route_shape


@pytest.fixture(scope="module")
def document():
    return describe_api()


def find_operation(document, method, path):
    """Return what the document says about a route."""
    (found,) = (
        operation
        for template, item in document["paths"].items()
        for verb, operation in item.items()
        if route_shape(verb, template) == route_shape(method, path)
    )
    return found


def assert_fits(document, operation, answer):
    """Check an answer against the schema that the document gives for its status."""
    [(media_type, described)] = operation["responses"][str(answer.status)]["content"].items()
    if media_type != "application/json":
        assert answer.headers["content-type"].startswith(media_type)
        return
    schema = described["schema"]
    whole = {**schema, "components": document["components"]}
    errors = list(jsonschema_rs.validator_for(whole).iter_errors(json.loads(answer.body)))
    assert errors == [], "\n".join(map(str, errors))


def claims_success(body):
    """Many answers say it in a member, because Queen's statuses do not."""
    results = body if isinstance(body, list) else [body]
    return all(result.get("success", True) for result in results)


@pytest.mark.parametrize("route", CALLS)
async def test_a_route_of_the_contract_answers_as_documented(route, client, queue, document):
    method, _, path = route.partition(" ")
    names = await set_stage(client, queue)
    body = CALLS[route]
    sent = b"" if body is None else fill(json.dumps(body), names).encode()

    answer = await client.call(method, fill_path(path, names), sent)

    assert answer.status == 409 if route in REFUSED else 200 <= answer.status < 300, answer
    operation = find_operation(document, method, path.partition("?")[0])
    assert_fits(document, operation, answer)
    if answer.headers["content-type"] == "application/json":
        assert claims_success(json.loads(answer.body))


async def test_what_is_printed_is_what_is_served(client, document):
    served = json.loads((await client.call("GET", "/openapi.json")).body)

    assert json.loads(json.dumps(document)) == served


def test_every_operation_has_a_name_of_its_own_a_tag_and_a_summary(document):
    operations = [each for item in document["paths"].values() for each in item.values()]

    assert all(each["tags"] and each["summary"] for each in operations)
    names = [each["operationId"] for each in operations]
    assert len(names) == len(set(names))


def test_every_parameter_is_explained(document):
    unexplained = [
        f"{operation['operationId']}: {parameter['name']}"
        for item in document["paths"].values()
        for operation in item.values()
        for parameter in operation.get("parameters", [])
        if not parameter.get("description")
    ]

    assert unexplained == []


def routes_with_bodies():
    return [
        f"{method.upper()} {path}"
        for path, item in describe_api()["paths"].items()
        for method, operation in item.items()
        if "requestBody" in operation
    ]


@pytest.mark.parametrize("route", routes_with_bodies())
@pytest.mark.parametrize(
    "body",
    [b'{"queue": "\xff"}', b"[" * 100_000, b"{", b"[1]", b'{"queue": "\\ud800"}'],
    ids=["not UTF-8", "too deep", "cut off", "an array", "half a character"],
)
async def test_a_body_that_cannot_be_read_is_a_400_everywhere(client, route, body):
    method, _, path = route.partition(" ")
    # Ids of chains are recognised by their shape: another one is a path that leads nowhere.
    somewhere = re.sub(r"\{\w+\}", "1", path.replace("{chain_id}", str(UUID(int=1))))

    answer = await client.call(method, somewhere, body)

    assert answer.status == 400, answer
    assert json.loads(answer.body)["code"].endswith("bad_request")
