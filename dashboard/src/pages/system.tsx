// The machines below: workers, PostgreSQL, what instances there are.
import { get, type Schemas } from "../api/client";
import { Badge, Card, PageHead, Stat, Table, TimeRangeChoice, toneOf, When } from "../parts";
import { Failure } from "../parts/notes";
import { Chart, Charts } from "../parts/plot";
import { useLoad } from "../state/loading";
import { latest } from "../state/pulse";
import { chosenRange, gridOf, spelledRange } from "../state/range";
import { hasRole } from "../state/session";
import { bytes, count, millis, percent, rate, seconds, units } from "../words";

type Row = Record<string, unknown>;
const text = (row: Row, name: string) => (row[name] === null || row[name] === undefined ? "–" : String(row[name]));
const number = (row: Row, name: string) => (typeof row[name] === "number" ? row[name] : null);
const ofHundred = (value: number | null) => percent(value === null ? null : value / 100);

export function System() {
  return (
    <>
      <PageHead title="System"><TimeRangeChoice /></PageHead>
      <div class="stack">
        <Health />
        <Usage />
        {hasRole("admin") && <Instances />}
        <Postgres />
      </div>
    </>
  );
}

function Health() {
  const { data, error } = useLoad(
    async (signal) => {
      const [buffers, operations] = await Promise.all([get("/api/v1/status/buffers", { signal }), get("/api/v1/operations/stats", { signal })]);
      return { buffers, operations };
    },
    [],
    { everySeconds: 15 },
  );
  const sample = latest.value;
  return (
    <>
      <Failure error={error} />
      <div class="stats">
        <Stat label="Messages per commit" value={rate(sample?.messagesPerCommit)} note="pushes fused into one call" />
        <Stat label="Waiting polls" value={count(sample?.parkedPolls)} note="parked consumers" />
        <Stat label="Spilled to disk" value={count(data?.buffers.pending)} note={data && (data.buffers.dbHealthy ? "database connected" : "database unreachable")} tone={data && !data.buffers.dbHealthy ? "bad" : undefined} href="/operations" />
        <Stat label="Operation queue" value={count(data?.operations.total.waiting)} note={data && operationNote(data.operations)} tone={data && toneOf(data.operations.systemHealth)} href="/operations" />
      </div>
    </>
  );
}

function operationNote({ systemHealth, estimatedWait }: Schemas["OperationStats"]): string {
  if (systemHealth !== "healthy") return systemHealth;
  return estimatedWait ? `about ${seconds(estimatedWait)} wait` : "nothing waits";
}

type Gauge = { avg?: number; last?: number };
type Metrics = { cpu?: { user_us?: Gauge; system_us?: Gauge }; memory?: { rss_bytes?: Gauge } };
const LINES = [1, 2, 3, 4] as const;

function Usage() {
  const range = chosenRange();
  const { data, error } = useLoad(
    async (signal) => {
      const [usage, workers] = await Promise.all([
        get("/api/v1/analytics/system-metrics", { query: spelledRange(range), signal }),
        get("/api/v1/analytics/worker-metrics", { query: spelledRange(range), signal }),
      ]);
      return { usage, workers };
    },
    [range.key],
    { everySeconds: 30 },
  );
  const replicas = LINES.flatMap((colour) => {
    const replica = data?.usage.replicas[colour - 1];
    return data && replica ? [{ label: `${replica.hostname} #${replica.workerId}`, colour, grid: gridOf(range, data.usage.bucketMinutes, replica.timeSeries, (point) => point.timestamp) }] : [];
  });
  const byWorker = (pick: (metrics: Metrics) => number | null) => ({
    times: data && (replicas[0]?.grid.times ?? []),
    lines: replicas.map(({ label, colour, grid }) => ({ label, colour, values: grid.values((point) => pick(point.metrics as Metrics)) })),
  });
  const grid = data && gridOf(range, data.workers.bucketMinutes, data.workers.timeSeries, (point) => point.timestamp);
  const of = (...given: Parameters<NonNullable<typeof grid>["values"]>) => grid?.values(...given) ?? [];
  const nothing = "No worker reported in this time.";
  return (
    <>
      <Failure error={error} />
      <Charts range={range}>
        <Chart {...byWorker(({ cpu }) => ((cpu?.user_us?.avg ?? 0) + (cpu?.system_us?.avg ?? 0)) / 10_000)} title="CPU" note="of one core" nothing={nothing} unit={units.share} range={range} />
        <Chart {...byWorker(({ memory }) => memory?.rss_bytes?.last ?? null)} title="Memory" note="resident" nothing={nothing} unit={units.bytes} range={range} />
        <Chart title="Event loop lag" nothing={nothing} times={grid?.times} unit={units.millis} range={range} lines={[
          { label: "Average", colour: 1, values: of((point) => point.avgEventLoopLagMs) },
          { label: "Worst", colour: 2, values: of((point) => point.maxEventLoopLagMs) },
        ]} />
        <Chart title="Connections" note="to PostgreSQL" nothing={nothing} times={grid?.times} unit={units.whole} range={range} lines={[
          { label: "Open", colour: 1, values: of((point) => point.dbConnections) },
          { label: "Waiting calls", colour: 2, values: of((point) => point.maxJobQueueSize) },
        ]} />
        <div class="whole">
          <Chart title="Errors" nothing="Nothing failed in this time." times={grid?.times} unit={units.whole} range={range} lines={[
            { label: "Failed acknowledgments", colour: 2, values: of((point) => point.ackFailed, 0) },
            { label: "Dead letters", colour: 4, values: of((point) => point.dlqCount, 0) },
            { label: "Database", colour: 1, values: of((point) => point.dbErrors, 0) },
          ]} />
        </div>
        <div class="whole"><Workers workers={data?.workers.workers} /></div>
      </Charts>
    </>
  );
}

