"""`skep apply` against a broker."""

import pytest


@pytest.fixture
def declare(tmp_path):
    """Write a file of queues."""

    def declare(text, name="queues.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return declare


def test_a_file_makes_queues_once_and_then_nothing_differs(skep, api, queue, declare):
    file = declare(
        f"queues:\n  {queue}:\n    namespace: shop\n    paused: true\n"
        "    options: {leaseTime: 60, ackMode: individual}\n"
    )

    first = skep("apply", "-f", file, "--yes")
    second = skep("apply", "-f", file)

    assert first.out.splitlines() == [
        f"+ {queue}",
        '    namespace: "shop"',
        "    paused: true",
        "    leaseTime: 60",
        '    ackMode: "individual"',
        "Applied 1 change",
    ]
    assert second.out == "No changes\n"
    found = api.queues.describe(queue)
    assert (found["namespace"], found["isPaused"]) == ("shop", True)
    assert found["options"]["leaseTime"] == 60


def test_a_change_is_shown_and_carried_out(skep, api, queue, declare):
    api.queues.configure(queue, leaseTime=60, retryLimit=9)
    file = declare(f"queues: {{{queue}: {{options: {{leaseTime: 30}}}}}}")

    ended = skep("apply", "-f", file, "--yes")

    assert ended.out.splitlines() == [
        f"~ {queue}",
        "    leaseTime: 60 → 30",
        "    retryLimit: 9 → 3",
        "Applied 1 change",
    ]
    options = api.queues.configuration(queue).options
    assert (options.lease_time, options.retry_limit) == (30, 3)


@pytest.mark.parametrize(("flag", "code"), [("--dry-run", 0), ("--check", 1)])
def test_a_dry_run_changes_nothing_and_a_check_tells_by_its_exit_code(
    skep, api, queue, declare, flag, code
):
    api.queues.configure(queue)
    file = declare(f"queues: {{{queue}: {{options: {{ttl: 5}}}}}}")

    ended = skep("apply", "-f", file, flag, code=code)

    assert "ttl: 0 → 5" in ended.out
    assert api.queues.configuration(queue).options.ttl == 0


def test_without_a_yes_and_a_terminal_nothing_happens(skep, api, queue, declare):
    file = declare(f"queues: {{{queue}: {{}}}}")

    ended = skep("apply", "-f", file, code=1)

    assert "1 to create, 0 to change, 0 to delete" in ended.err
    assert "not found" in skep("queues", "show", queue, code=1).err


def test_what_is_not_declared_is_deleted_only_on_request(skep, api, queue, declare):
    space = f"{queue}-space"
    api.queues.configure(f"{queue}-old", namespace=space)
    api.queues.configure(f"{queue}-elsewhere", namespace="other")
    file = declare(f"queues: {{{queue}: {{namespace: {space}}}}}")

    kept = skep("apply", "-f", file, "--yes")
    pruned = skep("apply", "-f", file, "--prune", "--namespace", space, "--yes")

    assert "-old" not in kept.out
    assert pruned.out.splitlines() == [f"- {queue}-old", "Applied 1 change"]
    assert api.queues.configuration(f"{queue}-elsewhere").namespace == "other"
    assert "not found" in skep("queues", "show", f"{queue}-old", code=1).err


def test_a_namespace_without_prune_is_refused(skep, declare, queue):
    file = declare(f"queues: {{{queue}: {{}}}}")

    assert (
        "--namespace requires --prune" in skep("apply", "-f", file, "--namespace", "x", code=1).err
    )


def test_several_files_and_stdin_are_one_declaration(skep, queue, declare):
    one = declare(f"queues: {{{queue}-a: {{}}}}", "a.yaml")
    text = f"queues: {{{queue}-b: {{}}}}"

    ended = skep("apply", "-f", one, "-f", "-", "--yes", stdin=text)
    twice = skep("apply", "-f", one, "-f", one, code=1)

    assert ended.out.splitlines() == [f"+ {queue}-a", f"+ {queue}-b", "Applied 2 changes"]
    assert f"queue {queue}-a is declared twice" in twice.err


def test_programs_get_the_differences_as_json(skep, api, queue, declare):
    api.queues.configure(queue)
    file = declare(f"queues: {{{queue}: {{options: {{ttl: 5}}}}}}")

    (change,) = skep("apply", "-f", file, "--dry-run", "-o", "json").json()

    assert change == {
        "queue": queue,
        "action": "change",
        "members": [{"name": "ttl", "before": 0, "after": 5}],
    }


def test_a_file_that_cannot_be_read_is_named(skep, tmp_path):
    path = tmp_path / "none.yaml"

    assert f"cannot read {path}" in skep("apply", "-f", path, code=1).err
