"""Documents: one title each, links that lead somewhere, and what they say of the code holds."""

import ast
import json
import re
import tomllib

import pytest
import yaml

from skep.settings.fields import FIELDS, description
from skep.spark.pipelines.files import parse_pipeline
from tests.tidy.tree import ROOT, documents, short, sql_files
from tools.build_site import listed_pages
from tools.generate_reference_pages import render_settings_page

SETTINGS_PAGE = ROOT / "docs" / "reference" / "settings.md"
TABLES_PAGE = ROOT / "docs" / "reference" / "tables.md"
BLOCKS = re.DOTALL | re.MULTILINE
FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", documents(), ids=short)
def test_a_document_has_one_title_and_begins_with_it(path):
    text = FENCED.sub("", path.read_text())

    assert text.startswith("# ")
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1


@pytest.mark.parametrize("path", documents(), ids=short)
def test_links_to_files_of_the_project_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", FENCED.sub("", path.read_text()))
    relative = [target for target in targets if "://" not in target]

    assert [target for target in relative if not (path.parent / target).exists()] == []


def anchors(path):
    """The anchors of a page, made of its headings as the sites that show Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", documents(), ids=short)
def test_links_into_pages_lead_to_a_heading(path):
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", FENCED.sub("", path.read_text()))
    pages = [
        (path.parent / page if page else path, anchor) for page, anchor in links if ":" not in page
    ]

    assert [anchor for page, anchor in pages if anchor not in anchors(page)] == []


def read_yaml(text):
    for document in yaml.safe_load_all(text):
        if isinstance(document, dict) and {"name", "sources"} <= document.keys():
            parse_pipeline(text)


READERS = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": read_yaml,
    "python": lambda text: compile(text, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT),
}


@pytest.mark.parametrize("path", documents(), ids=short)
def test_code_in_a_document_can_be_read(path):
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", path.read_text(), BLOCKS):
        if language in READERS:
            READERS[language](block)


def test_the_list_of_documents_leads_to_every_page():
    listed = {ROOT / page for page in listed_pages()}

    assert [short(page) for page in documents() if page not in listed] == []


def test_a_decision_has_a_number_of_its_own_and_its_title_says_it():
    decisions = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [path.name[:4] for path in decisions]

    assert len(set(numbers)) == len(numbers)
    assert [path.name for path in decisions if not numbered(path)] == []


def numbered(path):
    return path.read_text().startswith(f"# {int(path.name[:4])}. ")


@pytest.mark.parametrize("name", FIELDS)
def test_a_setting_is_described_in_whole_sentences(name):
    assert re.fullmatch(r"[A-Z].*\.", description(name))


def test_the_page_of_the_settings_is_current():
    assert SETTINGS_PAGE.read_text() == render_settings_page(), "run `make docs`"


def test_every_table_is_described():
    created = re.compile(
        r"create (?:unlogged )?table (?:if not exists )?skep\.(\w+)", re.IGNORECASE
    )
    migrations = [path for path in sql_files() if path.parent.name == "migrations"]
    tables = {name for path in migrations for name in created.findall(path.read_text())}

    assert len(tables) > 50
    assert tables - set(re.findall(r"`(\w+)`", TABLES_PAGE.read_text())) == set()
