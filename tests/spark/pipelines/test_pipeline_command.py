"""`skep pipeline` as a person uses it."""

import json
import warnings

import pytest
from typer.testing import CliRunner

from skep.cli.commands import app
from skep.cli.spark.pipeline import pipeline_app
from skep.model.errors import NotFound, Refused
from skep.spark.pipelines.pipeline import InvalidPipeline
from skep.spark.pipelines.registry import Progress, Registry
from skep.spark.runtime.postgres import CannotRead, forget_connections
from tests.spark.support.pipelines import CLOSING_MS, COUNTS, messages_of


@pytest.fixture
def skep(database_url):
    """Run a command; return what it printed, or raise what it raised."""

    def skep(*arguments, url=database_url):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Spark's own, when a session is asked for again
            ended = CliRunner(env={"COLUMNS": "200"}).invoke(
                app, ["pipeline", *arguments, "--database-url", url]
            )
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    yield skep
    forget_connections()


@pytest.fixture
def running(database_url):
    """A pipeline that somebody runs, as far as the record tells."""
    registry = Registry(database_url)
    registry.lock("counts")
    registry.begin(
        "counts", definition=b"{}", digest="h", checkpoint="/c", master="local", is_reset=False
    )
    yield registry
    registry.close()


@pytest.mark.slow
def test_a_pipeline_is_run_listed_and_shown(spark, skep, writer, tmp_path):
    writer.push({"at": 1_000, "n": 3}, {"at": CLOSING_MS, "n": 0})
    path = tmp_path / "counts.yaml"
    path.write_text(COUNTS)

    said = skep("run", str(path), "--data-dir", str(tmp_path), "--master", "local[2,2]")

    assert "counts: read 2 messages" in said
    assert [data["total"] for _, data in messages_of(writer, "counts")] == [3]
    assert (tmp_path / "pipelines" / "counts" / "queue" / "commits").is_dir()
    assert "stopped" in skep("list")
    shown = skep("status", "counts")
    assert "state: stopped" in shown
    assert "lag messages: 0" in shown
    assert str(tmp_path) in shown
    assert "is not running: it is stopped" in skep("stop", "counts")


def test_a_stop_is_heard_by_whoever_runs_it(skep, running):
    assert running.report("running", Progress(messages=5, rate=2.0))
    assert "counts" in skep("list")
    assert "Asked pipeline counts to stop" in skep("stop", "counts", "--wait", "0")
    assert not running.report("running", Progress())
    with pytest.raises(Refused, match=r"did not stop within 0\.3 s"):
        skep("stop", "counts", "--wait", "0.3")
    running.report("stopped", Progress())
    assert "is not running" in skep("stop", "counts")


def test_a_runner_that_is_gone_is_told_apart(skep, running, writer):
    writer.execute("update skep.pipeline set seen_at = now() - interval '1 hour'")

    assert "silent for 36" in skep("list")
    assert '"lagMessages":null' in skep("list", "-o", "ndjson")
    with pytest.raises(Refused, match="its process is gone"):
        skep("stop", "counts")


def test_a_run_hears_when_another_took_its_place(running, database_url, writer):
    writer.execute("update skep.pipeline set run_id = gen_random_uuid()")

    assert not running.report("running", Progress())


def test_a_run_that_lost_its_connection_gets_its_lock_again(running, database_url, writer):
    writer.execute(
        "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' "
        "and pid <> pg_backend_pid() and database = "
        "(select oid from pg_database where datname = current_database())"
    )

    assert running.report("running", Progress())
    assert running.report("running", Progress(position={"queue": [{"a": 1}]}))
    position = writer.value("select position::text from skep.pipeline")
    assert json.loads(position) == {"queue": [{"a": 1}]}
    other = Registry(database_url)
    with pytest.raises(Refused, match="is already running by"):
        other.lock("counts")
    other.close()


def test_mistakes_are_told_in_one_line(skep, tmp_path, empty_database_url):
    with pytest.raises(InvalidPipeline, match="cannot read"):
        skep("run", str(tmp_path / "missing.yaml"))
    with pytest.raises(NotFound, match="pipeline nothing does not exist"):
        skep("status", "nothing")
    with pytest.raises(NotFound, match="there is no pipeline nothing"):
        skep("stop", "nothing")
    with pytest.raises(CannotRead, match="skep migrate"):
        skep("list", url=empty_database_url)


def test_each_command_describes_itself():
    for command in ("run", "list", "status", "stop"):
        shown = CliRunner().invoke(pipeline_app, [command, "--help"])

        assert shown.exit_code == 0
        assert "--database-url" in shown.output
