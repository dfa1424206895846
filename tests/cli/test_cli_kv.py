"""`skep kv` against a broker."""


def test_a_key_is_stored_shown_listed_and_deleted(skep, queue):
    stored = skep("kv", "put", queue, "a/1", '{"n": 1}', "--ttl", 60)
    shown = skep("kv", "get", queue, "a/1", "-o", "json").json()
    rows = skep("kv", "list", queue, "--prefix", "a/", "-o", "ndjson").ndjson()
    namespaces = skep("kv", "namespaces", "-o", "ndjson").ndjson()
    deleted = skep("kv", "delete", queue, "a/1", "--expect", shown["version"])

    assert stored.out == f"Stored {queue} a/1, version {shown['version']}\n"
    assert [shown["value"], rows[0]["value"]] == [{"n": 1}] * 2
    assert {"namespace": queue, "keys": 1} in namespaces
    assert deleted.out.startswith(f"Deleted {queue} a/1")
    assert skep("kv", "list", queue).err == f"No key of {queue} matches\n"


def test_a_number_is_counted_up_to_a_limit(skep, queue):
    assert skep("kv", "incr", queue, "n", 2, "--max", 2).out.startswith(f"{queue} n is 2")

    refused = skep("kv", "incr", queue, "n", "--max", 2, code=1)

    assert "the sum would be out of bounds" in refused.err


def test_a_lost_condition_a_missing_key_and_a_text_without_quotes_fail(skep, queue):
    skep("kv", "put", queue, "k", "1")

    lost = skep("kv", "put", queue, "k", "2", "--expect", 0, code=1)
    missing = skep("kv", "get", queue, "none", code=1)
    text = skep("kv", "put", queue, "k", "hello", code=1)

    assert "the key exists" in lost.err
    assert f"namespace {queue} has no key none" in missing.err
    assert "Put a text in quotes" in text.err
