"""Windows on Spark are those of the streams SDK: the same messages, both through this broker."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import asyncpg
import pytest

from skep.spark.runtime.postgres import forget_connections
from tests.compat import conftest as compat
from tests.spark.support.logs import Writer
from tests.spark.support.pipelines import Pipelines, messages_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SDK = Path(__file__).parents[1] / "support" / "sdk_windows.py"
SDK_S = 300
SHAPES = {
    "tumbling": "{kind: tumbling, size: 7s",
    "sliding": "{kind: sliding, size: 9s, slide: 3s",
    "session": "{kind: session, gap: 2s",
}

install_client = compat.install_client


def windows_of_the_sdk(client, url, queue, seed):
    run = subprocess.run(
        [sys.executable, str(SDK), url, queue, str(seed)],
        env={**os.environ, "PYTHONPATH": str(client)},
        capture_output=True,
        text=True,
        timeout=SDK_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def definition(queue, kind):
    source = f"{queue}-{'ordered' if kind == 'session' else 'mixed'}"
    numbers = "count: count(*), sum: sum(payload.n), min: min(payload.n), max: max(payload.n)"
    return f"""
name: {queue}-{kind}
sources:
  messages:
    queue: {source}
    schema: at BIGINT, n BIGINT, key STRING
    eventTime: timestamp_millis(payload.at)
    watermark: 5s
window: {SHAPES[kind]}, by: [partition, payload.key], aggregate: {{{numbers}}}}}
sink: {{queue: {queue}-spark-{kind}}}
trigger: availableNow
"""


def milliseconds(text):
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def windows_of_spark(writer, queue, kind):
    return [
        [
            partition,
            data["key"],
            milliseconds(data["window_start"]),
            milliseconds(data["window_end"]),
            *(data[name] for name in ("count", "sum", "min", "max")),
        ]
        for partition, data in messages_of(writer, f"{queue}-spark-{kind}")
    ]


def test_random_messages_fall_into_the_same_windows(
    spark, broker, queue, install_client, arun, tmp_path
):
    expected = windows_of_the_sdk(install_client("1.3.0"), broker.url, queue, seed=20_261_115)
    connection = arun(asyncpg.connect(broker.database_url))
    writer = Writer(connection, arun)
    try:
        for kind in SHAPES:
            Pipelines(broker.database_url, tmp_path / kind).run(definition(queue, kind))

            found = windows_of_spark(writer, queue, kind)

            assert len(found) > 50
            assert sorted(found) == sorted(expected[kind])
    finally:
        writer.close()
        forget_connections()
