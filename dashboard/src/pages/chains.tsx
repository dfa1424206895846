// Job chains: what runs, what waits for what, what failed, and when schedules come next.
import { useState } from "preact/hooks";
import { getIfServed, request, spellPath } from "../api/client";
import { entriesOf, type Attempt, type Chain, type Job, type Schedule, type TypeCounts } from "../api/further";
import { Badge, Card, Facts, PageHead, Table, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { ChoiceFilter, TextFilter } from "../parts/fields";
import { Payload } from "../parts/json";
import { Empty, Failure, NotServed } from "../parts/notes";
import { useLoad } from "../state/loading";
import { hrefTo, place, spellQuery } from "../state/place";
import { hasRole } from "../state/session";
import { count, seconds } from "../words";
import { ChainGraph } from "./chain-graph";

const LIMIT = 50;

export function Chains() {
  const id = place.value.segments[1];
  return id === undefined ? <ChainList /> : <ChainPage key={id} id={id} />;
}

function ChainList() {
  const { query } = place.value;
  const wanted = { state: query.get("state"), type: query.get("type"), after: query.get("after") };
  const { data, error } = useLoad(
    async (signal) => {
      const page = await getIfServed<{ after?: string | null }>("/api/v1/chains", { query: { ...wanted, limit: LIMIT }, signal });
      if (page === null) return null;
      const [types, schedules] = await Promise.all([
        getIfServed<unknown>("/api/v1/jobs/types", { signal }).catch(() => null),
        getIfServed<unknown>("/api/v1/schedules", { signal }).catch(() => null),
      ]);
      return { chains: entriesOf<Chain>(page, "chains"), after: page.after ?? null, types: entriesOf<TypeCounts>(types, "types"), schedules: entriesOf<Schedule>(schedules, "schedules") };
    },
    [wanted],
    { everySeconds: 3 },
  );
  if (data === null) {
    return (
      <>
        <PageHead title="Chains and jobs" />
        <NotServed what="job chains" />
      </>
    );
  }
  return (
    <>
      <PageHead title="Chains and jobs" />
      <div class="stack">
        <div class="filters">
          <ChoiceFilter label="State" name="state" choices={[["", "Any"], ["open", "Open"], ["completed", "Completed"], ["failed", "Failed"], ["cancelled", "Cancelled"]]} />
          <TextFilter label="Type" name="type" />
        </div>
        <Failure error={error} />
        {data && data.types.length > 0 && <Types types={data.types} />}
        {data && (data.chains.length ? <Listed chains={data.chains} after={data.after} /> : <Empty title="No chain matches"><p>Chains appear here as soon as they are started.</p></Empty>)}
        {data && data.schedules.length > 0 && <Schedules schedules={data.schedules} />}
      </div>
    </>
  );
}

function Types({ types }: { types: TypeCounts[] }) {
  return (
    <Card title="Open jobs by type">
      <Table
        caption="Open jobs by type"
        rows={types}
        keyOf={(type) => type.type}
        columns={[
          { title: "Type", cell: (type) => type.type, isWide: true },
          { title: "Ready", cell: (type) => count(type.ready), isNumber: true },
          { title: "Running", cell: (type) => count(type.running), isNumber: true },
          { title: "Scheduled", cell: (type) => count(type.scheduled), isNumber: true },
          { title: "Blocked", cell: (type) => count(type.blocked), isNumber: true },
          { title: "Oldest ready", cell: (type) => seconds(type.oldestReadyS), isNumber: true },
        ]}
      />
    </Card>
  );
}

function Listed({ chains, after }: { chains: Chain[]; after: string | null }) {
  return (
    <Card title="Chains">
      <Table
        caption="Chains"
        rows={chains}
        keyOf={(chain) => chain.id}
        columns={[
          { title: "Chain", cell: (chain) => <a class="clip mono" href={hrefTo(["chains", chain.id])}>{chain.id}</a> },
          { title: "Type", cell: (chain) => chain.type ?? "–", isWide: true },
          { title: "State", cell: (chain) => <Badge word={chain.state ?? "unknown"} /> },
          { title: "Jobs", cell: (chain) => count(chain.jobCount), isNumber: true },
          { title: "At", cell: (chain) => chain.lastJobType ? `${chain.lastJobType} (${chain.lastJobState ?? "–"})` : "–", isWide: true },
          { title: "Started", cell: (chain) => <When at={chain.createdAt} /> },
          { title: "Error", cell: (chain) => chain.error ?? "", isWide: true },
        ]}
      />
      {after && <a class="button" href={location.pathname + spellQuery({ after })}>Older</a>}
    </Card>
  );
}

function Schedules({ schedules }: { schedules: Schedule[] }) {
  return (
    <Card title="Schedules">
      <Table
        caption="Schedules"
        rows={schedules}
        keyOf={(schedule) => schedule.name}
        columns={[
          { title: "Schedule", cell: (schedule) => schedule.name, isWide: true },
          { title: "Job", cell: (schedule) => schedule.type ?? "–" },
          { title: "When", cell: (schedule) => <code>{[schedule.cron, schedule.timezone].filter(Boolean).join(" ")}</code> },
          { title: "Next run", cell: (schedule) => <When at={schedule.nextAt} /> },
          { title: "Last run", cell: (schedule) => <When at={schedule.lastAt} /> },
        ]}
      />
    </Card>
  );
}

function ChainPage({ id }: { id: string }) {
  const { data, error, reload } = useLoad(
    async (signal) => {
      const [chain, jobs] = await Promise.all([
        getIfServed<Chain>("/api/v1/chains/{id}", { names: { id }, signal }),
        getIfServed<unknown>("/api/v1/jobs", { query: { chainId: id, limit: 200 }, signal }),
      ]);
      const listed = entriesOf<Job>(jobs, "jobs").sort((a, b) => (a.position ?? 0) - (b.position ?? 0));
      return chain && { chain, jobs: listed };
    },
    [id],
    { everySeconds: 2 },
  );
  if (data === null) return <NotServed what="job chains" />;
  return (
    <>
      <PageHead title={data?.chain.type ?? "Chain"}>{data && <Actions chain={data.chain} reload={reload} />}</PageHead>
      <div class="stack">
        <Failure error={error} />
        {data && (
          <>
            <Card title="Chain">
              <Facts facts={[["State", <Badge word={data.chain.state ?? "unknown"} />], ["Id", <span class="mono">{data.chain.id}</span>], ["Key", data.chain.key], ["Started", <When at={data.chain.createdAt} />], ["Ended", <When at={data.chain.closedAt} />], ["Error", data.chain.error]]} />
            </Card>
            <Card title="Steps"><ChainGraph jobs={data.jobs} /></Card>
            {data.jobs.map((job) => <JobCard key={job.id} job={job} />)}
            <div class="grid">
              <Card title="Input"><Payload value={data.chain.input ?? null} /></Card>
              <Card title="Output"><Payload value={data.chain.output ?? null} /></Card>
            </div>
          </>
        )}
      </div>
    </>
  );
}

function JobCard({ job }: { job: Job }) {
  const hasFailed = (job.attempts ?? 0) > 1 || Boolean(job.error);
  const { data } = useLoad(async (signal) => (hasFailed ? getIfServed<unknown>("/api/v1/jobs/{id}/attempts", { names: { id: job.id }, signal }) : null), [job.id, job.attempts]);
  const attempts = entriesOf<Attempt>(data, "attempts");
  return (
    <Card title={job.type ?? job.id} note={<Badge word={job.state ?? "unknown"} />}>
      <Facts facts={[["Attempts", `${job.attempts ?? 0} of ${job.maxAttempts ?? "–"}`], ["Due", <When at={job.dueAt} />], ["Started", <When at={job.startedAt} />], ["Ended", <When at={job.finishedAt} />], ["Error", job.error]]} />
      {attempts.length > 0 && (
        <Table
          caption={`Attempts of ${job.type ?? job.id}`}
          rows={attempts}
          keyOf={(attempt) => attempt.attempt ?? 0}
          columns={[
            { title: "Attempt", cell: (attempt) => count(attempt.attempt), isNumber: true },
            { title: "Outcome", cell: (attempt) => attempt.outcome ?? "–" },
            { title: "Started", cell: (attempt) => <When at={attempt.startedAt} /> },
            { title: "Error", cell: (attempt) => attempt.error ?? "", isWide: true },
          ]}
        />
      )}
    </Card>
  );
}

function Actions({ chain, reload }: { chain: Chain; reload: () => void }) {
  const [asked, setAsked] = useState<"cancel" | "retry" | null>(null);
  if (!hasRole("read-write")) return null;
  const run = (verb: "cancel" | "retry") => async () => {
    await request("POST", spellPath(`/api/v1/chains/{id}/${verb}`, { id: chain.id }), { body: {} });
    reload();
    return verb === "cancel" ? "Cancelled." : "It is tried again.";
  };
  return (
    <div class="row">
      {chain.state === "failed" && <button class="primary" onClick={() => setAsked("retry")}>Retry</button>}
      {chain.state === "open" && <button class="danger" onClick={() => setAsked("cancel")}>Cancel</button>}
      {asked && (
        <Confirm title={asked === "cancel" ? "Cancel the chain" : "Retry the chain"} verb={asked === "cancel" ? "Cancel it" : "Retry it"} onClose={() => setAsked(null)} work={run(asked)}>
          <p>{asked === "cancel" ? "No further job of it is started; a job that runs is told." : "Its last job is tried again with its retries restored."}</p>
        </Confirm>
      )}
    </div>
  );
}
