"""`skep timers` against a broker."""


def test_a_timer_is_scheduled_shown_listed_replaced_and_cancelled(skep, queue):
    scheduled = skep("timers", "schedule", queue, "a/1", '{"n": 1}', "--delay", 600)
    shown = skep("timers", "get", queue, "a/1", "-o", "json").json()
    rows = skep("timers", "list", queue, "-o", "ndjson").ndjson()
    replaced = skep("timers", "schedule", queue, "a/1", "2", "--delay", 60, "--partition", "p")
    cancelled = skep("timers", "cancel", queue, "a/1")

    assert scheduled.out.startswith(f"Scheduled a/1 of {queue} for 20")
    assert (shown["payload"], shown["partition"]) == ({"n": 1}, "Default")
    assert [row["timerKey"] for row in rows] == ["a/1"]
    assert replaced.out.startswith(f"Rescheduled a/1 of {queue}")
    assert cancelled.out == f"Cancelled a/1 of {queue}\n"
    assert skep("timers", "list", queue).err == f"No timer of {queue} waits\n"


def test_a_timer_that_does_not_wait_and_a_text_without_quotes_fail(skep, queue):
    missing = skep("timers", "get", queue, "k", code=1)
    gone = skep("timers", "cancel", queue, "k", code=1)
    text = skep("timers", "schedule", queue, "k", "hello", "--delay", 1, code=1)

    assert f"no timer k of {queue} waits" in missing.err
    assert "it fired, or was cancelled" in gone.err
    assert "Put a text in quotes" in text.err
