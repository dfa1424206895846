import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.db.schema.catalog import bundled, statement
from skep.model.errors import Defect
from tests.support.sql_source import sql_source


def names(texts):
    return [sql.name for sql in texts]


def test_migrations_come_in_the_order_of_their_numbers():
    source = sql_source({"migrations/0010_b.sql": "", "migrations/0002_c.sql": ""})

    assert [sql.number for sql in source.migrations()] == [2, 10]


def test_two_migrations_with_one_number_are_a_defect_that_names_both():
    source = sql_source({"migrations/0001_a.sql": "", "migrations/0001_b.sql": ""})

    with pytest.raises(Defect, match=r"migrations/0001_a\.sql and migrations/0001_b\.sql"):
        source.migrations()


@pytest.mark.parametrize("path", ["1_a", "0001-a", "0001_A", "00001_a", "0001_"])
def test_a_migration_with_a_malformed_name_is_a_defect(path):
    source = sql_source({f"migrations/{path}.sql": ""})

    with pytest.raises(Defect, match=path):
        source.migrations()


def test_files_other_than_sql_are_not_read():
    source = sql_source({"functions/README.md": "", "functions/greet.sql": ""})

    assert names(source.functions()) == ["greet"]


def test_a_source_without_directories_is_empty():
    source = sql_source({})

    assert (source.migrations(), source.functions(), source.views()) == ([], [], [])


def test_a_view_comes_after_the_views_it_reads():
    source = sql_source(
        {
            "views/a.sql": "create view skep.a as select * from skep.c",
            "views/b.sql": "create view skep.b as select 1",
            "views/c.sql": "create view skep.c as select * from skep.b",
        }
    )

    assert names(source.views()) == ["b", "c", "a"]


def test_a_view_named_in_a_comment_is_not_read():
    source = sql_source(
        {
            "views/a.sql": "/* like\nskep.b */ create view skep.a as select 1 -- not skep.b",
            "views/b.sql": "create view skep.b as select * from skep.a",
        }
    )

    assert names(source.views()) == ["a", "b"]


def test_views_in_a_circle_are_a_defect():
    source = sql_source({"views/a.sql": "from skep.b", "views/b.sql": "from skep.a"})

    with pytest.raises(Defect, match="circle"):
        source.views()


@given(text=st.text(), other=st.text())
def test_the_checksum_tells_texts_apart(text, other):
    first, second = sql_source({"functions/f.sql": text}), sql_source({"functions/f.sql": other})

    checksums = {source.functions()[0].checksum for source in (first, second)}

    assert len(checksums) == len({text, other})


def test_a_statement_is_found_by_name():
    assert sql_source({"statements/one.sql": "select 1"}).statement("one") == "select 1"


def test_a_missing_statement_is_a_defect_that_names_the_file():
    with pytest.raises(Defect, match=r"statements/no_such\.sql"):
        statement("no_such")


def test_the_package_carries_its_migrations():
    assert bundled.migrations()
