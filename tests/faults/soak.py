"""The long forms of the fault suite: `make soak`.

Runs storms one after the other, prints what came of them as a table, and writes it to a JSON file
after each, so that a run that is interrupted leaves what it has. It ends with 1 when any promise
was broken. Everything is on a PostgreSQL of its own that survives crashes (fsync on).
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from random import Random

import asyncpg

from skep.db.schema.migrate import migrate
from tests.faults.support.consumers import freeze_consumers
from tests.faults.support.dying_sessions import POINTS, deadly_database, transact_repeatedly
from tests.faults.support.failover import fail_over, pair_of_servers
from tests.faults.support.full_disks import fill_both, small_disks
from tests.faults.support.histories import ANOMALIES, anomalies
from tests.faults.support.instances import fleet_of, instance, memory_watched
from tests.faults.support.ledger import KINDS, summary
from tests.faults.support.load import GROUP, LEASE_S, load_on
from tests.faults.support.mortal_postgres import KILL, MortalPostgres
from tests.faults.support.network import CLEAN, network_to
from tests.faults.support.overload import SETTINGS, Overload, until_served
from tests.faults.support.relay import relay_on
from tests.faults.support.storms import end_postgres, kill_brokers_for, treat_badly
from tests.support.postgres import make_reachable_directory

DRAIN_S = 180
FEW_PRODUCERS = 6
FULL_TIMES = 10
FAILOVERS = 5
FAILED_S = 30
"""How long to wait for messages that may be gone with the primary."""
BROKEN = (*KINDS, *ANOMALIES, "accepted after expiry", "cursors moved", "unanswered", "crashed")
"""Figures that have to be 0."""


@dataclass(frozen=True)
class Run:
    """What every storm gets."""

    postgres: MortalPostgres
    spill_dir: Path
    seconds: float
    times: int
    seed: str

    @property
    def queue(self):
        return f"soak-{self.seed}"

    @property
    def settings(self):
        return {"spill_dir": self.spill_dir}


def figures(load, memory, **others):
    """Return what a load saw, with how often it saw a promise broken."""
    ledger = load.ledger
    return {
        "stored": len(ledger.stored),
        "delivered": len(ledger.deliveries),
        "delivered again": delivered_again(ledger),
        "buffered": load.buffered_count,
        **{name: round(value, 2) for name, value in others.items()},
        "longest stall s": round(load.stalls.longest_s, 2),
        "memory MiB": round(memory.highest_mib),
        **summary(ledger, [GROUP]),
    }


def delivered_again(ledger):
    """Return how many deliveries were not the first of their message."""
    messages = {(each.progress_key, each.message_id) for each in ledger.deliveries}
    return len(ledger.deliveries) - len(messages)


async def timed_drain(load):
    began = time.monotonic()
    await load.drain()
    return time.monotonic() - began


async def brokers_killed(run, size):
    """Scenario 4: kill -9 of an instance every 1 to 5 s."""
    queue = f"{run.queue}-{size}"
    async with (
        fleet_of(size, run.postgres.dsn, run.seed, "--workers", "1", **run.settings) as fleet,
        memory_watched(fleet.living) as memory,
        load_on(fleet, queue, run.seed, drain_s=DRAIN_S) as load,
    ):
        kills = await kill_brokers_for(
            fleet, size, run.seconds, pause_s=(1, 5), random=Random(run.seed)
        )
        drained_s = await timed_drain(load)
    return figures(load, memory, **{"kills": kills, "drain s": drained_s, "lease s": LEASE_S})


async def one_broker_killed(run):
    return await brokers_killed(run, 1)


async def three_brokers_killed(run):
    return await brokers_killed(run, 3)


async def transactions_killed(run):
    """Transactions of three brokers that are killed: no order but a serial one explains them."""
    async with (
        fleet_of(3, run.postgres.dsn, run.seed, "--workers", "1", **run.settings) as fleet,
        relay_on(fleet, f"{run.queue}-relay", run.seed, workers=12) as relay,
    ):
        kills = await kill_brokers_for(
            fleet, 3, run.seconds, pause_s=(1, 5), random=Random(run.seed)
        )
        sql = await asyncpg.connect(run.postgres.dsn)
        history = await relay.finish(sql)
        await sql.close()
    found = [anomaly.partition(":")[0] for anomaly in anomalies(history)]
    outcomes = Counter(each.outcome for each in history.transactions)
    return {"kills": kills, **outcomes, **{kind: found.count(kind) for kind in ANOMALIES}}


async def postgres_killed(run):
    """Scenario 8: kill -9 of PostgreSQL under load, at least 20 times."""
    with instance(run.postgres.dsn, "--workers", "2", **run.settings) as broker:
        async with (
            memory_watched(lambda: [broker]) as memory,
            load_on(broker, f"{run.queue}-pg", run.seed, drain_s=DRAIN_S) as load,
        ):
            waits_s = await end_postgres(
                run.postgres, load, times=20, how=KILL, seconds=run.seconds
            )
            drained_s = await timed_drain(load)
    measured = {"kills": len(waits_s), "longest return s": max(waits_s), "drain s": drained_s}
    return figures(load, memory, **measured)


async def postgres_away(run):
    """Scenario 9: 60 s without PostgreSQL."""
    with instance(run.postgres.dsn, "--workers", "2", **run.settings) as broker:
        queue = f"{run.queue}-away"
        # Few producers and no bound: nobody may stop pushing because nothing is delivered.
        options = {"producers": 2, "backlog_max": inf, "drain_s": DRAIN_S}
        async with (
            memory_watched(lambda: [broker]) as memory,
            load_on(broker, queue, run.seed, **options) as load,
        ):
            await load.until_done(500)
            await asyncio.to_thread(run.postgres.end, KILL)
            await asyncio.sleep(60)
            await asyncio.to_thread(run.postgres.start)
            began = time.monotonic()
            await load.until_done(load.done_count + 1)
            returned_s = time.monotonic() - began
            drained_s = await timed_drain(load)
    return figures(
        load, memory, **{"away s": 60, "first delivery s": returned_s, "drain s": drained_s}
    )


async def consumers_frozen(run):
    """Scenario 6: SIGSTOP of consumers past their leases."""
    with instance(run.postgres.dsn, "--workers", "1", **run.settings) as broker:
        return await freeze_consumers(broker, f"{run.queue}-frozen", times=20)


async def network_bad(run):
    """Scenario 13: a proxy that cuts, delays, dribbles, truncates and falls silent."""
    random = Random(run.seed)
    with instance(run.postgres.dsn, "--workers", "1", **run.settings) as broker:
        async with (
            memory_watched(lambda: [broker]) as memory,
            network_to(broker.port, lambda: treat_badly(random)) as network,
            load_on(network, f"{run.queue}-net", run.seed, call_s=1.5, drain_s=DRAIN_S) as load,
        ):
            await asyncio.sleep(run.seconds)
            network.treat = lambda: CLEAN
            network.cut_all()
            drained_s = await timed_drain(load)
    return figures(load, memory, **{"bad connections": network.treated, "drain s": drained_s})


async def disks_full(run):
    """Scenario 11: the disk of the messages full under load, then the spool's in an outage."""
    with (
        small_disks(2) as (messages, spool),
        instance(run.postgres.dsn, "--workers", "1", spill_dir=spool.place / "spill") as broker,
    ):
        async with (
            memory_watched(lambda: [broker]) as memory,
            load_on(broker, f"{run.queue}-disks", run.seed, drain_s=DRAIN_S) as load,
        ):
            refused = await fill_both(run.postgres, load, messages, spool, times=FULL_TIMES)
    return figures(load, memory, **{"full disks": 2 * FULL_TIMES, "refused": refused})


