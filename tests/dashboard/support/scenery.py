"""A broker in the middle of a bad afternoon: every page of the dashboard has something to show."""

import json
import math

from tests.dashboard.support.history import Activity, Worker, group_lag
from tests.dashboard.support.lake import archive, run_pipeline
from tests.dashboard.support.workshop import fill_workshop
from tests.sql.support.waiting import eventually
from tests.support.broker import ack_item
from tests.tidy.tree import ROOT

QUEUES = ("orders", "invoices", "shipping.labels", "mail.outgoing", "payments")
BACKLOG = 4_200
SOURCES = ROOT / "src"
LEDGER_ERRORS = (
    "the ledger did not answer within 30 s",
    "account {} is closed",
    """Traceback (most recent call last):
  File "/app/.venv/lib/python3.12/site-packages/skep/client/consumer.py", line 214, in _handle
    await self._handler(message)
  File "/app/billing/ledger.py", line 88, in book
    entry = await ledger.append(account, amount)
  File "/app/billing/ledger.py", line 31, in append
    return await self._connection.call("append", account, amount)
ConnectionResetError: [Errno 104] Connection reset by peer (ledger.internal:5432)
""",
)
AS_INSTALLED = """
update skep.{table} set error = replace(error, $1, '/app/.venv/lib/python3.12/site-packages')
where error is not null
"""
"""Tracebacks show no path of the machine that pictures are taken on."""
OPERATIONS = """
with carried_out as (insert into skep.operation (
  id, type, queue_id, partition_id, queue, partition, priority, status, available_at, retries,
  item_count, items, bytes, error, created_at, started_at, finished_at)
select gen_random_uuid(), 'push', p.queue_id, p.id, q.name, p.name, 1,
       case when n % 4 > 0 then 'completed' else 'failed' end, k.at,
       case when n % 4 > 0 then 0 else 3 end,
       5 * n, '[]', 900 * n,
       case when n % 4 = 0 then 'queue payments holds 5000 messages, its maxSize' end,
       k.at, k.at + interval '1 second', k.at + interval '3 seconds'
from generate_series(1, 6) n
cross join lateral (select skep.now() - (7 - n) * interval '7 minutes' as at) k
cross join lateral (
  select p.id, p.queue_id, p.name from skep.partition p join skep.queue q on q.id = p.queue_id
  where q.name = 'payments' order by p.id limit 1 offset n
) p
join skep.queue q on q.id = p.queue_id
returning *)
select skep.count_operations(
  array_agg(partition_id), array_agg(type), array_agg(status), array_agg(1::bigint),
  array_agg(bytes::bigint)) from carried_out
"""
AGE_SEGMENTS = """
update skep.segment s
set created_at = s.created_at - make_interval(secs => $2 + $3 * r.share ^ 2)
from (
  select s.partition_id, s.first,
         percent_rank() over (order by s.xid desc, s.partition_id desc, s.first desc) as share
  from skep.segment s join skep.queue q on q.id = s.queue_id where q.name = $1
) r
where (r.partition_id, r.first) = (s.partition_id, s.first)
"""
"""What was written first is the oldest."""
AGE = """
update skep.{table} t set {column} = t.{column} - make_interval(secs => $2 + $3 * random() ^ 3)
from skep.queue q where q.id = t.queue_id and q.name = $1
"""
HAS_REPORTED = "select count(*) > 5 from skep.group_activity"
ACTIVITY = """
insert into skep.group_activity (group_id, polled_at, expected_from, progressed_at, failed_at)
select g.id, k.now - $3::text::interval, k.now - interval '1 day', k.now - $4::text::interval,
       k.now - $5::text::interval
from skep.consumer_group g join skep.queue q on q.id = g.queue_id
cross join (select skep.now()) k(now)
where q.name = $1 and g.name = $2
on conflict (group_id) do update
set polled_at = excluded.polled_at, expected_from = excluded.expected_from,
    progressed_at = excluded.progressed_at, failed_at = excluded.failed_at
"""


