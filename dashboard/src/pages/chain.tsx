// One chain: a drawing of its steps with what they wait for, each step with its attempts.
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, Card, Facts, PageHead, Progress, Table, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { Payload } from "../parts/json";
import { Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { hrefTo, navigate, place, spellQuery } from "../state/place";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { count, percent } from "../words";
import { ChainGraph, type Blocker } from "./chain-graph";

type Chain = Schemas["ChainRow"];
type Job = Schemas["JobRow"];
const LIMIT = 50;

export function ChainPage({ id }: { id: string }) {
  const after = place.value.query.get("after");
  const known = useRef(new Map<string, Blocker[]>());
  const names = { chain_id: id };
  const { data, error, reload } = useLoad(
    async (signal) => {
      const [chain, page, waiting] = await Promise.all([
        get("/api/v1/chains/{chain_id}", { names, signal }),
        get("/api/v1/chains/{chain_id}/jobs", { names, query: { limit: LIMIT, after }, signal }),
        get("/api/v1/jobs", { query: { blockedBy: id, limit: LIMIT }, signal }),
      ]);
      await Promise.all(page.items.map((job) => learnBlockers(job, known.current, signal)));
      return { chain, jobs: page.items, after: page.after, waiting: waiting.items, blockers: new Map(known.current) };
    },
    [id, after],
    { everySeconds: 2 },
  );
  return (
    <>
      <PageHead title={data?.chain.type ?? "Chain"}>{data && <Actions chain={data.chain} jobs={data.jobs} reload={reload} />}</PageHead>
      <div class="stack">
        <Failure error={error} />
        {data && (
          <>
            <About chain={data.chain} />
            <Card title="Steps" note={data.chain.jobCount > data.jobs.length ? `${count(data.jobs.length)} of ${count(data.chain.jobCount)}` : undefined}>
              <ChainGraph jobs={data.jobs} blockers={data.blockers} waiting={data.waiting.map((job) => ({ chain: job.chainId, type: job.type, state: job.state }))} />
              {data.after && <a class="button" href={location.pathname + spellQuery({ after: data.after })}>Later steps</a>}
            </Card>
            {[...data.jobs].reverse().map((job) => <JobCard key={job.id} job={job} />)}
          </>
        )}
      </div>
    </>
  );
}

/** What a job waits for changes only while it waits. */
async function learnBlockers(job: Job, known: Map<string, Blocker[]>, signal: AbortSignal): Promise<void> {
  const isSettled = known.get(job.id)?.every((blocker) => blocker.state !== "open");
  if (isSettled && job.state !== "blocked") return;
  known.set(job.id, (await get("/api/v1/jobs/{job_id}/blockers", { names: { job_id: job.id }, signal })).blockers);
}

/** What a job that is blocked waits for in vain, until a person retries it. */
function waitsFor(failedBlockers: number | null) {
  return failedBlockers ? `${count(failedBlockers)} failed or cancelled` : null;
}

function About({ chain }: { chain: Chain }) {
  const facts: [string, ComponentChildren][] = [
    ["State", <Badge word={chain.state} />],
    ["Id", <span class="mono">{chain.id}</span>],
    ["Key", chain.key],
    ["Started", <When at={chain.createdAt} />],
    ["Ended", <When at={chain.closedAt} />],
    ["Deadline", <When at={chain.deadlineAt} />],
    ["Waits for", waitsFor(chain.failedBlockers)],
    ["Error", chain.lastError],
  ];
  return (
    <div class="grid">
      <Card title="Chain"><Facts facts={facts} /></Card>
      <Card title="Input"><Payload value={chain.input} /></Card>
      {chain.state === "completed" && <Card title="Output"><Payload value={chain.output} /></Card>}
    </div>
  );
}

function JobCard({ job }: { job: Job }) {
  const hasHistory = job.attempts > 1 || job.error !== null || Boolean(job.failures);
  const { data } = useLoad(
    async (signal) => (hasHistory ? get("/api/v1/jobs/{job_id}/attempts", { names: { job_id: job.id }, query: { limit: 200 }, signal }) : null),
    [job.id, job.attempts, job.state, hasHistory],
  );
  const attempts = data?.attempts ?? [];
  return (
    <Card title={`${job.position + 1}. ${job.type}`} note={<Badge word={job.state} />}>
      <div class="grid">
        <Facts facts={[["Attempts", `${job.attempts} of ${job.maxAttempts}`], ["Due", <When at={job.dueAt} />], ["Started", <When at={job.startedAt} />], ["Ended", <When at={job.finishedAt} />], ["Priority", String(job.priority)], ["Limit key", job.limitKey], ["Waits for", waitsFor(job.failedBlockers)], ["If a blocker fails", job.onBlockerFailure], ["Error", job.lastError]]} />
        <details>
          <summary>Input and output</summary>
          <h3>Input</h3><Payload value={job.input} />
          {job.finishedAt && <><h3>Output</h3><Payload value={job.output} /></>}
        </details>
      </div>
      {job.state === "running" && job.progress !== null && (
        <div class="form"><Progress share={job.progress} label={`Progress of ${job.type}`} /><span class="muted small">{percent(job.progress)} {job.progressNote}</span></div>
      )}
      {attempts.length > 0 && (
        <Table
          caption={`Attempts of ${job.type}`}
          rows={attempts}
          keyOf={(attempt) => attempt.attempt}
          columns={[
            { title: "Attempt", cell: (attempt) => count(attempt.attempt), isNumber: true },
            { title: "Outcome", cell: (attempt) => <Badge word={attempt.outcome} /> },
            { title: "Started", cell: (attempt) => <When at={attempt.startedAt} /> },
            { title: "Ended", cell: (attempt) => <When at={attempt.endedAt} /> },
            { title: "Error", cell: (attempt) => attempt.error, isWide: true },
          ]}
        />
      )}
    </Card>
  );
}

type Asked = "cancel" | "retry" | "delete" | null;

function Actions({ chain, jobs, reload }: { chain: Chain; jobs: Job[]; reload: () => void }) {
  const [asked, setAsked] = useState<Asked>(null);
  const [isCascade, setCascade] = useState(false);
  const names = { chain_id: chain.id };
  const close = () => setAsked(null);
  const hasEnded = chain.state === "failed" || chain.state === "cancelled";
  const scheduled = jobs.find((job) => job.state === "scheduled");
  const trigger = (job: Job) => attempt(async () => {
    await act("triggerJob", { names: { job_id: job.id } });
    reload();
    return "Triggered: it runs as soon as a worker is free.";
  });
  return (
    <div class="row">
      {scheduled && may("triggerJob") && <button onClick={() => trigger(scheduled)}>Run now</button>}
      {hasEnded && may("retryChain") && <button class="primary" onClick={() => setAsked("retry")}>Retry</button>}
      {chain.state === "open" && may("cancelChain") && <button class="danger" onClick={() => setAsked("cancel")}>Cancel the chain</button>}
      {chain.state !== "open" && may("deleteChain") && <button class="danger" onClick={() => setAsked("delete")}>Delete</button>}
      {asked === "retry" && (
        <Confirm title="Retry the chain" verb="Retry it" onClose={close} work={async () => {
          await act("retryChain", { names });
          reload();
          return "Resumed the chain.";
        }}>
          <p>It continues with the job at which it ended, with all attempts of that job.</p>
        </Confirm>
      )}
      {asked === "cancel" && (
        <Confirm title="Cancel the chain" verb="Cancel it" onClose={close} work={async () => {
          await act("cancelChain", { names, body: { cascade: isCascade, reason: "cancelled in the dashboard" } });
          reload();
          return "Cancelled.";
        }}>
          <p>It starts no more jobs; a running job is asked to stop.</p>
          <label class="row"><input type="checkbox" checked={isCascade} onChange={(event) => setCascade(event.currentTarget.checked)} />Also cancel the chains that wait for it</label>
        </Confirm>
      )}
      {asked === "delete" && (
        <Confirm title="Delete the chain" verb="Delete" onClose={close} work={async () => {
          await act("deleteChain", { names });
          navigate(hrefTo(["chains"]));
          return "Deleted.";
        }}>
          <p>The chain is deleted with its jobs and their history. This cannot be undone.</p>
        </Confirm>
      )}
    </div>
  );
}