async def sessions_killed(run):
    """Scenario 15: the session of a transaction dies at six points; half of one ends the run."""
    for number, point in enumerate(POINTS):
        async with deadly_database(run.postgres, f"{run.queue}-{number}", point) as (proxy, sql):
            await transact_repeatedly(proxy, sql, run.queue, point, times=run.times)
    return {"points": len(POINTS), "transactions": len(POINTS) * run.times, "half done": 0}


async def standby_promoted(run, *, is_synchronous=True):
    """Scenario 12: kill -9 of the primary under load; its standby takes over."""
    ledgers = []
    for number in range(FAILOVERS):
        directory = make_reachable_directory()
        try:
            async with pair_of_servers(directory, is_synchronous=is_synchronous) as servers:
                spill_dir = run.spill_dir / f"{number}"
                load = await fail_over(*servers, spill_dir, run.queue, run.seed, drain_s=FAILED_S)
        finally:
            shutil.rmtree(directory)
        ledgers.append(load.ledger)
    summaries = [summary(ledger, [GROUP]) for ledger in ledgers]
    return {
        "failovers": FAILOVERS,
        "stored": sum(len(ledger.stored) for ledger in ledgers),
        **{kind: sum(each[kind] for each in summaries) for kind in KINDS},
    }


async def late_standby_promoted(run):
    """The same with a standby that nobody waits for: what it had not received is gone."""
    counted = await standby_promoted(run, is_synchronous=False)
    return {f"{name} (allowed)" if name in KINDS else name: n for name, n in counted.items()}


