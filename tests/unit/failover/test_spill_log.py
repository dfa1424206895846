"""A spill directory: appended to by many, drained by one, and whole after any death."""

import asyncio
import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from skep.model.errors import Overloaded
from skep.spill.log import SpillLog, SpillRefused
from skep.spill.records import FILE_HEAD_BYTES, Damaged, Found, SpillRecord
from skep.spill.writer import GATHERED_BYTES_MAX, SpillWriter, _Batch

MIB = 1 << 20


class Directory:
    """One spill directory, and the processes that have it open."""

    def __init__(self, path):
        self._path = path
        self._logs = []

    def __call__(self, **options):
        self._logs.append(SpillLog(self._path, **{"bytes_max": 64 * MIB, **options}))
        return self._logs[-1]

    def close(self, log):
        self._logs.remove(log)
        log.close()

    def close_all(self):
        for log in tuple(self._logs):
            self.close(log)


@pytest.fixture
def open_log(tmp_path):
    directory = Directory(tmp_path / "spill")
    yield directory
    directory.close_all()


@pytest.fixture
def reopen(open_log):
    """Open the directory as the first process after all others have died."""

    def reopen(*dead, **options):
        for log in dead:
            open_log.close(log)
        return open_log(**options)

    return reopen


def record(text, partition="p"):
    return SpillRecord("q", partition, text.encode())


def append(log, *texts, partition="p"):
    log.append([record(text, partition) for text in texts])


def read_all(log):
    """Return the texts of all records that are left, in order."""
    texts, position = [], log.board.drained
    while (portion := log.read(position, log.board.end, bytes_max=MIB)) is not None:
        texts += [p.record.envelope.decode() for p in portion.pieces if isinstance(p, Found)]
        position = portion.end
    return texts


def spill_files(log):
    return sorted(log.directory.glob("*.spill"))


def test_two_processes_make_one_log(open_log):
    one, other = open_log(), open_log()

    append(one, "a")
    append(other, "b")
    append(one, "c")
    one.sync()

    assert read_all(one) == read_all(other) == ["a", "b", "c"]
    assert one.board.pending == other.board.pending == 3


def test_a_partition_waits_from_the_append_until_it_is_drained_in_every_process(open_log):
    one, other = open_log(), open_log()
    append(one, "a", partition="busy")
    end = other.board.end

    assert other.board.has_backlog
    assert other.board.is_waiting(("q", "busy"))
    assert not other.board.is_waiting(("q", "idle"))

    one.board.note_drained(1, end)

    assert not other.board.is_waiting(("q", "busy"))
    assert not other.board.has_backlog


def test_another_file_begins_when_one_is_full_and_drained_ones_go(open_log):
    log = open_log(file_bytes=100)
    for text in ("a" * 60, "b" * 60, "c" * 60):
        append(log, text)
    assert len(spill_files(log)) > 1
    first = log.read(0, log.board.end, bytes_max=MIB)
    log.board.note_drained(len(first.pieces), first.end)

    removed = log.remove_drained()

    assert removed == [first.file_id]
    assert read_all(log) == ["c" * 60]
    log.board.note_drained(1, log.board.end)
    log.remove_drained()
    assert spill_files(log) == []
    append(log, "d")
    assert read_all(log) == ["d"]


def test_a_process_does_not_append_to_a_file_that_another_one_deleted(open_log):
    one, other = open_log(), open_log()
    append(one, "a")
    other.board.note_drained(1, other.board.end)
    other.remove_drained()

    append(other, "b")
    append(one, "c")

    assert read_all(one) == ["b", "c"]


def test_what_is_left_is_found_by_the_next_process(open_log, reopen):
    log = open_log()
    append(log, "a", "b")

    again = reopen(log)

    assert read_all(again) == ["a", "b"]
    assert again.board.pending == 2
    assert again.board.is_waiting(("q", "p"))


def test_a_torn_record_at_the_end_is_cut_at_the_start(reopen, caplog):
    log = reopen()
    append(log, "a", "b")
    (path,) = spill_files(log)
    os.truncate(path, path.stat().st_size - 3)

    again = reopen(log)
    append(again, "c")

    assert read_all(again) == ["a", "c"]
    assert "torn" in caplog.text


def test_bytes_that_a_dead_writer_left_are_cut_by_the_next_one(open_log):
    one, other = open_log(), open_log()
    append(one, "a")
    (path,) = spill_files(one)
    with path.open("ab") as file:
        file.write(b"half a record")

    append(other, "b")

    assert read_all(one) == ["a", "b"]


def test_damage_in_the_middle_is_told_apart_from_its_neighbours(reopen):
    log = reopen()
    append(log, "first", "second", "third")
    (path,) = spill_files(log)
    data = bytearray(path.read_bytes())
    data[data.find(b"second")] ^= 1
    path.write_bytes(data)

    again = reopen(log)
    portion = again.read(0, again.board.end, bytes_max=MIB)

    assert [type(piece) for piece in portion.pieces] == [Found, Damaged, Found]
    assert read_all(again) == ["first", "third"]
    damage = portion.pieces[1]
    assert b"cond" in again.read_raw(damage.start, damage.end)


def test_a_file_that_does_not_say_what_it_is_does_not_block_the_others(reopen):
    log = reopen(file_bytes=10)
    append(log, "a")
    append(log, "b")
    first, _ = spill_files(log)
    first.write_bytes(b"?" * FILE_HEAD_BYTES)

    again = reopen(log)

    assert read_all(again) == ["b"]
    assert again.rejected() == (1, FILE_HEAD_BYTES)


