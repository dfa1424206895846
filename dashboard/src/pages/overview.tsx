// Everything at a glance: live figures by the pulse, charts by the rollups.
import { get, type Schemas } from "../api/client";
import { Card, chosenRange, PageHead, Stat, Table, TimeRangeChoice, toneOf } from "../parts";
import { Empty, Failure } from "../parts/notes";
import { Plot } from "../parts/plot";
import { useLoad } from "../state/loading";
import { place, setQuery } from "../state/place";
import { latest } from "../state/pulse";
import { hasRole } from "../state/session";
import { bytes, change, count, millis, percent, rate, seconds } from "../words";

type Status = Schemas["Status"];
type Point = Schemas["ThroughputPoint"];

async function loadStatus(rangeS: number, endMs: number, signal: AbortSignal): Promise<Status> {
  const query = { from: new Date(endMs - rangeS * 1000).toISOString(), to: new Date(endMs).toISOString() };
  return get("/api/v1/status", { query, signal });
}

export function Overview() {
  const range = chosenRange();
  const isCompared = place.value.query.get("compare") === "1";
  const { data, error } = useLoad(
    async (signal) => {
      const end = Date.now();
      const [now, before] = await Promise.all([
        loadStatus(range, end, signal),
        isCompared ? loadStatus(range, end - range * 1000, signal) : null,
      ]);
      return { now, before };
    },
    [range, isCompared],
    { everySeconds: 10 },
  );
  const sample = latest.value;
  if (sample?.queues === 0) return <FirstSteps />;
  return (
    <>
      <PageHead title="Overview">
        <label class="row small">
          <input type="checkbox" checked={isCompared} onChange={(event) => setQuery({ compare: event.currentTarget.checked ? "1" : null })} />
          Compare with previous period
        </label>
        <TimeRangeChoice />
      </PageHead>
      <div class="stack">
        <Failure error={error} />
        <Figures status={data?.now} before={data?.before ?? null} />
        <Charts status={data?.now} before={data?.before ?? null} rangeS={range} />
        <div class="grid">
          <Workers workers={data?.now.workers} />
          <Health />
        </div>
      </div>
    </>
  );
}

function FirstSteps() {
  const example = `curl -X POST ${location.origin}/api/v1/push \\
  -H 'content-type: application/json' \\
  -d '{"items": [{"queue": "orders", "payload": {"hello": "world"}}]}'`;
  return (
    <>
      <PageHead title="Overview" />
      <Empty title="This broker has no queues yet">
        <p>Push a message to create its queue:</p>
        <pre tabIndex={0}>{example}</pre>
        <p>or <a href="/queues?create=1">create a queue</a> here. <a href="/docs">The HTTP API</a> describes everything else.</p>
      </Empty>
    </>
  );
}

const sumOf = (points: Point[], pick: (point: Point) => number) => points.reduce((sum, point) => sum + pick(point), 0);

