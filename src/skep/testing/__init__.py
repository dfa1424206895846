"""A running broker for tests, in one fixture.

With Skep installed pytest finds the fixtures by itself:

    def test_an_order_is_billed(skep_client, skep_queue):
        skep_client.push(skep_queue, {"total": 42})
        ...

`skep_broker` is the broker, started once per run on an embedded PostgreSQL of its own and gone
afterwards; `skep_client` a client of it, `skep_queue` the name of a queue that no other test uses.
Needs `skep[server]`. Tests that are not run by pytest use `running_broker`.
"""

from skep.testing.broker import BrokerNotStarted, RunningBroker, running_broker

__all__ = ["BrokerNotStarted", "RunningBroker", "running_broker"]
