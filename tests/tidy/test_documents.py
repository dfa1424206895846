"""Documents: one title each, and the pages written from the code are current."""

import re

import pytest

from skep.cli.settings_page import render_settings_page
from skep.settings.fields import FIELDS, description
from tests.tidy.tree import ROOT, documents, short

SETTINGS_PAGE = ROOT / "docs" / "reference" / "settings.md"
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


@pytest.mark.parametrize("name", FIELDS)
def test_a_setting_is_described_in_whole_sentences(name):
    assert re.fullmatch(r"[A-Z].*\.", description(name))


def test_the_page_of_the_settings_is_current():
    assert SETTINGS_PAGE.read_text() == render_settings_page(), "run `make docs`"