function Figures({ status, before }: { status: Status | undefined; before: Status | null }) {
  const sample = latest.value;
  const compared = (pick: (point: Point) => number) =>
    status && before ? change(sumOf(status.throughput, pick), sumOf(before.throughput, pick)) : undefined;
  const newest = status?.throughput[0];
  const letters = sample?.messages.deadLetter ?? status?.messages.deadLetter;
  const lag = sample?.lag.time.max;
  const efficiency = status?.messages.batchEfficiency;
  return (
    <div class="stats">
      <Stat label="In per second" value={rate(sample?.pushedPerSecond ?? newest?.ingestedPerSecond)} note={compared((point) => point.ingested)} />
      <Stat label="Out per second" value={rate(sample?.poppedPerSecond ?? newest?.popPerSecond)} note={compared((point) => point.popMessages)} />
      <Stat label="Waiting" value={count(sample?.messages.pending ?? status?.messages.pending)} note={sample?.estimated ? "estimated" : "messages, slowest group"} href="/groups" />
      <Stat label="Oldest unread" value={seconds(lag)} note="in the slowest partition" href="/groups" tone={lag !== undefined && lag > 300 ? "warn" : undefined} />
      <Stat label="Push to delivery" value={millis(newest?.avgLagMs)} note={newest ? `worst ${millis(newest.maxLagMs)}` : undefined} />
      <Stat label="Being processed" value={count(sample?.messages.processing ?? status?.messages.processing)} note={status ? `${count(status.leases.active)} leases` : undefined} />
      <Stat label="Dead letters" value={count(letters)} href="/dead-letters" tone={letters ? "bad" : undefined} note={compared((point) => point.dlqCount)} />
      <Stat label="Messages per commit" value={rate(sample?.messagesPerCommit ?? efficiency?.push)} note="pushes fused into one call" />
      <Stat label="Waiting polls" value={count(sample?.parkedPolls)} note="parked consumers" />
      <Stat label="Queues" value={count(sample?.queues)} note={sample ? `${count(sample.partitions)} partitions` : undefined} href="/queues" />
    </div>
  );
}

function Charts({ status, before, rangeS }: { status: Status | undefined; before: Status | null; rangeS: number }) {
  const points = [...(status?.throughput ?? [])].reverse();
  const times = points.map((point) => Date.parse(point.timestamp) / 1000);
  const earlier = new Map(before?.throughput.map((point) => [Date.parse(point.timestamp) / 1000 + rangeS, point]));
  const compared = (pick: (point: Point) => number | null) => times.map((time) => nearest(earlier, time, pick));
  const line = (label: string, colour: 1 | 2 | 3 | 4, pick: (point: Point) => number | null) => [
    { label, colour, values: points.map(pick) },
    ...(before ? [{ label: `${label}, previous period`, colour, values: compared(pick), isBefore: true }] : []),
  ];
  return (
    <div class="grid">
      <Card title="Messages per second">
        <Plot label="Messages per second" times={times} spanS={rangeS} spell={rate} lines={[...line("In", 1, (point) => point.ingestedPerSecond), ...line("Out", 2, (point) => point.popPerSecond), ...line("Completed", 3, (point) => point.processedPerSecond)]} />
      </Card>
      <Card title="From push to delivery">
        <Plot label="From push to delivery" times={times} spanS={rangeS} spell={millis} lines={[...line("Average", 1, (point) => point.avgLagMs), ...line("Worst", 2, (point) => point.maxLagMs)]} />
      </Card>
      <Percentiles rangeS={rangeS} />
      <Card title="Errors">
        <Plot label="Errors" times={times} spanS={rangeS} spell={count} lines={[...line("Failed acknowledgments", 2, (point) => point.ackFailed), ...line("Dead letters", 4, (point) => point.dlqCount), ...line("Database errors", 1, (point) => point.dbErrors)]} />
      </Card>
    </div>
  );
}

/** The point of the previous period at the same offset; buckets may not align. */
function nearest(points: Map<number, Point>, time: number, pick: (point: Point) => number | null): number | null {
  let best: [number, Point] | null = null;
  for (const [at, point] of points) {
    if (!best || Math.abs(at - time) < Math.abs(best[0] - time)) best = [at, point];
  }
  return best ? pick(best[1]) : null;
}