def test_a_record_larger_than_a_portion_is_read_whole(open_log):
    log = open_log()
    append(log, "a" * 5_000, "b")

    portion = log.read(0, log.board.end, bytes_max=100)

    assert len(portion.pieces[0].record.envelope) == 5_000
    assert read_all(log) == ["a" * 5_000, "b"]


def test_beyond_its_bound_the_spill_refuses_and_keeps_what_it_has(open_log):
    log = open_log(bytes_max=1_000)
    append(log, "a" * 600)

    with pytest.raises(SpillRefused, match="spill_bytes_max"):
        append(log, "b" * 600)

    assert read_all(log) == ["a" * 600]


def test_a_disk_that_is_full_refuses_and_takes_again_when_there_is_room(open_log):
    log = open_log()
    append(log, "a")
    (path,) = spill_files(log)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 200, limits[1]))
    try:
        with pytest.raises(SpillRefused, match="File too large"):
            append(log, "b" * 1_000)
        append(log, "c")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    append(log, "d" * 1_000)

    assert read_all(log) == ["a", "c", "d" * 1_000]


def test_a_file_whose_sync_failed_is_not_appended_to_again(open_log, monkeypatch):
    log = open_log()
    append(log, "a")

    def fail(_descriptor):
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(SpillRefused, match="cannot sync"):
        log.sync()
    monkeypatch.undo()
    append(log, "b")

    assert len(spill_files(log)) == 2
    assert read_all(log) == ["a", "b"]


def test_only_one_process_drains_and_its_death_lets_another(open_log):
    script = (
        "import sys, pathlib; from skep.spill.log import SpillLog\n"
        "log = SpillLog(pathlib.Path(sys.argv[1]), bytes_max=1000)\n"
        "print(log.try_lock_for_drain(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    log = open_log()
    command = [sys.executable, "-c", script, str(log.directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"True\n"
        assert not log.try_lock_for_drain()
        process.kill()

    assert log.try_lock_for_drain()


def test_what_is_set_aside_lies_beside_its_reason(open_log):
    log = open_log()
    append(log, "a")
    file_id = log.read(0, log.board.end, bytes_max=MIB).file_id

    path = log.set_aside(file_id, 17, b"bytes", "it was bad")

    assert path.read_bytes() == b"bytes"
    assert Path(str(path).replace(".rejected", ".reason")).read_text() == "it was bad\n"
    assert log.rejected() == (1, 5)


# Group commit


async def confirmed(writer, *texts):
    answer = asyncio.get_running_loop().create_future()
    writer.write([record(text) for text in texts], answer.set_result)
    return await answer


async def test_pushes_that_come_while_the_disk_is_busy_share_one_fsync(open_log, monkeypatch):
    log = open_log()
    writer = SpillWriter(log)
    loop = asyncio.get_running_loop()
    begun, go_on = asyncio.Event(), asyncio.Event()
    real = os.fsync

    def slow(descriptor):
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        real(descriptor)

    monkeypatch.setattr("os.fsync", slow)
    first = asyncio.ensure_future(confirmed(writer, "0"))
    await begun.wait()
    rest = [asyncio.ensure_future(confirmed(writer, str(number))) for number in range(1, 50)]
    await asyncio.sleep(0)
    go_on.set()

    assert await asyncio.gather(first, *rest) == [None] * 50
    await writer.close()
    assert writer.fsync_count == 2
    assert read_all(log) == [str(number) for number in range(50)]


async def test_nothing_is_confirmed_that_the_disk_refused(open_log):
    writer = SpillWriter(open_log(bytes_max=10))

    error = await confirmed(writer, "too large for this")

    assert isinstance(error, SpillRefused)
    await writer.close()


async def test_an_answer_that_fails_keeps_no_other_from_its_own(open_log):
    writer = SpillWriter(open_log())
    answers = []

    writer._confirm([_Batch((), 0, lambda _: [].pop()), _Batch((), 0, answers.append)], None)

    assert answers == [None]


async def test_one_batch_that_does_not_fit_costs_its_neighbours_nothing(open_log, monkeypatch):
    log = open_log(bytes_max=1_000)
    writer = SpillWriter(log)
    loop = asyncio.get_running_loop()
    begun, go_on = asyncio.Event(), asyncio.Event()
    real = SpillLog.sync

    def slow(self):
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        real(self)

    monkeypatch.setattr(SpillLog, "sync", slow)
    first = asyncio.ensure_future(confirmed(writer, "a"))
    await begun.wait()
    rest = [asyncio.ensure_future(confirmed(writer, text)) for text in ("b", "x" * 2_000, "c")]
    await asyncio.sleep(0)
    go_on.set()

    errors = await asyncio.gather(first, *rest)
    await writer.close()

    assert [error is None for error in errors] == [True, True, False, True]
    assert read_all(log) == ["a", "b", "c"]


async def test_a_disk_that_is_too_slow_bounds_what_waits_in_memory(open_log):
    writer = SpillWriter(open_log(bytes_max=2 * GATHERED_BYTES_MAX))
    writer.write([record("x" * GATHERED_BYTES_MAX)], lambda _: None)

    with pytest.raises(Overloaded):
        writer.write([record("y")], lambda _: None)

    await writer.close()
