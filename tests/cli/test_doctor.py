"""`skep doctor`: what it looks at, and what it says."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from skep.cli.server.doctor_checks import (
    judge_account,
    judge_disk,
    judge_duplicates,
    judge_refusal,
    judge_schema,
    judge_server,
    judge_version,
)
from skep.cli.shared.connection import Server
from skep.client import AccessDenied
from skep.db.embedded.cluster import ClusterDirectory
from skep.db.schema.migrate import SchemaState
from skep.db.schema.server import ServerFacts

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
WELL = ServerFacts(
    version="18.0",
    version_num=180_000,
    is_standby=False,
    clock=NOW,
    round_trip_s=0.0,
    role="skep",
    can_create_schema=True,
    owns_schema=True,
    connections_max=97,
    connections_used=10,
    connections_ours=8,
    connections_by={"brokers": 8, "psql": 2},
    size_bytes=1_000_000,
    extensions=(),
    settings={"fsync": "on", "synchronous_commit": "on"},
)


@pytest.fixture
def doctor(run, broker, tmp_path):
    """Run the doctor on the database of the broker."""

    def doctor(*arguments, code=0):
        ended = run(
            *("doctor", "--database-url", broker.database_url, "-o", "json", *arguments), code=code
        )
        return {finding["topic"]: finding for finding in ended.json()}, ended.err

    return doctor


def test_an_installation_that_is_well(doctor, broker):
    findings, _ = doctor("--url", broker.url)

    assert {finding["state"] for finding in findings.values()} <= {"ok", "warning"}
    expected = {"settings", "security", "version", "permissions", "connections", "clock"}
    expected |= {"extensions", "pooler", "migrations", "broker", "access", "peers"}
    expected |= {"broker settings"}
    assert expected <= findings.keys()
    assert findings["migrations"]["state"] == "ok"
    assert findings["broker"]["state"] == "ok"
    assert findings["broker settings"]["state"] == "ok"


def test_a_broker_on_another_database_than_the_one_examined_is_told(run, broker, tmp_path):
    findings = run("doctor", "--data-dir", tmp_path, "--url", broker.url, "-o", "json").json()

    (found,) = [each for each in findings if each["topic"] == "broker settings"]
    assert found["state"] == "warning"
    assert broker.database_url.rpartition("/")[2] in found["found"]


def test_in_a_pipe_a_finding_is_one_whole_line(run, broker):
    printed = run("doctor", "--database-url", broker.database_url, "--url", broker.url).out

    assert printed.splitlines()[0].split() == ["State", "Topic", "Found", "Advice"]
    assert all(line.startswith(("ok ", "warning ")) for line in printed.splitlines()[1:])


def test_a_broker_that_somebody_named_and_is_away_is_broken(doctor):
    findings, said = doctor("--url", "http://127.0.0.1:1", code=2)

    assert findings["broker"]["state"] == "broken"
    assert findings["broker"]["advice"]
    assert "1 of" in said


def test_a_database_that_is_away_is_broken(run):
    away = ("doctor", "--database-url", "postgresql://nobody@127.0.0.1:1/x")

    table = run(*away, code=2).out

    assert "cannot connect to PostgreSQL" in table
    assert "start PostgreSQL" in table


def test_an_embedded_database_that_does_not_run_is_a_warning(run, tmp_path):
    findings = run("doctor", "--data-dir", tmp_path, "-o", "json").json()

    (found,) = [each for each in findings if each["topic"] == "database"]
    assert found["state"] == "warning"


def test_settings_that_are_wrong_are_the_first_finding(run, monkeypatch):
    monkeypatch.setenv("SKEP_WORKERS", "many")

    findings = run("doctor", "-o", "json", code=2).json()

    assert (findings[0]["topic"], findings[0]["state"]) == ("settings", "broken")


def test_a_context_that_is_not_there_is_a_finding(run, tmp_path):
    findings = run(
        "doctor", "--data-dir", tmp_path, "--context", "nobody", "-o", "json", code=2
    ).json()

    assert "context nobody does not exist" in findings[-1]["found"]


def states(facts, wanted=12):
    return {each.topic: each.state for each in judge_server(facts, wanted=wanted, now=NOW)}


def test_a_server_that_is_well_has_no_advice():
    assert set(states(WELL).values()) == {"ok"}


@pytest.mark.parametrize(
    ("change", "topic", "state"),
    [
        ({"version_num": 130_000}, "version", "broken"),
        ({"is_standby": True}, "version", "broken"),
        ({"owns_schema": False}, "permissions", "warning"),
        ({"owns_schema": None, "can_create_schema": False}, "permissions", "broken"),
        ({"owns_schema": None}, "permissions", "ok"),
        ({"connections_used": 96}, "connections", "broken"),
        ({"connections_used": 75}, "connections", "warning"),
        ({"connections_used": 97, "connections_ours": 30}, "connections", "warning"),
        ({"connections_used": 40, "connections_ours": 30}, "connections", "ok"),
        ({"clock": NOW + timedelta(seconds=5)}, "clock", "warning"),
        ({"clock": NOW - timedelta(seconds=60)}, "clock", "broken"),
        ({"clock": NOW - timedelta(seconds=2), "round_trip_s": 4.0}, "clock", "ok"),
        ({"settings": {"fsync": "off"}}, "PostgreSQL settings", "warning"),
    ],
)
def test_what_is_wrong_with_a_server_is_found(change, topic, state):
    assert states(replace(WELL, **change))[topic] == state


def test_connections_that_run_out_are_told_with_who_has_them():
    users = {"brokers": 8, "skep-jobs": 60, "psql": 2, "unnamed": 12}
    facts = replace(WELL, connections_used=82, connections_by=users)

    (finding,) = [
        each for each in judge_server(facts, wanted=12, now=NOW) if each.topic == "connections"
    ]

    assert "82 of 97 in use (skep-jobs 60, unnamed 12, brokers 8)" in finding.found


@pytest.mark.parametrize(
    ("verdict", "migrates", "state"),
    [
        ("current", False, "ok"),
        ("behind", False, "broken"),
        ("behind", True, "warning"),
        ("ahead", True, "broken"),
    ],
)
def test_a_schema_is_judged_by_who_will_migrate_it(verdict, migrates, state):
    assert judge_schema(SchemaState(verdict, ("a",)), migrates=migrates).state == state


def account(**members):
    user = {"username": "ann", "role": "admin"}
    return {"authenticated": True, "user": user, "isRestricted": False, **members}


def test_an_account_is_judged_by_its_token():
    soon = (NOW + timedelta(hours=2)).isoformat()
    later = (NOW + timedelta(days=30)).isoformat()

    assert judge_account(account(authenticated=False)).state == "ok"
    assert judge_account(account()).state == "ok"
    assert judge_account(account(isRestricted=True, expiresAt=later), NOW).state == "ok"
    assert judge_account(account(expiresAt=soon), NOW).state == "warning"


def test_a_refusal_is_explained_by_what_was_sent():
    without = judge_refusal(AccessDenied(), Server(("u",), None, "--url", None))
    refused = judge_refusal(AccessDenied("expired"), Server(("u",), "t", "--url", "--token"))

    assert "there is none" in without.found
    assert "expired" in refused.found


def test_a_broker_of_another_version_deserves_a_word():
    assert judge_version("u", "99.0").state == "warning"


def test_a_full_disk_is_found(tmp_path, monkeypatch):
    assert judge_disk("data_dir", tmp_path / "not" / "yet").state == "ok"
    for free, state in ((1 << 30, "warning"), (1 << 20, "broken")):
        usage = type("Usage", (), {"free": free, "total": 1 << 40})
        monkeypatch.setattr("shutil.disk_usage", lambda _, usage=usage: usage)
        assert judge_disk("data_dir", tmp_path).state == state
    monkeypatch.setattr("os.access", lambda *_: False)
    assert judge_disk("data_dir", tmp_path).state == "broken"


def test_the_embedded_server_is_found_while_it_runs(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "password").write_text("p")
    directory = ClusterDirectory(tmp_path)

    assert directory.running_dsn() is None
    told = ["1", str(data), "0", "5433", "", "127.0.0.1", "0", "ready"]
    (data / "postmaster.pid").write_text("\n".join(told))
    assert directory.running_dsn() == "postgresql://skep:p@127.0.0.1:5433/skep"
    (data / "postmaster.pid").write_text("\n".join([*told[:-1], "stopping"]))
    assert directory.running_dsn() is None


def test_peers_are_looked_for(run, broker, monkeypatch, tmp_path):
    peers = f"{broker.url},http://127.0.0.1:1,127.0.0.1:6700,no-such-host.invalid:6700"
    monkeypatch.setenv("SKEP_PEERS", peers)
    monkeypatch.setenv("SKEP_PEER_SECRET", "a secret of thirty-two bytes or more")

    findings = run("doctor", "--data-dir", tmp_path, "-o", "json", code=2).json()

    states = [each["state"] for each in findings if each["topic"] == "peers"]
    assert sorted(states) == ["broken", "ok", "ok", "warning"]


def duplicate_metrics(lacking_s=0, keys=0, keys_max=1_000):
    labels = frozenset({("worker", "0")})
    return {
        "skep_dedup_lacking_seconds": {labels: lacking_s},
        "skep_dedup_keys": {labels: keys},
        "skep_dedup_keys_max": {labels: keys_max},
    }


@pytest.mark.parametrize(
    ("metrics", "state"),
    [
        (duplicate_metrics(keys=600), "ok"),
        (duplicate_metrics(keys=700), "warning"),
        (duplicate_metrics(lacking_s=60), "warning"),
    ],
    ids=["room", "nearly full", "too much"],
)
def test_ids_that_need_more_memory_than_allowed_are_warned_of_before(metrics, state):
    [finding] = judge_duplicates(metrics)

    assert finding.state == state


def test_a_broker_without_figures_about_duplicates_is_not_judged():
    assert list(judge_duplicates({name: {} for name in duplicate_metrics()})) == []
