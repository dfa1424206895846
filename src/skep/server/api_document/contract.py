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


_GROUP: Final = "/api/v1/consumer-groups/{group}"
_MESSAGE: Final = "/api/v1/messages/{partitionId}/{transactionId}"
_ANALYTICS: Final = "/api/v1/analytics"
_MAINTENANCE: Final = "/api/v1/system/maintenance"
_MIGRATION: Final = "/api/v1/migration"

CONTRACT: Final = (
    ContractRoute("POST", "/api/v1/configure", "2.1"),
    ContractRoute("POST", "/api/v1/push", "2.2"),
    ContractRoute("GET", "/api/v1/pop/queue/{queue}", "2.3"),
    ContractRoute("GET", "/api/v1/pop/queue/{queue}/partition/{partition}", "2.4"),
    ContractRoute("GET", "/api/v1/pop", "2.5"),
    ContractRoute("POST", "/api/v1/ack", "2.6"),
    ContractRoute("POST", "/api/v1/ack/batch", "2.7"),
    ContractRoute("POST", "/api/v1/transaction", "2.8"),
    ContractRoute("POST", "/api/v1/lease/{leaseId}/extend", "2.9"),
    ContractRoute("GET", "/api/v1/resources/queues", "2.10"),
    ContractRoute("GET", "/api/v1/resources/queues/{queue}", "2.10"),
    ContractRoute("DELETE", "/api/v1/resources/queues/{queue}", "2.10"),
    ContractRoute("GET", "/api/v1/resources/namespaces", "2.10"),
    ContractRoute("GET", "/api/v1/resources/tasks", "2.10"),
    ContractRoute("GET", "/api/v1/resources/overview", "2.10"),
    ContractRoute("GET", "/api/v1/resources/partitions", "2.10"),
    ContractRoute("GET", "/api/v1/messages", "2.11"),
    ContractRoute("GET", _MESSAGE, "2.11"),
    ContractRoute("DELETE", _MESSAGE, "2.11"),
    ContractRoute("POST", f"{_MESSAGE}/retry", "2.11"),
    ContractRoute("POST", f"{_MESSAGE}/dlq", "2.11"),
    ContractRoute("GET", "/api/v1/dlq", "2.12"),
    ContractRoute("POST", "/api/v1/dlq/{dlqId}/replay", "12.2"),
    ContractRoute("POST", "/api/v1/traces", "2.13"),
    ContractRoute("GET", "/api/v1/traces/{partitionId}/{transactionId}", "2.13"),
    ContractRoute("GET", "/api/v1/traces/by-name/{traceName}", "2.13"),
    ContractRoute("GET", "/api/v1/traces/names", "2.13"),
    ContractRoute("GET", "/api/v1/consumer-groups", "2.14"),
    ContractRoute("GET", "/api/v1/consumer-groups/lagging", "2.14"),
    ContractRoute("GET", _GROUP, "2.14"),
    ContractRoute("DELETE", _GROUP, "2.14"),
    ContractRoute("POST", f"{_GROUP}/subscription", "2.14"),
    ContractRoute("DELETE", f"{_GROUP}/queues/{{queue}}", "2.14"),
    ContractRoute("POST", f"{_GROUP}/queues/{{queue}}/seek", "2.14"),
    ContractRoute("POST", f"{_GROUP}/queues/{{queue}}/partitions/{{partition}}/seek", "2.14"),
    ContractRoute("POST", "/api/v1/stats/refresh", "2.14"),
    ContractRoute("GET", "/api/v1/status", "2.15"),
    ContractRoute("GET", "/api/v1/status/queues", "2.15"),
    ContractRoute("GET", "/api/v1/status/queues/{queue}", "2.15"),
    ContractRoute("GET", "/api/v1/status/queues/{queue}/messages", "2.15"),
    ContractRoute("GET", "/api/v1/status/analytics", "2.15"),
    ContractRoute("GET", "/api/v1/status/buffers", "2.15"),
    ContractRoute("GET", f"{_ANALYTICS}/system-metrics", "2.16"),
    ContractRoute("GET", f"{_ANALYTICS}/worker-metrics", "2.16"),
    ContractRoute("GET", f"{_ANALYTICS}/queue-lag", "2.16"),
    ContractRoute("GET", f"{_ANALYTICS}/queue-ops", "2.16"),
    ContractRoute("GET", f"{_ANALYTICS}/queue-parked-replicas", "2.16"),
    ContractRoute("GET", f"{_ANALYTICS}/retention", "2.16"),
    ContractRoute("GET", f"{_ANALYTICS}/postgres-stats", "2.16"),
    ContractRoute("GET", "/health", "2.17"),
    ContractRoute("GET", "/metrics", "2.17"),
    ContractRoute("GET", "/metrics/prometheus", "2.17"),
    ContractRoute("GET", _MAINTENANCE, "2.18"),
    ContractRoute("POST", _MAINTENANCE, "2.18"),
    ContractRoute("GET", f"{_MAINTENANCE}/pop", "2.18"),
    ContractRoute("POST", f"{_MAINTENANCE}/pop", "2.18"),
    ContractRoute("GET", "/api/v1/system/shared-state", "2.18"),
    ContractRoute("GET", "/internal/api/shared-state/stats", "2.18"),
    ContractRoute("GET", "/internal/api/inter-instance/stats", "2.18"),
    ContractRoute("POST", "/internal/api/notify", "2.18"),
    ContractRoute("POST", f"{_MIGRATION}/test-connection", "2.18"),
    ContractRoute("POST", f"{_MIGRATION}/start", "2.18"),
    ContractRoute("GET", f"{_MIGRATION}/status", "2.18"),
    ContractRoute("POST", f"{_MIGRATION}/validate", "2.18"),
    ContractRoute("POST", f"{_MIGRATION}/reset", "2.18"),
    ContractRoute("POST", "/streams/v1/queries", "2.19"),
    ContractRoute("POST", "/streams/v1/cycle", "2.19"),
    ContractRoute("POST", "/streams/v1/state/get", "2.19"),
    ContractRoute("DELETE", "/api/v1/queues/{queue}/clear", "2.21"),
    ContractRoute("GET", "/api/me", "2.21"),
    ContractRoute("POST", "/api/logout", "2.21"),
)
