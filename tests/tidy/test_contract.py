"""The wire contract and the defects of Queen: nothing done is missing, and each has its test."""

import re

import pytest

from skep.app.parts.interface import describe_api
from tests.api.support.contract_calls import CALLS
from tests.tidy.tree import ROOT, files
from tools.generate_reference_pages import render_http_page
from tools.wire_contract import CONTRACT, route_shape

HTTP_PAGE = ROOT / "docs" / "reference" / "http.md"
DEFECTS = {*range(1, 64)}
"""The numbered defects of Queen (11.1 to 11.8)."""


@pytest.fixture(scope="module")
def document():
    return describe_api()


@pytest.fixture(scope="module")
def served(document):
    return {
        route_shape(method, path) for path, item in document["paths"].items() for method in item
    }


@pytest.mark.parametrize("route", CONTRACT, ids=lambda each: f"{each.method} {each.path}")
def test_every_route_of_the_contract_is_served_and_documented(route, served):
    assert route.shape in served


def test_every_route_of_the_contract_is_called_by_a_test():
    called = {route_shape(*call.partition("?")[0].split(" ")) for call in CALLS}

    assert called == {route.shape for route in CONTRACT}


def test_the_page_of_the_routes_is_current(document):
    assert HTTP_PAGE.read_text() == render_http_page(document), "run `make docs`"


def test_every_defect_has_a_test():
    named = re.compile(r"def test_defect_(\d\d)_")
    tested = {
        int(number)
        for path in files("tests", suffix=".py")
        for number in named.findall(path.read_text())
    }

    assert DEFECTS - tested == set()
