// Job chains: what runs and what failed; types with their pace; schedules; workers.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, Card, PageHead, Table, Tabs, toneOf, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { Choices, TextFilter } from "../parts/fields";
import { Empty, Failure } from "../parts/notes";
import { ErrorLine } from "../parts/trouble";
import { useLoad } from "../state/loading";
import { hrefTo, place, spellQuery } from "../state/place";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { count, percent, rate, seconds } from "../words";
import { ChainPage } from "./chain";
import { BulkActions } from "./chain-bulk";

type Chain = Schemas["ChainRow"];
type State = "open" | "completed" | "failed" | "cancelled";
const LIMIT = 50;
const TABS: [string, string][] = [["chains", "Chains"], ["types", "Types"], ["schedules", "Schedules"], ["workers", "Workers"]];

export function Chains() {
  const id = place.value.segments[1];
  return id === undefined ? <ChainParts /> : <ChainPage key={id} id={id} />;
}

function ChainParts() {
  const tab = place.value.query.get("tab") ?? "chains";
  return (
    <>
      <PageHead title="Chains and jobs" />
      <div class="stack">
        <Tabs name="Parts of the jobs" current={tab} tabs={TABS} />
        {tab === "chains" && <ChainList />}
        {tab === "types" && <Types />}
        {tab === "schedules" && <Schedules />}
        {tab === "workers" && <Workers />}
      </div>
    </>
  );
}

function ChainList() {
  const { query } = place.value;
  const wanted = { state: query.get("state") as State | null, type: query.get("type"), key: query.get("key"), after: query.get("after") };
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const { data, error, reload } = useLoad(
    (signal) => get("/api/v1/chains", { query: { ...wanted, limit: LIMIT }, signal }),
    [wanted],
    wanted.after ? {} : { everySeconds: 5 },
  );
  const restart = () => {
    setChosen(new Set());
    reload();
  };
  return (
    <>
      <StateCounts />
      <div class="filters">
        <TextFilter label="Type" name="type" />
        <TextFilter label="Key" name="key" />
        <span class="grow" />
        {data && data.items.length > 0 && <BulkActions filter={wanted} chosen={chosen} onDone={restart} />}
      </div>
      <Failure error={error} />
      {data && (data.items.length ? <Listed chains={data.items} after={data.after} chosen={chosen} onChoose={setChosen} /> : (
        <Empty title="No chain matches">
          <p>Chains appear here once an application starts one:</p>
          <pre tabIndex={0}>{`curl -X POST ${location.origin}/api/v1/chains -H 'content-type: application/json' \\\n  -d '{"chains": [{"type": "send-mail", "input": {"to": "ann@example.com"}}]}'`}</pre>
        </Empty>
      ))}
    </>
  );
}

/** How many chains are in each state; a click narrows the list to them. */
function StateCounts() {
  const { data } = useLoad((signal) => get("/api/v1/chains/counts", { signal }), [], { everySeconds: 5 });
  const states = data?.states.map(({ state, count: number, isExact }): [string, ComponentChildren] => [
    state,
    <>{state} <strong class={number ? `tone-${toneOf(state)}` : undefined}>{count(number)}{!isExact && "+"}</strong></>,
  ]);
  return <Choices label="Chains by state" name="state" choices={[["", "All"], ...(states ?? [])]} />;
}

type ListedProps = { chains: Chain[]; after: string | null; chosen: ReadonlySet<string>; onChoose: (chosen: ReadonlySet<string>) => void };

function Listed({ chains, after, chosen, onChoose }: ListedProps) {
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    onChoose(next);
  };
  return (
    <Card>
      <Table
        caption="Chains"
        rows={chains}
        keyOf={(chain) => chain.id}
        columns={[
          { title: "Chosen", cell: (chain) => <input type="checkbox" aria-label={`Choose ${chain.id}`} checked={chosen.has(chain.id)} onChange={() => toggle(chain.id)} /> },
          { title: "Chain", cell: (chain) => <><a class="clip" href={hrefTo(["chains", chain.id])} title={chain.id}>{chain.key ?? shortId(chain.id)}</a>{chain.key && <div class="muted small mono">{shortId(chain.id)}</div>}</> },
          { title: "Type", cell: (chain) => <>{chain.type}{standing(chain) && <div class="muted small" title={`Step ${count(chain.jobCount)}`}>{standing(chain)}</div>}</>, isWide: true },
          { title: "State", cell: (chain) => <Badge word={chain.state} /> },
          { title: "Started", cell: (chain) => <When at={chain.createdAt} /> },
          { title: "Error", cell: (chain) => <ErrorLine error={chain.lastError} />, isWide: true },
        ]}
      />
      <div class="row">
        {place.value.query.get("after") && <a class="button" href={location.pathname + spellQuery({ after: null })}>Newest</a>}
        {after && <a class="button" href={location.pathname + spellQuery({ after })}>Older</a>}
      </div>
    </Card>
  );
}

