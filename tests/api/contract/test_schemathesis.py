"""Requests made up from the API document: whatever they are, the answer is one that it promises.

No 5xx, no status that is not documented, no body or header that does not fit. The number of
examples per operation is small here; SKEP_TEST_API_EXAMPLES raises it for a long run by hand.
"""

import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from skep.app.parts.interface import describe_api
from tests.api.support.contract_calls import GROUP, set_stage

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES_IN_CI = 8
EXAMPLES = int(os.environ.get("SKEP_TEST_API_EXAMPLES", EXAMPLES_IN_CI))
REQUEST_TIMEOUT_S = 60
WAIT_MS_MAX = 50

NEVER_ENDS = ["/api/v1/stream/queue/{queue}/events", "/api/v1/dashboard/live"]
"""An answer without end cannot be compared; its own tests read it as a stream."""

schema = schemathesis.openapi.from_dict(describe_api()).exclude(path=NEVER_ENDS)


@pytest.fixture
def names(client, queue, arun):
    """What there is to find, by the names that parameters and members have for it."""
    stage = arun(set_stage(client, queue))
    return {
        **stage,
        "name": queue,
        "consumerGroup": GROUP,
        "consumer_group": GROUP,
        "source_queue": queue,
        "query_id": stage["queryId"],
        "dlq_id": stage["dlqId"],
        "trace_name": stage["traceName"],
        "partition_id": stage["partitionId"],
        "transaction_id": stage["transactionId"],
    }


@pytest.mark.slow
@pytest.mark.timeout(120 if EXAMPLES == EXAMPLES_IN_CI else 0)
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES == EXAMPLES_IN_CI,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_an_answer_is_one_that_the_document_promises(case, broker, names):
    for part in (case.path_parameters, case.query, case.body):
        lead_somewhere(part, names)
    keep_short(case)

    case.call_and_validate(base_url=broker.url, checks=CHECKS, timeout=REQUEST_TIMEOUT_S)


def lead_somewhere(part, names):
    """Let about half of what is made up name things that exist."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name in names and len(str(value)) % 2:
                part[name] = names[name]


def keep_short(case):
    """Let no poll wait for long: that would test nothing but patience."""
    if "/system/maintenance" in case.path and isinstance(case.body, dict):
        case.body = {**case.body, "enabled": False}  # the broker is shared
    if "timeoutSeconds" in case.query:
        case.query["timeoutSeconds"] = WAIT_MS_MAX / 1000
    if "/pop" in case.path and case.query.get("wait"):
        case.query["timeout"] = WAIT_MS_MAX
