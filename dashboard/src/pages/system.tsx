// The machines below: workers, PostgreSQL, what instances there are.
import { get, type Schemas } from "../api/client";
import { Badge, Card, chosenRange, PageHead, Stat, Table, TimeRangeChoice, When } from "../parts";
import { Failure } from "../parts/notes";
import { Plot, type Line } from "../parts/plot";
import { useLoad } from "../state/loading";
import { hasRole } from "../state/session";
import { bytes, count, millis, percent, seconds } from "../words";

type Row = Record<string, unknown>;
const text = (row: Row, name: string) => (row[name] === null || row[name] === undefined ? "–" : String(row[name]));
const number = (row: Row, name: string) => (typeof row[name] === "number" ? row[name] : null);
const ofHundred = (value: number | null) => percent(value === null ? null : value / 100);

export function System() {
  return (
    <>
      <PageHead title="System"><TimeRangeChoice /></PageHead>
      <div class="stack">
        <Usage />
        {hasRole("admin") && <Instances />}
        <Postgres />
      </div>
    </>
  );
}

type Gauge = { avg?: number; last?: number };
type Metrics = { cpu?: { user_us?: Gauge; system_us?: Gauge }; memory?: { rss_bytes?: Gauge }; database?: { pool_active?: Gauge; pool_size?: Gauge } };

/** One line per worker, all on the times that any of them has. */
function linesOf(chart: Schemas["SystemChart"] | undefined, pick: (metrics: Metrics) => number | undefined): { times: number[]; lines: Line[] } {
  const replicas = (chart?.replicas ?? []).slice(0, 4);
  const times = [...new Set(replicas.flatMap((replica) => replica.timeSeries.map((point) => Date.parse(point.timestamp) / 1000)))].sort((a, b) => a - b);
  const lines = replicas.map((replica, index): Line => {
    const byTime = new Map(replica.timeSeries.map((point) => [Date.parse(point.timestamp) / 1000, pick(point.metrics as Metrics)]));
    return { label: `${replica.hostname} #${replica.workerId}`, colour: (index + 1) as 1 | 2 | 3 | 4, values: times.map((time) => byTime.get(time) ?? null) };
  });
  return { times, lines };
}

function Usage() {
  const range = chosenRange();
  const from = () => new Date(Date.now() - range * 1000).toISOString();
  const usage = useLoad((signal) => get("/api/v1/analytics/system-metrics", { query: { from: from() }, signal }), [range], { everySeconds: 30 });
  const workers = useLoad((signal) => get("/api/v1/analytics/worker-metrics", { query: { from: from() }, signal }), [range], { everySeconds: 30 });
  const cpu = linesOf(usage.data, (metrics) => ((metrics.cpu?.user_us?.avg ?? 0) + (metrics.cpu?.system_us?.avg ?? 0)) / 10_000);
  const memory = linesOf(usage.data, (metrics) => metrics.memory?.rss_bytes?.last);
  const points = [...(workers.data?.timeSeries ?? [])].sort((a, b) => a.timestamp.localeCompare(b.timestamp));
  const times = points.map((point) => Date.parse(point.timestamp) / 1000);
  return (
    <>
      <Failure error={usage.error ?? workers.error} />
      <div class="grid">
        <Card title="CPU" note="of one core, by worker"><Plot label="CPU" times={cpu.times} spanS={range} lines={cpu.lines} spell={percent} /></Card>
        <Card title="Memory" note="resident, by worker"><Plot label="Memory" times={memory.times} spanS={range} lines={memory.lines} spell={bytes} /></Card>
        <Card title="Event loops"><Plot label="Event loop lag" times={times} spanS={range} spell={millis} lines={[{ label: "Average", colour: 1, values: points.map((point) => point.avgEventLoopLagMs) }, { label: "Worst", colour: 2, values: points.map((point) => point.maxEventLoopLagMs) }]} /></Card>
        <Card title="Connections to PostgreSQL"><Plot label="Connections" times={times} spanS={range} spell={count} lines={[{ label: "Connections", colour: 1, values: points.map((point) => point.dbConnections) }, { label: "Waiting calls", colour: 2, values: points.map((point) => point.maxJobQueueSize) }]} /></Card>
      </div>
    </>
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
          { title: "Last heartbeat", cell: (instance) => `${seconds(instance.silentSeconds)} ago`, isNumber: true },
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
          <Stat label="Tables from cache" value={ofHundred(caches.tables?.hitRatio ?? null)} />
          <Stat label="Indexes from cache" value={ofHundred(caches.indexes?.hitRatio ?? null)} />
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