/** The step that a chain has come to, and how that stands, where the chain's own state does not say it. */
function standing({ type, state, jobCount, lastJobType, lastJobState, failedBlockers }: Chain): string | null {
  if (jobCount === 1 && lastJobType === type && lastJobState === state) return null;
  const blocked = lastJobState === "blocked" && failedBlockers ? ` by ${count(failedBlockers)} that failed` : "";
  return `${lastJobType === type ? "" : `${lastJobType}, `}${lastJobState}${blocked}`;
}

/** The end of an id: chains of one moment begin alike. */
function shortId(id: string): string {
  return `…${id.slice(-12)}`;
}

type TypeView = { row: Schemas["TypeRow"]; open: Schemas["TypeCounts"] | undefined; pace: Schemas["TypeThroughput"] | undefined };

function Types() {
  const after = place.value.query.get("after");
  const { data, error, reload } = useLoad(
    async (signal) => {
      const [types, counts, pace] = await Promise.all([
        get("/api/v1/jobs/types", { query: { limit: LIMIT, after }, signal }),
        get("/api/v1/jobs/counts", { signal }),
        get("/api/v1/jobs/throughput", { signal }),
      ]);
      const open = new Map(counts.types.map((each) => [each.type, each]));
      const paces = new Map(pace.types.map((each) => [each.type, each]));
      const views = types.items.map((row): TypeView => ({ row, open: open.get(row.name), pace: paces.get(row.name) }));
      return { views, after: types.after, spanSeconds: pace.spanSeconds };
    },
    [after],
    { everySeconds: 5 },
  );
  if (data && !data.views.length) return <Empty title="No jobs yet"><p>Types appear with their first job.</p></Empty>;
  return (
    <Card title="Job types" note={data && `rates of the chains that ended in the last ${seconds(data.spanSeconds)}`}>
      <Failure error={error} />
      <Table
        caption="Job types"
        rows={data?.views ?? []}
        keyOf={({ row }) => row.name}
        columns={[
          { title: "Type", cell: ({ row }) => <a class="wrap" href={hrefTo(["chains"], { type: row.name })}>{row.name}</a>, isWide: true },
          { title: "Ready", cell: ({ open }) => about(open, open?.ready ?? 0), isNumber: true },
          { title: "Running", cell: ({ open }) => about(open, open?.running ?? 0), isNumber: true },
          { title: "Scheduled", cell: ({ open }) => about(open, open?.scheduled ?? 0), isNumber: true },
          { title: "Blocked", cell: ({ open }) => about(open, open?.blocked ?? 0), isNumber: true },
          { title: "Oldest ready", cell: ({ open }) => seconds(open?.oldestReadyS), isNumber: true },
          { title: "Per minute", cell: ({ pace }) => rate(pace?.perMinute ?? 0), isNumber: true },
          { title: "Failed", cell: ({ pace }) => (pace?.ended ? percent(pace.failed / pace.ended) : "–"), isNumber: true },
          { title: "Mean run", cell: ({ pace }) => seconds(pace?.meanRunSeconds), isNumber: true },
          { title: "Limits", cell: ({ row }) => limitsOf(row) },
          { title: "", cell: ({ row }) => <Hold type={row} reload={reload} /> },
        ]}
      />
      {data?.after && <a class="button" href={location.pathname + spellQuery({ after: data.after })}>More</a>}
    </Card>
  );
}

// Numbers too large to be counted are estimates, and look like it.
function about(open: TypeView["open"], number: number): string {
  return open && !open.isExact && number >= open.exactUpTo ? `≈ ${count(number)}` : count(number);
}

function limitsOf(type: Schemas["TypeRow"]): string {
  const told = [
    type.concurrency === null ? null : `${count(type.concurrency)} at a time`,
    type.keyConcurrency === null ? null : `${count(type.keyConcurrency)} per key`,
    type.rateLimit === null ? null : `${count(type.rateLimit)} per ${seconds(type.ratePeriodS)}`,
  ];
  return told.filter(Boolean).join(", ") || "none";
}

