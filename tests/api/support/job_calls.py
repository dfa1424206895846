"""Asking the routes of jobs, and a worker on the database of the broker that is asked."""

import json
from datetime import UTC, datetime, timedelta

from skep.jobs import JobClient, Worker


class Asking:
    """Calls routes and expects a status."""

    def __init__(self, client):
        self._client = client

    async def __call__(self, method, path, members=None, *, status=200, headers=""):
        body = b"" if members is None else json.dumps(members).encode()
        answer = await self._client.call(method, f"/api/v1{path}", body, headers)
        assert answer.status == status, answer
        return json.loads(answer.body)

    async def start(self, job, value=None, **members):
        """Start one chain; return its id."""
        asked = {"chains": [{"type": job, "input": value, **members}]}
        (chain,) = (await self("POST", "/chains", asked, status=201))["chains"]
        return chain["id"]

    async def result(self, chain_id, timeout_s=20):
        return await self("GET", f"/chains/{chain_id}/result?timeoutSeconds={timeout_s}")


async def start_worker(stack, broker, types, **options):
    """Run a worker until the stack is closed."""
    client = await stack.enter_async_context(JobClient(broker.database_url))
    worker = Worker(client, [types], lease_s=3.0, poll_s=1.0, **options)
    await worker.start()
    stack.push_async_callback(worker.stop, grace_s=0.2)
    return worker


def replay_of_last_hour(queue):
    """Return an order to replay what a queue stored in the last hour into another one."""
    now = datetime.now(UTC)
    return {
        "queue": queue,
        "from": (now - timedelta(hours=1)).isoformat(),
        "to": now.isoformat(),
        "into": f"{queue}-again",
    }
