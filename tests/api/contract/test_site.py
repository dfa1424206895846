"""`make site` makes one site of all documents, which needs nothing but itself."""

import re

import pytest

from tools import build_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("site")
    build_site.build_at(place / "pages", place / "site")
    return place / "site"


def test_every_document_is_a_page(site):
    expected = {
        page.with_name("index.html" if page.stem == "README" else f"{page.stem}.html")
        for page in build_site.listed_pages()
    }

    assert len(expected) > 80
    assert {page for page in expected if not (site / page).is_file()} == set()


def test_a_link_to_a_folder_shows_what_is_in_it(site):
    assert "JobTypes" in (site / "examples" / "index.html").read_text()
    assert "<h1" in (site / "docs" / "adr" / "index.html").read_text()


def test_the_search_knows_the_pages(site):
    assert "exactly once" in (site / "search" / "search_index.json").read_text()


def test_a_page_loads_nothing_from_elsewhere(site):
    loaded = re.compile(r"<(?:script|link|img)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")

    assert [loaded.findall(page.read_text()) for page in [site / "index.html"]] == [[]]
