"""Writers that commit late and a reader that is killed, each message is read once.

The long form, of 200,000 messages, is `python -m benchmarks.spark.late_commits`.
"""

import json

import pytest

from benchmarks.spark.late_commits import check, run
from benchmarks.spark.victims import LedgerBroken

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_what_many_late_writers_commit_is_read_once_by_a_reader_that_is_killed(
    database_url, tmp_path, arun
):
    found = arun(run(database_url, tmp_path, writers=20, messages=3_000, seconds=3, seed=5))

    assert "each message once" in found


def test_the_ledger_notices_what_is_missing_twice_or_otherwise(tmp_path):
    for number, payloads in enumerate([[1, 2], [3]]):
        (tmp_path / f"plan-{number}").write_text(json.dumps(["start", "end", 7]))
        (tmp_path / f"read-{number}-7").write_text(json.dumps(payloads))
    assert check(tmp_path, [1, 2, 3]) == (2, 0)

    for committed in ([1, 2, 3, 4], [1, 2], [1, 2, 3, 3]):
        with pytest.raises(LedgerBroken):
            check(tmp_path, committed)
    (tmp_path / "read-1-8").write_text(json.dumps([3]))
    assert check(tmp_path, [1, 2, 3]) == (2, 1)
    (tmp_path / "read-1-9").write_text(json.dumps([3, 4]))
    with pytest.raises(LedgerBroken, match="was another one"):
        check(tmp_path, [1, 2, 3])