async def fill(broker, client):
    """Push, deliver, fail, trace and register, in small amounts; then give it all a past."""
    for since in range(0, BACKLOG, 600):
        # Customers come one after the other: partitions are behind for different times.
        customers = 12 + since // 100
        numbers = range(since + 1000, since + 1600)
        await client.push(*(_order("orders", n, customers) for n in numbers))
    for queue in QUEUES:
        await client.push(*(_order(queue, n, 48) for n in range(120)))
    for group, partitions in (("billing", 64), ("search-index", 20)):
        reading = {"consumerGroup": group, "partitions": partitions, "autoAck": "true"}
        await client.pop("orders", batch=10_000, **reading)
    await client.pop("payments", consumerGroup="fraud-check", batch=200, partitions=64)
    await client.pop("mail.outgoing", batch=20, partitions=4, autoAck="true")
    await client.pop("shipping.labels", consumerGroup="printer", batch=20, autoAck="true")
    await client.post("/api/v1/queues/shipping.labels/pause", {})
    await _let_some_die(client)
    message = (await client.pop("orders", consumerGroup="search-index", batch=1))[0]
    await client.post("/api/v1/traces", trace_of(message))
    await client.post("/streams/v1/queries", query())
    await client.push({"queue": "orders", "payload": {"later": True}, "delaySeconds": 3600})
    await fill_workshop(broker, client)
    await run_pipeline(broker, "revenue per minute")
    await run_pipeline(broker, "clicks", state="failed", error="the column `shop` does not exist")
    for queue in ("orders", "invoices"):
        await archive(broker, client, queue)
    await _order_replays(client)
    async with broker.sql() as sql:
        # The past is written when the broker has told what consumers did just now.
        await eventually(lambda: sql.fetchval(HAS_REPORTED))
        for table in ("chain", "job", "job_attempt"):
            await sql.execute(AS_INSTALLED.format(table=table), str(SOURCES))
        await sql.execute(OPERATIONS)
        await _grow_old(sql)
        await _remember(sql)


def _order(queue, number, customers):
    return {
        "queue": queue,
        "partition": f"customer-{number % customers}",
        "payload": {
            "order": 48_000 + number,
            "customer": {"id": number % customers, "country": ("IT", "DE", "FR")[number % 3]},
            "items": [{"sku": f"A-{number}", "count": 1 + number % 4}],
            "total": round(19.9 + 7.35 * (number % 40), 2),
        },
        "transactionId": f"{queue}-{number}",
        "headers": {"tenant": "acme" if number % 4 else "globex"},
    }


async def _grow_old(sql):
    """Let what is stored have been there for a while, and consumers be as they are."""
    ages = {"orders": (5, 1200), "invoices": (1200, 1500), "mail.outgoing": (3600, 4200)}
    for queue, age in ages.items():
        await sql.execute(AGE_SEGMENTS, queue, *age)
        await sql.execute(AGE.format(table="cursor", column="available_at"), queue, *age)
    await sql.execute(AGE.format(table="dead_letter", column="failed_at"), "invoices", 60, 10_000)
    await sql.execute(
        "update skep.consumer_group set first_polled_at = now() - interval '1 day'"
        " where first_polled_at is not null"
    )
    for queue, group, *seen in (
        ("orders", "billing", "2 s", "2 s", None),
        ("orders", "search-index", "1 s", "3 s", None),
        ("payments", "fraud-check", "1 s", "1 s", None),
        ("invoices", "ledger", "4 s", "35 min", "4 s"),
        ("mail.outgoing", "__QUEUE_MODE__", "2 h", "2 h", None),
    ):
        await sql.execute(ACTIVITY, queue, group, *seen)


async def _remember(sql):
    """Give it a past: by the minute for two hours, by five minutes for the day before.

    The next minute is told, too: it is the past by the time that somebody looks.
    """
    workers = [await Worker.register(sql, "skep-1.internal", number) for number in (0, 1)]
    for ago in (*range(-1, 121), *range(125, 1440, 5)):
        for worker in workers:
            await worker.report(ago, _activities(ago, 60 if ago <= 120 else 300), _gauges(ago))
    minutes = range(-1, 181)
    await group_lag(sql, "orders", "search-index", {m: _behind(m, 45, 43, 26) for m in minutes})
    await group_lag(sql, "orders", "billing", {m: (3 + m % 5, m % 3) for m in minutes})
    await group_lag(sql, "invoices", "ledger", {m: _behind(m, 35, 3, 60) for m in minutes})
    await group_lag(
        sql, "mail.outgoing", "__QUEUE_MODE__", {m: _behind(m, 120, 1, 60) for m in minutes}
    )