function Hold({ type, reload }: { type: Schemas["TypeRow"]; reload: () => void }) {
  const change = () => attempt(async () => {
    await act(type.isPaused ? "resumeJobType" : "pauseJobType", { names: { name: type.name } });
    reload();
    return type.isPaused ? "Resumed the type." : "Paused the type; running jobs continue.";
  });
  return (
    <div class="row">
      {type.isPaused && <Badge word="paused" />}
      {may("pauseJobType") && <button onClick={change} aria-label={`${type.isPaused ? "Resume" : "Pause"} ${type.name}`}>{type.isPaused ? "Resume" : "Pause"}</button>}
    </div>
  );
}

function Schedules() {
  const after = place.value.query.get("after");
  const [doomed, setDoomed] = useState<string | null>(null);
  const { data, error, reload } = useLoad((signal) => get("/api/v1/schedules", { query: { limit: LIMIT, after }, signal }), [after], { everySeconds: 5 });
  return (
    <>
      <Failure error={error} />
      {data && (data.items.length ? (
        <Card>
          <Table
            caption="Schedules"
            rows={data.items}
            keyOf={(schedule) => schedule.name}
            columns={[
              { title: "Schedule", cell: (schedule) => schedule.name, isWide: true },
              { title: "Job", cell: (schedule) => schedule.type, isWide: true },
              { title: "When", cell: (schedule) => <code>{schedule.cron} {schedule.timezone}</code> },
              { title: "Next run", cell: (schedule) => schedule.isEnabled ? <When at={schedule.nextAt} /> : <Badge word={schedule.removedAt ? "removed" : schedule.isPaused ? "paused" : "disabled"} /> },
              { title: "Last run", cell: (schedule) => schedule.lastChainId ? <a href={hrefTo(["chains", schedule.lastChainId])}><When at={schedule.lastAt} /></a> : "never" },
              { title: "Missed runs", cell: (schedule) => MISSED[schedule.missed] },
              { title: "", cell: (schedule) => <ScheduleActions schedule={schedule} reload={reload} onDelete={() => setDoomed(schedule.name)} /> },
            ]}
          />
          {data.after && <a class="button" href={location.pathname + spellQuery({ after: data.after })}>More</a>}
        </Card>
      ) : <Empty title="No schedules"><p>A schedule starts a chain at given times: <code>PUT /api/v1/schedules/NAME</code>, or in an application.</p></Empty>)}
      {doomed !== null && (
        <Confirm title="Delete the schedule" verb="Delete" typed={doomed} onClose={() => setDoomed(null)} work={async () => {
          await act("deleteSchedule", { names: { name: doomed } });
          reload();
          return "Deleted.";
        }}>
          <p>It starts no more chains. Chains that it started continue.</p>
        </Confirm>
      )}
    </>
  );
}

const MISSED = { skip: "skipped", once: "run once", all: "all run later" } as const;

function ScheduleActions({ schedule, reload, onDelete }: { schedule: Schemas["ScheduleRow"]; reload: () => void; onDelete: () => void }) {
  if (!may("pauseSchedule")) return null;
  const toggle = () => attempt(async () => {
    await act(schedule.isPaused ? "resumeSchedule" : "pauseSchedule", { names: { name: schedule.name } });
    reload();
    return schedule.isPaused ? "Resumed." : "Paused.";
  });
  return (
    <div class="row">
      {!schedule.removedAt && (schedule.isEnabled || schedule.isPaused) && <button onClick={toggle}>{schedule.isPaused ? "Resume" : "Pause"}</button>}
      <button class="danger" onClick={onDelete}>Delete</button>
    </div>
  );
}

function Workers() {
  const after = place.value.query.get("after");
  const { data, error } = useLoad((signal) => get("/api/v1/jobs/workers", { query: { limit: LIMIT, after }, signal }), [after], { everySeconds: 5 });
  return (
    <>
      <Failure error={error} />
      {data && (data.items.length ? (
        <Card>
          <Table
            caption="Workers"
            rows={data.items}
            keyOf={(worker) => worker.id}
            columns={[
              { title: "Worker", cell: (worker) => worker.name, isWide: true },
              { title: "State", cell: (worker) => <Badge word={worker.isLate ? "late" : "active"} tone={worker.isLate ? "bad" : "good"} /> },
              { title: "Running", cell: (worker) => count(worker.running), isNumber: true },
              { title: "Enrolled", cell: (worker) => <When at={worker.enrolledAt} /> },
              { title: "Lease ends", cell: (worker) => <When at={worker.expiresAt} /> },
            ]}
          />
          {data.after && <a class="button" href={location.pathname + spellQuery({ after: data.after })}>More</a>}
        </Card>
      ) : <Empty title="No workers"><p>Start one where the code of the jobs is installed:</p><pre tabIndex={0}>skep worker module:app</pre></Empty>)}
    </>
  );
}
