"""`skep fetch` against a broker."""


def test_messages_are_shown_from_an_offset_on_and_stay(skep, queue):
    for number in range(3):
        skep("push", queue, str(number))

    shown = skep("fetch", queue, "--offset", 2, "-o", "ndjson")
    first = skep("fetch", queue, "--limit", 1, "-o", "ndjson")

    assert [(each["offset"], each["payload"]) for each in shown.ndjson()] == [(2, 1), (3, 2)]
    assert "Next offset: 4" in shown.err
    assert [each["payload"] for each in first.ndjson()] == [0]
    assert "Next offset: 2" in first.err
    assert len(skep("pop", queue, "--batch", 9, "-o", "ndjson").ndjson()) == 3


def test_a_time_is_a_start_and_nothing_to_read_is_said(skep, queue):
    skep("push", queue, "1")

    shown = skep("fetch", queue, "--from", "1h", "-o", "ndjson").ndjson()
    later = skep("fetch", queue, "--from", "2999-01-01", code=4)
    missing = skep("fetch", f"{queue}-none", code=1)

    assert [each["payload"] for each in shown] == [1]
    assert "no message in" in later.err.lower()
    assert "there is no queue" in missing.err