def _behind(ago, since, messages, seconds):
    """Return messages and seconds that a group was behind, having fallen behind since a minute."""
    minutes = max(0, since - ago)
    return messages * minutes + ago % 7, seconds * minutes + ago % 3


def _activities(ago, seconds):
    """Return what happened in each queue in a step of time, for one worker."""
    tide = (1 + 0.35 * math.sin(ago / 40) + 0.06 * math.sin(ago * 2.3)) * seconds
    is_late, is_down = ago < 45, 61 <= ago <= 63
    flow = 0.15 if is_down else 1
    lag_ms = 8 + 6 * abs(math.sin(ago / 9)) + (400 if is_down else 0)
    return {
        "orders": Activity(
            int(118 * tide * flow),
            int((205 if is_late else 236) * tide * flow),
            int(lag_ms * (30 if is_late else 1)),
            parked=3,
        ),
        "payments": Activity(int(40 * tide * flow), int(40 * tide * flow), int(lag_ms), parked=12),
        "invoices": Activity(
            int(12 * tide),
            int((2 if ago < 35 else 12) * tide),
            int(3 * lag_ms),
            failed=int(1.5 * tide) if ago < 35 else ago % 3,
            dead=ago % 4 if ago < 35 else 0,
            parked=2,
        ),
        "mail.outgoing": Activity(
            int(9 * tide), 0 if ago < 120 else int(9 * tide), int(5 * lag_ms)
        ),
        "shipping.labels": Activity(int(4 * tide), 0 if ago < 25 else int(4 * tide), int(lag_ms)),
    }


def _gauges(ago):
    wave = 1 + 0.3 * math.sin(ago / 40)
    return {
        "cpu_user_pct": [31 * wave],
        "cpu_system_pct": [6 * wave],
        "rss_bytes": [1.9e8 + 2e7 * wave],
        "pool_size": [8],
        "pool_active": [3 * wave],
        "pool_idle": [8 - 3 * wave],
        "waiting_calls": [2 if ago % 9 == 0 else 0],
        "loop_lag_ms": [0.6 * wave, 2.5 + 9 * (ago % 17 == 0)],
    }


async def _order_replays(client):
    """One that is done, and one that nobody runs."""
    order = {"queue": "orders", "from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    first = await client.post("/api/v1/replays", {**order, "into": "orders-again"})
    output = {
        "messages": 1200,
        "duplicates": 0,
        "rejected": 0,
        "isRepeated": False,
        "committedAt": None,
    }
    chain = json.loads(first.body)["chain"]
    assert (await client.post(f"{chain}/complete", {"output": output})).status == 200
    await client.post("/api/v1/replays", {**order, "into": "orders-for-tests"})


async def _let_some_die(client):
    await client.configure("invoices", retryLimit=0)
    popped = await client.pop("invoices", consumerGroup="ledger", batch=30, partitions=12)
    for number, message in enumerate(popped[:17]):
        error = LEDGER_ERRORS[number % 3].format(4400 + number)
        await client.ack_batch(
            ack_item(message, "failed", {"error": error}), consumerGroup="ledger"
        )


async def fail_all(client, queue, *, group, error):
    """Deliver everything and refuse it until it is dead."""
    await client.configure(queue, retryLimit=0)
    for message in await client.pop(queue, consumerGroup=group, batch=100, partitions=10):
        await client.ack_batch(ack_item(message, "failed", {"error": error}), consumerGroup=group)


def trace_of(message):
    return {
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "data": {"text": "charged the card"},
        "eventType": "step",
        "consumerGroup": "billing",
        "traceNames": ["order-journey"],
    }


def query():
    return {
        "name": "orders-per-minute",
        "source_queue": "orders",
        "sink_queue": "mail.outgoing",
        "config_hash": "1",
    }


async def chain_page(client, job):
    """Return the address of the newest chain of a type."""
    answer = await client.call("GET", f"/api/v1/chains?type={job}&limit=1")
    (chain,) = json.loads(answer.body)["items"]
    return f"/chains/{chain['id']}"


async def message_page(client, queue):
    """Return the address of some message of a queue."""
    answer = await client.call("GET", f"/api/v1/messages?queue={queue}&limit=1")
    (message,) = json.loads(answer.body)["messages"]
    return f"/messages/{message['partitionId']}/{message['id']}"
