"""The built files as a broker serves them."""

import gzip
import re

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from skep.dashboard.site import PAGES, read_site
from skep.server.routes.dashboard import dashboard_routes
from tests.dashboard.support.browser import DASHBOARD


def headers_of(answer):
    return {name.lower(): value for name, value in answer.headers.items()}


async def asset_path(client):
    page = await client.call("GET", "/")
    return re.search(rb'src="(/assets/[^"]+\.js)"', page.body)[1].decode()


async def test_the_page_may_load_nothing_but_files_of_this_broker(client):
    answer = await client.call("GET", "/")

    policy = headers_of(answer)["content-security-policy"]
    assert answer.status == 200
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert not re.search(rb"https?://", answer.body)


@pytest.mark.parametrize("page", PAGES)
async def test_every_page_has_an_address_that_can_be_opened(page, client):
    answer = await client.call("GET", f"/{page}")

    assert answer.status == 200
    assert headers_of(answer)["content-type"].startswith("text/html")


async def test_a_name_with_a_slash_can_be_in_an_address(client):
    answer = await client.call("GET", "/queues/a%2Fb")

    assert answer.status == 200


async def test_the_page_is_asked_for_again_and_is_not_sent_again(client):
    first = await client.call("GET", "/")
    tag = headers_of(first)["etag"]

    again = await client.call("GET", "/", headers=f"if-none-match: {tag}\r\n")

    assert headers_of(first)["cache-control"] == "no-cache"
    assert (again.status, again.body) == (304, b"")


async def test_files_are_kept_for_good_and_sent_compressed(client):
    path = await asset_path(client)

    plain = await client.call("GET", path)
    packed = await client.call("GET", path, headers="accept-encoding: gzip\r\n")

    assert "immutable" in headers_of(packed)["cache-control"]
    assert headers_of(packed)["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body


async def test_a_file_that_is_not_there_is_not_found(client):
    answer = await client.call("GET", "/assets/nothing.js")

    assert answer.status == 404


async def test_a_person_at_an_unknown_address_gets_the_page_that_says_so(client):
    browser = "accept: text/html,*/*\r\n"

    page = await client.call("GET", "/no/such-page", headers=browser)
    route = await client.call("GET", "/api/v1/no-such-route", headers=browser)

    assert (page.status, b'<div id="app">' in page.body) == (404, True)
    assert (route.status, b"no_such_route" in route.body) == (404, True)


async def test_a_route_of_the_api_that_is_not_there_is_still_an_error(client):
    answer = await client.call("GET", "/api/v1/nothing")

    assert (answer.status, b"no_such_route" in answer.body) == (404, True)


def test_where_nothing_was_built_there_is_no_site(tmp_path):
    assert read_site(tmp_path) is None


def test_the_broker_and_the_dashboard_agree_about_the_pages():
    source = (DASHBOARD / "src" / "pages.tsx").read_text()

    assert re.findall(r'segment: "([a-z-]+)"', source) == list(PAGES)


def test_the_initial_javascript_is_under_150_kilobytes_compressed(built_site):
    scripts = list((built_site / "assets").glob("*.js"))

    assert scripts
    assert sum(len(gzip.compress(path.read_bytes())) for path in scripts) < 150_000


def test_a_broker_without_a_built_dashboard_says_how_to_get_one():
    app = Litestar(dashboard_routes(None))
    with TestClient(app) as client:
        answer = client.get("/")

    assert answer.status_code == 404
    assert "make dashboard" in answer.text
    assert answer.headers["content-type"].startswith("text/html")
