"""`skep push`: what it stores, what it says, and what it does when the broker is away."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import pytest

from skep.cli import main
from skep.cli.messages.push_lines import Batch, Line, Patience, push_bar
from skep.client import Stopped
from skep.model.errors import Overloaded, Unavailable
from tests.faults.support.instances import instance


def lines_file(tmp_path, lines, name="orders.ndjson"):
    file = tmp_path / name
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def numbers(count):
    return [json.dumps({"n": n, "customer": f"c{n % 3}"}) for n in range(count)]


def taken(api, queue, **options):
    return api.pop(queue, batch=1000, partitions=0, **options)


def test_payloads_are_stored_and_their_ids_printed(skep, api, queue):
    rows = skep("push", queue, '{"a": 1}', "[2]", "-o", "json").json()

    assert [row["status"] for row in rows] == ["queued", "queued"]
    assert [message.data for message in taken(api, queue)] == [{"a": 1}, [2]]
    assert "queued" in skep("push", queue, "1").out


def test_a_payload_has_partition_headers_and_id(skep, api, queue):
    arguments = ("push", queue, "--text", "hello", "--partition", "p", "--header", "a=b=c")
    skep(*arguments, "--transaction-id", "t", "--ttl", "60")
    again = skep(*arguments, "--transaction-id", "t", "-o", "ndjson").ndjson()

    assert again[0]["status"] == "duplicate"
    (message,) = taken(api, queue)
    assert (message.data, message.partition, message.headers) == ("hello", "p", {"a": "b=c"})


def test_a_delayed_payload_waits(skep, api, queue):
    (row,) = skep("push", queue, "1", "--delay", "600", "-o", "json").json()

    assert row["status"] == "scheduled"
    assert taken(api, queue) == []


def test_a_file_is_stored_once_however_often_it_is_pushed(skep, api, queue, tmp_path):
    file = lines_file(tmp_path, numbers(25))
    arguments = ("push", queue, "--file", file, "--batch", "10")

    assert "25 lines" in skep(*arguments).out
    counts = skep(*arguments, "-o", "json").json()
    assert (counts["lines"], counts["queued"], counts["duplicate"]) == (25, 0, 25)
    assert counts["complete"]
    assert [message.data["n"] for message in taken(api, queue)] == list(range(25))


def test_equal_lines_and_other_files_are_other_messages(skep, api, queue, tmp_path):
    skep("push", queue, "-f", lines_file(tmp_path, ["1", "1"], "a.ndjson"))
    skep("push", queue, "-f", lines_file(tmp_path, ["1", "2"], "b.ndjson"))

    assert [message.data for message in taken(api, queue)] == [1, 1, 1, 2]


def test_a_file_that_is_not_there_is_not_taken_for_a_queue(run):
    assert "file orders.ndjson does not exist" in run("push", "orders.ndjson", code=1).err


def test_a_file_alone_goes_to_the_queue_of_its_name(skep, api, queue, tmp_path):
    said = skep("push", lines_file(tmp_path, ["1"], f"{queue}.ndjson"))

    assert f"to queue {queue}" in said.err
    assert [message.data for message in taken(api, queue)] == [1]


def test_lines_come_from_stdin_and_blank_ones_bring_nothing(skep, api, queue):
    counts = skep("push", queue, "-o", "json", stdin='1\n\n  \n"two"').json()

    assert (counts["lines"], counts["queued"]) == (2, 2)
    assert [message.data for message in taken(api, queue)] == [1, "two"]


def test_ids_come_from_a_prefix_or_a_field(skep, api, queue):
    skep("push", queue, "--id-prefix", "run-7", stdin="1\n2\n")
    skep("push", queue, "--id-field", "order.id", stdin='{"order": {"id": 5}}\n')

    found = [message.transaction_id for message in taken(api, queue)]
    assert found == ["run-7-1", "run-7-2", "5"]


def test_the_partition_is_what_a_field_says(skep, api, queue, tmp_path):
    skep("push", queue, "-f", lines_file(tmp_path, numbers(9)), "--partition-key", "customer")

    for message in taken(api, queue):
        assert message.partition == message.data["customer"]


def test_lines_that_are_refused_are_counted_and_written_down(skep, api, queue, tmp_path):
    api.queues.configure(queue, jsonSchema={"type": "object", "required": ["n"]})
    lines = ['{"n": 1}', "no json", '{"m": 1}', '{"n": 2}', '{"n": 3}']
    file = lines_file(tmp_path, lines)
    rejects = tmp_path / "rejects.ndjson"

    ended = skep("push", queue, "-f", file, "--rejects", rejects, "-o", "json", code=1)

    counts = ended.json()
    assert (counts["lines"], counts["queued"], counts["rejected"]) == (5, 3, 2)
    assert "rejected 2 lines, first line 2: not JSON" in ended.err
    first, second = (json.loads(line) for line in rejects.read_text().splitlines())
    assert (first["line"], first["text"]) == (2, "no json")
    assert (second["line"], second["payload"]) == (3, {"m": 1})
    assert [message.data["n"] for message in taken(api, queue)] == [1, 2, 3]


def test_a_line_without_its_field_is_refused(skep, queue):
    said = skep("push", queue, "--partition-key", "customer", stdin="{}\n7\n", code=1)

    assert "0 queued" in said.out
    assert "line 1: field customer" in said.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("1", "--file", "x"), "not both"),
        (("1", "--partition", "a", "--partition-key", "b"), "not both"),
        (("1", "2", "--transaction-id", "t"), "single payload"),
        (("1", "--transaction-id", "t", "--id-prefix", "p"), "pass only one of"),
        (("1", "--header", "novalue"), "NAME=VALUE"),
        (("--file", "no-such-file"), "cannot open"),
        (("--file", os.devnull, "--rejects", "/no/such/place"), "cannot open"),
        (("no json",), "not JSON"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_pushed(skep, api, queue, arguments, told):
    assert told in skep("push", queue, *arguments, code=1).err
    assert taken(api, queue) == []


def test_without_payloads_at_a_terminal_there_is_nothing_to_push(config_home, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))

    assert main(["push", "q"]) == 1
    assert "nothing to push" in capsys.readouterr().err


def test_a_push_that_gives_up_says_how_far_it_came(run, tmp_path):
    file = lines_file(tmp_path, numbers(5))

    ended = run(
        "push",
        "q",
        "-f",
        file,
        "--give-up",
        "0",
        "--url",
        "http://127.0.0.1:1",
        "-o",
        "json",
        code=2,
    )

    assert ended.json()["complete"] is False
    assert "127.0.0.1:1" in ended.err


async def test_a_push_outlives_a_broker_that_is_killed(broker, tmp_path):
    count = 5_000
    file = lines_file(tmp_path, numbers(count), "bulk.ndjson")
    async with broker.sql() as sql:
        with instance(broker.database_url, "--workers", "1") as killed:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "skep", "push", str(file), "-o", "json"),
                *("--batch", "50", "--url", killed.url),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(100):
                while not await _stored(sql):
                    pass
        assert await _stored(sql) < count
        with instance(broker.database_url, "--workers", "1", "--port", str(killed.port)):
            said, complained = await asyncio.wait_for(process.communicate(), 100)
        assert process.returncode == 0, complained.decode()
        counts = json.loads(said)
        assert await _stored(sql) == count
    assert counts["lines"] == counts["queued"] + counts["duplicate"] == count
    assert (counts["rejected"], counts["complete"]) == (0, True)


async def _stored(sql):
    return await sql.fetchval(
        "select coalesce(sum(head - tail + 1), 0)::int from skep.partition"
        " join skep.queue on queue.id = queue_id where queue.name = 'bulk'"
    )


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_patience_ends_when_nothing_worked_for_too_long():
    clock, told = Clock(), []
    patience = Patience(10, on_wait=told.append, clock=clock)

    patience.wait(Unavailable("away"))
    clock.now = 9.0
    patience.succeed()
    patience.wait(Unavailable("away"))
    clock.now = 18.9
    patience.wait(Unavailable("away"))
    clock.now = 19.0
    with pytest.raises(Unavailable):
        patience.wait(Unavailable("away"))
    assert told == ["away"] * 3


def test_patience_ends_when_somebody_asks():
    patience = Patience(10, on_wait=lambda _: None)
    patience.end()

    with pytest.raises(Stopped):
        patience.wait(Overloaded(retry_after_s=60))


def test_a_terminal_shows_how_far_a_push_is(skep, broker, queue, tmp_path):
    file = lines_file(tmp_path, numbers(300))
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "skep", "push", queue, "-f", file, "--batch", "100"],
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm-256color"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        timeout=100,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 20).decode()
    os.close(ours)

    assert done.stdout.startswith("300 lines")
    assert "orders.ndjson" in shown
    assert "100%" in shown
    assert "300 lines" in shown


def test_a_bar_says_what_is_waited_for():
    with push_bar("orders", None) as bar:
        bar.advance(Batch([Line(1, b"1")], [], [], 2))
        bar.wait("away")

        assert bar._progress.tasks[0].fields["said"] == "1 line; waiting: away"
