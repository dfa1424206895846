"""`skep archive` as a person runs it, its tasks on a real Spark."""

import warnings
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from skep.cli.commands import app
from skep.cli.spark.archive import archive_app
from skep.model.errors import BadRequest, NotFound, Unavailable
from skep.spark.archive.lake import CannotArchive
from skep.spark.runtime.tasks import TaskFailed, run_on_spark
from tests.spark.support.archives import Shop


@pytest.fixture
def shop(database_url, tmp_path, writer):
    return Shop(database_url, tmp_path / "lake", writer)


def invoke(url, command, *arguments):
    """Run a command of `skep archive`; return what it printed, or raise what it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own, when a session is asked for again
        ended = CliRunner().invoke(app, ["archive", command, "--database-url", url, *arguments])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.fixture
def skep(shop):
    return lambda command, *arguments: invoke(shop.url, command, *arguments)


@pytest.mark.slow
def test_a_queue_goes_through_the_archive_by_commands(spark, shop, skep):
    for number in range(4):
        shop.push_old(number, partition=f"p{number}")
    shop.read_all()
    shop.push_old(9, queue="other")
    shop.configure(queue="other", archive_after_s=3600)
    shop.writer.push(4)

    said = skep("run", "--warehouse", shop.warehouse, "--queue", "orders", "--once")

    assert "Archived 4 messages of 1 queue in 1 file" in said
    assert "4 left the live log" in said
    assert "Archived 1 message of 1 queue" in skep("run")
    assert "Archived 0 messages" in skep("run")
    listed = skep("status")
    assert "orders" in listed
    assert "never" not in listed

    paths = skep("files", "--queue", "orders").split()
    plain = spark.read.parquet(*paths)
    assert sorted(row.payload for row in plain.collect()) == ["0", "1", "2", "3"]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert skep("files", "--since", tomorrow) == ""

    frame = (
        spark.read.format("skep")
        .option("url", shop.url)
        .option("queue", "orders")
        .option("tier", "all")
        .load()
    )
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.partition, row.payload) for row in rows] == [
        ("Default", "4"), ("p0", "0"), ("p1", "1"), ("p2", "2"), ("p3", "3"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_stream_of_spark_reads_both_tiers(spark, shop, tmp_path):
    shop.push_old(1, 2)
    shop.read_all()
    shop.archive(run_on_spark(lambda: spark))
    shop.writer.push(3)
    source = spark.readStream.format("skep").options(
        url=shop.url, queue="orders", tier="all", maxMessagesPerTrigger="2"
    )
    query = (
        source.load()
        .selectExpr("payload")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)

    found = spark.read.schema("payload string").parquet(str(tmp_path / "out")).collect()

    assert sorted(row.payload for row in found) == ["1", "2", "3"]
    assert len(query.recentProgress) >= 2


@pytest.mark.slow
def test_small_files_are_put_together_by_a_command(spark, shop, skep):
    for number in range(3):
        shop.push_old(number)
        shop.archive()

    said = skep("compact", "--keep", "0")

    assert "Compacted 3 files to 1" in said
    assert shop.archived() == [0, 1, 2]


@pytest.mark.slow
def test_what_a_task_says_when_it_fails_reaches_the_person(spark):
    def fail(task):  # in here, so that it travels by value: executors do not know this module
        raise CannotArchive(f"no room for {task}")

    with pytest.raises(TaskFailed, match=r"CannotArchive: no room for 7") as failure:
        run_on_spark(lambda: spark)([7], fail, lambda messages, size: None)

    assert "\n" not in failure.value.message


@pytest.mark.slow
def test_a_task_that_lost_the_database_says_so_and_is_not_taken_for_a_mistake(spark):
    def fail(task):
        raise Unavailable("the connection was lost")

    with pytest.raises(Unavailable, match=r"a task on Spark failed: .*the connection was lost"):
        run_on_spark(lambda: spark)([7], fail, lambda messages, size: None)


def test_mistakes_are_told_in_one_line(shop, skep, tmp_path):
    with pytest.raises(BadRequest, match="not both"):
        skep("run", "--once", "--every", "5")
    with pytest.raises(BadRequest, match="Invalid time"):
        skep("files", "--since", "yesterday")
    with pytest.raises(NotFound, match="there is no archive in this database yet"):
        skep("files")
    with pytest.raises(Unavailable, match="the database of the archive"):
        invoke("postgresql://x:y@127.0.0.1:1/z", "files")
    shop.push_old(1)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CannotArchive, match="the storage of the archive"):
        skep("run", "--warehouse", str(tmp_path / "file"))


def test_a_database_without_the_schema_is_told_to_migrate(empty_database_url, tmp_path):
    with pytest.raises(CannotArchive, match="skep migrate"):
        invoke(empty_database_url, "run", "--warehouse", str(tmp_path))


def test_each_command_describes_itself():
    for command in ("run", "compact", "files", "status"):
        shown = CliRunner().invoke(archive_app, [command, "--help"])

        assert shown.exit_code == 0
        assert "--database-url" in shown.output
