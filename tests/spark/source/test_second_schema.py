"""Spark, the archive and pipelines' record in an installation in another schema of a database."""

import pytest

from skep.db.schema.migrate import migrate
from skep.model.schema_name import with_schema
from skep.spark.pipelines.registry import Registry
from skep.spark.runtime.postgres import forget_connections
from skep.spark.sink.options import write_options
from skep.spark.source.options import InvalidOption, read_options
from skep.spark.source.positions import Position
from tests.spark.support.archives import Shop
from tests.spark.support.logs import Writer
from tests.support.schema_switch import connect_to

OTHER = "billing"


@pytest.fixture
def other_url(arun, database_url):
    url = with_schema(database_url, OTHER)
    arun(migrate(url))
    yield url
    forget_connections()


@pytest.fixture
def other_writer(arun, other_url):
    """Somebody who pushes into the log of the other installation."""
    connection = arun(connect_to(other_url))
    yield Writer(connection, arun)
    arun(connection.close(timeout=5))


def test_a_frame_is_written_to_and_read_from_the_schema_that_is_named(
    spark, database_url, other_url, writer, other_writer
):
    writer.push("mine")
    chosen = {"url": database_url, "databaseSchema": OTHER, "queue": "orders"}
    frame = spark.createDataFrame(
        [("a", '"theirs"'), ("b", '"too"')], "partition string, payload string"
    )

    frame.write.format("skep").mode("append").options(**chosen).save()

    read = spark.read.format("skep").options(**chosen).load()
    assert sorted(row.payload for row in read.collect()) == ['"theirs"', '"too"']
    by_url = spark.read.format("skep").options(url=other_url, queue="orders").load()
    assert by_url.count() == 2
    here = spark.read.format("skep").options(url=database_url, queue="orders").load()
    assert [row.payload for row in here.collect()] == ['"mine"']
    assert writer.value("select count(*) from skep.sink") == 0
    assert other_writer.value("select count(*) from skep.sink") == 1


def test_archives_of_two_installations_share_a_warehouse_and_no_file(
    database_url, other_url, tmp_path, writer, other_writer
):
    here = Shop(database_url, tmp_path / "lake", writer)
    there = Shop(other_url, tmp_path / "lake", other_writer)
    here.push_old(1, 2)
    there.push_old(3)
    for shop in (here, there):
        shop.read_all()
        assert shop.archive().deleted

    assert (here.archived(), there.archived()) == ([1, 2], [3])
    assert (here.read(tier="all"), there.read(tier="all")) == ([1, 2], [3])
    with here.lake() as one, there.lake() as two:
        places = {one.table().location(), two.table().location()}
    assert len({place.rpartition("/")[0] for place in places}) == 2


def test_a_position_of_one_installation_is_refused_in_the_other(writer, other_writer):
    here = writer.value("select system from skep.take_position('{}')")
    there = other_writer.value("select system from skep.take_position('{}')")

    assert there == f"{here}:{OTHER}"
    text = f'{{"seen":"1:1:","checked":"1:1:","system":"{there}","taken":0}}'
    assert Position.parse(text).system == there


def test_pipelines_of_one_name_run_in_both_installations_at_once(database_url, other_url):
    here, there = Registry(database_url), Registry(other_url)
    try:
        here.lock("the same")
        there.lock("the same")
    finally:
        here.close()
        there.close()


@pytest.mark.parametrize("options_of", [read_options, write_options])
def test_a_schema_that_cannot_be_called_that_is_refused(options_of):
    with pytest.raises(InvalidOption, match="databaseSchema"):
        options_of({"url": "postgresql://h/d", "queue": "q", "databaseSchema": "A B"})


def test_the_settings_name_the_schema_where_they_name_the_database(monkeypatch):
    monkeypatch.setenv("SKEP_DATABASE_URL", "postgresql://h/d")
    monkeypatch.setenv("SKEP_DATABASE_SCHEMA", OTHER)

    assert read_options({"queue": "q"}).url == "postgresql://h/d?schema=billing"
    assert read_options({"queue": "q", "url": "postgresql://x/y"}).url == "postgresql://x/y"
