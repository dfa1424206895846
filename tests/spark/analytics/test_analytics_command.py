"""`skep analytics` as a person runs it."""

import json
import warnings
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from skep.cli.commands import app
from skep.model.errors import BadRequest
from skep.spark.runtime.postgres import forget_connections

pytestmark = pytest.mark.slow


@pytest.fixture
def skep(database_url):
    """Run `skep analytics`; return what it printed, or raise what it raised."""

    def invoke(command, *arguments):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Spark's own, when a session is asked for again
            flags = ["--database-url", database_url, *arguments]
            ended = CliRunner().invoke(app, ["analytics", command, *flags])
        if ended.exception is not None:
            raise ended.exception
        return ended.stdout

    yield invoke
    forget_connections()


def test_a_person_computes_hours_and_asks_how_far_they_are(spark, skep, writer, tmp_path):
    past = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
    writer.value("select set_config('skep.fake_now', $1, false)", past)
    writer.push(1, 2, 3)
    assert skep("status") == ""  # it is said on stderr

    told = skep("run", "--warehouse", str(tmp_path), "--from", past)

    assert "3 messages" in told
    assert "no lake" not in told
    assert "Computed up to" in skep("status")
    assert json.loads(skep("status", "-o", "json"))["messages"] >= 0
    assert "Nothing to do" in skep("run")
    assert "no lake" not in skep("run", "--queue", "orders", "--from", past)


def test_what_makes_no_sense_is_refused_with_one_line(skep):
    with pytest.raises(BadRequest, match="Invalid time"):
        skep("run", "--from", "yesterday")
    with pytest.raises(BadRequest, match="when it is over"):
        skep("run", "--to", "2999-01-01")