function Workers({ workers }: { workers: Schemas["WorkerReport"][] | undefined }) {
  return (
    <Card title="Workers" note="that reported in this time">
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

function Instances() {
  const { data, error } = useLoad((signal) => get("/api/v1/system/shared-state", { signal }), [], { everySeconds: 15 });
  return (
    <Card title="Instances" note="that reported within the last hour">
      <Failure error={error} />
      <Table
        caption="Instances"
        rows={data?.instances ?? []}
        keyOf={(instance) => instance.id}
        columns={[
          { title: "Host", cell: (instance) => `${instance.host}:${instance.port}`, isWide: true },
          { title: "State", cell: (instance) => <Badge word={instance.state} tone={instance.state === "alive" ? "good" : "bad"} /> },
          { title: "Version", cell: (instance) => instance.version },
          { title: "Workers", cell: (instance) => count(instance.workers), isNumber: true },
          { title: "Started", cell: (instance) => <When at={instance.startedAt} /> },
          { title: "Last heartbeat", cell: (instance) => instance.silentSeconds < 2 ? "now" : `${seconds(instance.silentSeconds)} ago`, isNumber: true },
        ]}
      />
    </Card>
  );
}

function Postgres() {
  const { data, error } = useLoad((signal) => get("/api/v1/analytics/postgres-stats", { signal }), [], { everySeconds: 30 });
  if (!data) return <Failure error={error} />;
  const caches = data.cacheSummary as { tables?: { hitRatio?: number | null }; indexes?: { hitRatio?: number | null } };
  return (
    <>
      <Card title={`PostgreSQL ${data.version}`} note={data.database}>
        <div class="stats">
          <Stat label="Size" value={bytes(data.databaseSizeBytes)} />
          <Stat label="Table cache hits" value={ofHundred(caches.tables?.hitRatio ?? null)} />
          <Stat label="Index cache hits" value={ofHundred(caches.indexes?.hitRatio ?? null)} />
          <Stat label="Shared buffers" value={text(data.bufferConfig, "sharedBuffersSize")} />
          <Stat label="Long transactions" value={count(data.longTransactions.length)} tone={data.longTransactions.length ? "warn" : undefined} note="five seconds or longer" />
          <Stat label="Lock waits" value={count(data.locks.length)} tone={data.locks.length ? "warn" : undefined} />
        </div>
      </Card>
      <div class="grid">
        <Tables stats={data} />
        <Vacuum stats={data} />
      </div>
      <Calls stats={data} />
    </>
  );
}

function Tables({ stats }: { stats: Schemas["PostgresStats"] }) {
  return (
    <Card title="Tables">
      <Table
        caption="Tables by size"
        rows={stats.tableSizes.slice(0, 12)}
        keyOf={(row) => text(row, "table")}
        columns={[
          { title: "Table", cell: (row) => text(row, "table") },
          { title: "Total", cell: (row) => bytes(number(row, "totalSizeBytes")), isNumber: true },
          { title: "Rows", cell: (row) => bytes(number(row, "tableSizeBytes")), isNumber: true },
          { title: "Indexes", cell: (row) => bytes(number(row, "indexSizeBytes")), isNumber: true },
        ]}
      />
    </Card>
  );
}

function Vacuum({ stats }: { stats: Schemas["PostgresStats"] }) {
  return (
    <Card title="Bloat and vacuum" note="dead rows wait for a vacuum">
      <Table
        caption="Dead rows by table"
        rows={stats.deadTuples.slice(0, 12)}
        keyOf={(row) => text(row, "table")}
        columns={[
          { title: "Table", cell: (row) => text(row, "table") },
          { title: "Dead rows", cell: (row) => count(number(row, "deadTuples")), isNumber: true },
          { title: "Share", cell: (row) => ofHundred(number(row, "deadPercentage")), isNumber: true },
          { title: "Last vacuum", cell: (row) => <When at={(row["lastAutovacuum"] ?? row["lastVacuum"]) as string | null} /> },
        ]}
      />
    </Card>
  );
}

function Calls({ stats }: { stats: Schemas["PostgresStats"] }) {
  return (
    <Card title="Running statements" note="longest first">
      {stats.activeQueries.length === 0 ? <p class="muted">None.</p> : (
        <Table
          caption="Running statements"
          rows={stats.activeQueries}
          keyOf={(row) => text(row, "pid")}
          columns={[
            { title: "Process", cell: (row) => text(row, "pid"), isNumber: true },
            { title: "Since", cell: (row) => text(row, "duration") },
            { title: "State", cell: (row) => text(row, "state") },
            { title: "Waits for", cell: (row) => text(row, "waitEvent") },
            { title: "Statement", cell: (row) => <code>{text(row, "query")}</code>, isWide: true },
          ]}
        />
      )}
    </Card>
  );
}
