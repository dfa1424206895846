"""The wire contract: every route that clients, command line or dashboard of Queen MQ may call.

Data, and the question which of the document's operations it names. Sections are those of the wire
reference.
"""

import re
from typing import Final, NamedTuple


class ContractRoute(NamedTuple):
    """One route of the contract."""

    method: str
    path: str
    section: str

    @property
    def shape(self) -> tuple[str, str]:
        """What it is compared by."""
        return route_shape(self.method, self.path)


_PARAMETER: Final = re.compile(r"\{[^}]*\}")


def route_shape(method: str, path: str) -> tuple[str, str]:
    """Return a route without the names of its parameters, which do not matter here."""
    return method.upper(), _PARAMETER.sub("{}", path)


_TABLE: Final = """\
2.1   POST        /api/v1/configure
2.2   POST        /api/v1/push
2.3   GET         /api/v1/pop/queue/{queue}
2.4   GET         /api/v1/pop/queue/{queue}/partition/{partition}
2.5   GET         /api/v1/pop
2.6   POST        /api/v1/ack
2.7   POST        /api/v1/ack/batch
2.8   POST        /api/v1/transaction
2.9   POST        /api/v1/lease/{leaseId}/extend
2.10  GET         /api/v1/resources/queues
2.10  GET,DELETE  /api/v1/resources/queues/{queue}
2.10  GET         /api/v1/resources/namespaces
2.10  GET         /api/v1/resources/tasks
2.10  GET         /api/v1/resources/overview
2.10  GET         /api/v1/resources/partitions
2.11  GET         /api/v1/messages
2.11  GET,DELETE  /api/v1/messages/{partitionId}/{transactionId}
2.11  POST        /api/v1/messages/{partitionId}/{transactionId}/retry
2.11  POST        /api/v1/messages/{partitionId}/{transactionId}/dlq
2.12  GET         /api/v1/dlq
12.2  POST        /api/v1/dlq/{dlqId}/replay
2.13  POST        /api/v1/traces
2.13  GET         /api/v1/traces/{partitionId}/{transactionId}
2.13  GET         /api/v1/traces/by-name/{traceName}
2.13  GET         /api/v1/traces/names
2.14  GET         /api/v1/consumer-groups
2.14  GET         /api/v1/consumer-groups/lagging
2.14  GET,DELETE  /api/v1/consumer-groups/{group}
2.14  POST        /api/v1/consumer-groups/{group}/subscription
2.14  DELETE      /api/v1/consumer-groups/{group}/queues/{queue}
2.14  POST        /api/v1/consumer-groups/{group}/queues/{queue}/seek
2.14  POST        /api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek
2.14  POST        /api/v1/stats/refresh
2.15  GET         /api/v1/status
2.15  GET         /api/v1/status/queues
2.15  GET         /api/v1/status/queues/{queue}
2.15  GET         /api/v1/status/queues/{queue}/messages
2.15  GET         /api/v1/status/analytics
2.15  GET         /api/v1/status/buffers
2.16  GET         /api/v1/analytics/system-metrics
2.16  GET         /api/v1/analytics/worker-metrics
2.16  GET         /api/v1/analytics/queue-lag
2.16  GET         /api/v1/analytics/queue-ops
2.16  GET         /api/v1/analytics/queue-parked-replicas
2.16  GET         /api/v1/analytics/retention
2.16  GET         /api/v1/analytics/postgres-stats
2.17  GET         /health
2.17  GET         /metrics
2.17  GET         /metrics/prometheus
2.18  GET,POST    /api/v1/system/maintenance
2.18  GET,POST    /api/v1/system/maintenance/pop
2.18  GET         /api/v1/system/shared-state
2.18  GET         /internal/api/shared-state/stats
2.18  GET         /internal/api/inter-instance/stats
2.18  POST        /internal/api/notify
2.18  POST        /api/v1/migration/test-connection
2.18  POST        /api/v1/migration/start
2.18  GET         /api/v1/migration/status
2.18  POST        /api/v1/migration/validate
2.18  POST        /api/v1/migration/reset
2.19  POST        /streams/v1/queries
2.19  POST        /streams/v1/cycle
2.19  POST        /streams/v1/state/get
2.21  DELETE      /api/v1/queues/{queue}/clear
2.21  GET         /api/me
2.21  POST        /api/logout
"""
CONTRACT: Final = tuple(
    ContractRoute(method, path, section)
    for section, methods, path in map(str.split, _TABLE.splitlines())
    for method in methods.split(",")
)