async def overloaded(run):
    """Three times the capacity for 60 s."""
    settings = {**run.settings, **SETTINGS}
    with instance(run.postgres.dsn, "--workers", "1", **settings) as broker:
        overload = Overload(broker, f"{run.queue}-overload")
        normal_per_s = await overload.press(5, FEW_PRODUCERS)
        pressed_per_s = await overload.press(60)
        recovery_s = await until_served(overload, producers=FEW_PRODUCERS, within_s=60)
        recovered_per_s = await overload.press(5, FEW_PRODUCERS)
        is_running = broker.process.poll() is None
        await overload.consume()
    return {
        "stored": len(overload.ledger.stored),
        "delivered": len(overload.ledger.deliveries),
        "normal per s": round(normal_per_s, 1),
        "pressed per s": round(pressed_per_s, 1),
        "recovery s": round(recovery_s, 1),
        "recovered per s": round(recovered_per_s, 1),
        "memory MiB": round(overload.memory_mib),
        "answers": dict(sorted(overload.statuses.items())),
        "unanswered": overload.unanswered,
        "crashed": int(not is_running),
        **summary(overload.ledger, [GROUP]),
    }


STORMS: dict[str, Callable[[Run], Awaitable[dict]]] = {
    "one-broker-killed": one_broker_killed,
    "three-brokers-killed": three_brokers_killed,
    "transactions-killed": transactions_killed,
    "postgres-killed": postgres_killed,
    "postgres-away": postgres_away,
    "consumers-frozen": consumers_frozen,
    "disks-full": disks_full,
    "standby-promoted": standby_promoted,
    "late-standby-promoted": late_standby_promoted,
    "sessions-killed": sessions_killed,
    "network-bad": network_bad,
    "overloaded": overloaded,
}


def machine():
    """Return what the figures depend on."""
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load average": round(os.getloadavg()[0], 1),
    }


@asynccontextmanager
async def server():
    directory = make_reachable_directory()
    postgres = MortalPostgres(directory / "pg")
    postgres.start()
    try:
        await migrate(postgres.dsn)
        yield postgres
    finally:
        postgres.stop()
        shutil.rmtree(directory)


async def soak(options):
    """Run the storms; return how often a promise was broken in all."""
    results = []
    async with server() as postgres:
        for name in options.storms:
            with tempfile.TemporaryDirectory() as spill_dir:
                run = Run(postgres, Path(spill_dir), options.seconds, options.times, options.seed)
                began = time.monotonic()
                outcome = await STORMS[name](run)
            result = {
                "storm": name,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": round(time.monotonic() - began),
                "seed": options.seed,
                "machine": machine(),
                **outcome,
            }
            results.append(result)
            show(result)
            options.json.write_text(json.dumps(results, indent=2) + "\n")
    return sum(result.get(kind, 0) for result in results for kind in set(BROKEN))


def show(result):
    """Print a storm as a table of two columns."""
    sys.stdout.write(f"\n{result['storm']}\n")
    for name, value in result.items():
        if name != "storm":
            sys.stdout.write(f"  {name:<22}{value}\n")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("storms", nargs="*", default=list(STORMS), help=", ".join(STORMS))
    parser.add_argument("--seconds", type=float, default=600, help="how long a storm lasts")
    parser.add_argument("--times", type=int, default=1_000, help="sessions killed at each point")
    parser.add_argument("--seed", default=str(int(time.time())), help="what chance goes by")
    parser.add_argument("--json", type=Path, default=Path("build/soak.json"))
    options = parser.parse_args()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    if unknown := set(options.storms) - set(STORMS):
        parser.error(f"there is no storm {', '.join(sorted(unknown))}")
    with suppress(KeyboardInterrupt):
        sys.exit(1 if asyncio.run(soak(options)) else 0)


if __name__ == "__main__":
    main()