function Percentiles({ rangeS }: { rangeS: number }) {
  const { data } = useLoad(
    (signal) => get("/api/v1/analytics/queue-ops", { query: { from: new Date(Date.now() - rangeS * 1000).toISOString() }, signal }),
    [rangeS],
    { everySeconds: 30 },
  );
  const worst = new Map<number, { p50: number | null; p95: number | null; p99: number | null }>();
  for (const point of data?.series ?? []) {
    const time = Date.parse(point.bucket) / 1000;
    const known = worst.get(time) ?? { p50: null, p95: null, p99: null };
    const higher = (a: number | null, b: number | null) => (a === null || b === null ? (a ?? b) : Math.max(a, b));
    worst.set(time, { p50: higher(known.p50, point.p50LagMs), p95: higher(known.p95, point.p95LagMs), p99: higher(known.p99, point.p99LagMs) });
  }
  const times = [...worst.keys()].sort((a, b) => a - b);
  const values = (pick: "p50" | "p95" | "p99") => times.map((time) => worst.get(time)?.[pick] ?? null);
  return (
    <Card title="Latency percentiles" note="push to delivery, of the slowest queue">
      <Plot label="Latency percentiles" times={times} spanS={rangeS} spell={millis} lines={[{ label: "p50", colour: 3, values: values("p50") }, { label: "p95", colour: 1, values: values("p95") }, { label: "p99", colour: 2, values: values("p99") }]} />
    </Card>
  );
}

function Workers({ workers }: { workers: Status["workers"] | undefined }) {
  return (
    <Card title="Workers" note="that reported in this period">
      <Table
        caption="Workers"
        rows={workers ?? []}
        keyOf={(worker) => `${worker.hostname}/${worker.workerId}`}
        columns={[
          { title: "Worker", cell: (worker) => `${worker.hostname} #${worker.workerId}`, isWide: true },
          { title: "Messages", cell: (worker) => count(worker.messagesProcessed), isNumber: true },
          { title: "Loop lag", cell: (worker) => millis(worker.avgEventLoopLagMs), isNumber: true },
          { title: "Connections", cell: (worker) => count(worker.dbConnections), isNumber: true },
          { title: "Waiting calls", cell: (worker) => count(worker.jobQueueSize), isNumber: true },
        ]}
      />
    </Card>
  );
}

function Health() {
  // Only administrators may see the instances.
  const isAdmin = hasRole("admin");
  const { data, error } = useLoad(
    async (signal) => {
      const [postgres, cluster, buffers, operations] = await Promise.all([
        get("/api/v1/analytics/postgres-stats", { signal }),
        isAdmin ? get("/api/v1/system/shared-state", { signal }) : null,
        get("/api/v1/status/buffers", { signal }),
        get("/api/v1/operations/stats", { signal }),
      ]);
      return { postgres, cluster, buffers, operations };
    },
    [],
    { everySeconds: 30 },
  );
  const hitRatio = data?.postgres.databaseCache["cacheHitRatio"] as number | null | undefined;
  const alive = data?.cluster?.instances.filter((each) => each.state === "alive").length;
  return (
    <Card title="Health">
      <Failure error={error} />
      <div class="stats">
        <Stat label="PostgreSQL" value={data ? `v${data.postgres.version}` : "–"} note={data && bytes(data.postgres.databaseSizeBytes)} href="/system" />
        <Stat label="Cache hits" value={percent(hitRatio === null || hitRatio === undefined ? null : hitRatio / 100)} note="of reads" href="/system" />
        {isAdmin && <Stat label="Instances" value={count(alive)} note={data?.cluster ? `${count(data.cluster.instances.length)} known` : undefined} href="/system" />}
        <Stat label="Spilled to disk" value={count(data?.buffers.pending)} note={data && (data.buffers.dbHealthy ? "database connected" : "database unreachable")} tone={data && !data.buffers.dbHealthy ? "bad" : undefined} href="/operations" />
        <Stat label="Operation queue" value={count(data?.operations.total.waiting)} note={data && operationNote(data.operations)} tone={data && toneOf(data.operations.systemHealth)} href="/operations" />
        <Stat label="Long transactions" value={count(data?.postgres.longTransactions.length)} note="five seconds and more" tone={data?.postgres.longTransactions.length ? "warn" : undefined} href="/system" />
      </div>
    </Card>
  );
}

function operationNote({ systemHealth, estimatedWait }: Schemas["OperationStats"]): string {
  return systemHealth === "healthy" ? `about ${seconds(estimatedWait)} wait` : systemHealth;
}
