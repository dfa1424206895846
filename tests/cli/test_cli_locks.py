"""`skep locks` against a broker."""

from skep.client import Client


def test_the_holder_of_a_lock_is_shown_and_a_lock_is_taken_back(skep, broker, queue):
    with Client(broker.url) as client:
        lock = client.lock(queue, ttl_s=60, owner="worker-1", renews=False)
        assert lock.acquire()
        [row] = skep("locks", "get", queue, "-o", "ndjson").ndjson()
        released = skep("locks", "release", queue)

        assert (row["slot"], row["owner"], row["token"]) == (0, "worker-1", lock.token)
        assert released.out == f"Released {queue} of worker-1\n"
        assert not lock.renew()


def test_a_free_lock_has_no_holder(skep, queue):
    assert skep("locks", "get", queue).err == f"The lock {queue} is free\n"
    assert f"the lock {queue} is free" in skep("locks", "release", queue, code=1).err
