"""The name of the schema, and where it is put into texts and URLs."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skep.db.schema.catalog import bundled
from skep.model.schema_name import (
    LENGTH_MAX,
    InvalidSchemaName,
    Schema,
    schema_named,
    split_schema,
    with_schema,
)

OTHER = Schema("other")
names = st.from_regex(r"[a-z_][a-z0-9_]{0,20}", fullmatch=True)
queries = st.sampled_from(["", "sslmode=disable", "a=1&b=2", "options=-c%20x%3Dy"])


def good_name(name):
    try:
        return schema_named(name)
    except InvalidSchemaName:
        assume(False)
        raise


@pytest.mark.parametrize(
    ("ours", "spelled"),
    [
        ("select skep.now()", "select other.now()"),
        ("'skep.staged'::regclass", "'other.staged'::regclass"),
        ("where nspname = 'skep'", "where nspname = 'other'"),
        ("'skep'::regnamespace", "'other'::regnamespace"),
        ("create schema if not exists skep;", "create schema if not exists other;"),
        ("create schema skep_lake;", "create schema other_lake;"),
        ("grant usage on schema skep to me", "grant usage on schema other to me"),
        ("from skep_lake.iceberg_tables", "from other_lake.iceberg_tables"),
        ("pg_notify('skep_pushed', '')", "pg_notify('other_pushed', '')"),
        ("'skep' || substr(u.channel, 5)", "'other' || substr(u.channel, 5)"),
        ("current_setting('skep.fake_now', true)", "current_setting('other.fake_now', true)"),
        ("hashtext('skep.archive')", "hashtext('other.archive')"),
        ("execute 'delete from skep.%I'", "execute 'delete from other.%I'"),
        ("(null::skep.trace, skep.cursor[])", "(null::other.trace, other.cursor[])"),
    ],
)
def test_what_belongs_to_an_installation_is_named_after_its_schema(ours, spelled):
    assert OTHER.spelled(ours) == spelled


@pytest.mark.parametrize(
    "text",
    [
        "application_name like 'skep worker %'",
        "savepoint skep_turn",
        "select my_skep.x, askep.y, skeptic.z",
        "select pg_notify('pushed', '')",
    ],
)
def test_what_only_looks_alike_stays(text):
    assert OTHER.spelled(text) == text


def test_the_default_leaves_a_text_as_it_is_without_a_look_at_it():
    text = "select skep.now()"

    assert Schema().spelled(text) is text


@given(names)
def test_spelling_twice_is_spelling_once(name):
    schema = good_name(name)
    for sql in ("select skep.now()", "drop view skep.message, skep_lake.x", "schema skep"):
        assert schema.spelled(schema.spelled(sql)) == schema.spelled(sql)


def test_no_file_of_ours_names_the_default_after_it_was_spelled():
    texts = [*bundled.migrations(), *bundled.functions(), *bundled.views()]
    without_comments = [
        re.sub(r"--[^\n]*|/\*.*?\*/", "", OTHER.spelled(sql.text), flags=re.DOTALL) for sql in texts
    ]

    assert [code for code in without_comments if re.search(r"\bskep(?![ a-z0-9])", code)] == []


def test_what_lies_beside_the_schema_is_called_after_it():
    assert OTHER.called("skep_pushed") == "other_pushed"
    assert Schema().called("skep_pushed") == "skep_pushed"
    assert OTHER.called("mine") == "mine"


@pytest.mark.parametrize(
    "name",
    ["", "Upper", "a-b", "1a", "a b", 'a"b', "a.b", "a;b", "é", "a\n", "x" * (LENGTH_MAX + 1)],
)
def test_a_name_that_would_have_to_be_quoted_is_refused(name):
    with pytest.raises(InvalidSchemaName, match="plain name"):
        schema_named(name)


@pytest.mark.parametrize("name", ["select", "user", "table", "current_date"])
def test_a_reserved_word_is_refused(name):
    with pytest.raises(InvalidSchemaName, match="no word of SQL"):
        schema_named(name)


@pytest.mark.parametrize("name", ["public", "information_schema", "pg_catalog", "pg_mine"])
def test_a_schema_of_others_is_refused(name):
    with pytest.raises(InvalidSchemaName, match="belongs to"):
        schema_named(name)


def test_the_schema_of_another_archive_is_refused():
    with pytest.raises(InvalidSchemaName, match="archive"):
        schema_named("skep_lake")


@given(names, queries)
def test_a_url_carries_the_schema_and_gives_it_back(name, query):
    url = f"postgresql://u:p%3F@a,b:5/db{'?' if query else ''}{query}"

    assert split_schema(with_schema(url, name if good_name(name) else "")) == (url, Schema(name))


def test_a_url_without_a_schema_is_the_default_one_and_stays_as_it_is():
    url = "postgresql:///db?sslmode=disable"

    plain, schema = split_schema(url)

    assert plain is url
    assert schema.is_default
    assert with_schema(url, "skep") is url


def test_a_url_that_names_its_schema_first_keeps_the_rest():
    assert split_schema("postgresql://h/d?schema=a&sslmode=disable&b=1") == (
        "postgresql://h/d?sslmode=disable&b=1",
        Schema("a"),
    )


def test_a_url_and_a_setting_that_say_the_same_agree_and_others_are_refused():
    url = "postgresql://h/d?schema=billing"

    assert with_schema(url, "billing") == with_schema(url, "skep") == url
    with pytest.raises(InvalidSchemaName, match=r"billing.*shipping"):
        with_schema(url, "shipping")


def test_a_url_with_a_bad_schema_is_refused():
    with pytest.raises(InvalidSchemaName):
        split_schema("postgresql://h/d?schema=A%20B")
