// One chain: why it failed, a drawing of its steps with what is around them, when they ran, and each with its attempts.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, Card, Facts, PageHead, Progress, Table, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { Payload } from "../parts/json";
import { Failure, Missing } from "../parts/notes";
import { ErrorText } from "../parts/trouble";
import { useLoad } from "../state/loading";
import { hrefTo, navigate, place, spellQuery } from "../state/place";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { count, counted, percent, seconds } from "../words";
import { ChainGraph, type GraphJob } from "./chain-graph";
import { ChainTimeline } from "./chain-timeline";

type Chain = Schemas["ChainRow"];
type Job = Schemas["JobRow"];
const LIMIT = 50;

export function ChainPage({ id }: { id: string }) {
  const after = place.value.query.get("after");
  const names = { chain_id: id };
  const { data, error, reload } = useLoad(
    async (signal) => {
      const [chain, page, graph] = await Promise.all([
        get("/api/v1/chains/{chain_id}", { names, signal }),
        get("/api/v1/chains/{chain_id}/jobs", { names, query: { limit: LIMIT, after }, signal }),
        get("/api/v1/chains/{chain_id}/graph", { names, signal }),
      ]);
      return { chain, jobs: page.items, after: page.after, graph: graph.jobs };
    },
    [id, after],
    { everySeconds: (loaded) => (loaded && loaded.chain.state !== "open" ? 15 : 2) },
  );
  if (error?.status === 404) return <Missing what="Chain">No chain has the id <strong class="mono wrap">{id}</strong>. <a href="/chains">All chains</a></Missing>;
  return (
    <>
      <PageHead from={["Chains", "/chains"]} title={data?.chain.type ?? "Chain"} state={data && <Badge word={data.chain.state} />}>{data && <Actions chain={data.chain} jobs={data.jobs} reload={reload} />}</PageHead>
      <div class="stack">
        <Failure error={error} />
        {data && (
          <>
            <Reasons chain={data.chain} graph={data.graph} />
            <Card title="Steps" note={data.chain.jobCount > data.jobs.length ? `${count(data.jobs.length)} of ${count(data.chain.jobCount)}` : undefined}>
              <ChainGraph chainId={id} jobs={data.graph} />
            </Card>
            <ChainTimeline chainId={id} jobs={data.graph} />
            <About chain={data.chain} />
            {data.jobs.map((job) => <JobCard key={job.id} job={job} tries={data.graph.find((each) => each.id === job.id)?.tries ?? []} />)}
            {data.after && <div class="row"><a class="button" href={location.pathname + spellQuery({ after: data.after })}>Later steps</a></div>}
          </>
        )}
      </div>
    </>
  );
}

/** What a job that is blocked waits for in vain, until a person retries it. */
function waitsFor(failedBlockers: number | null) {
  return failedBlockers ? `${count(failedBlockers)} failed or cancelled` : null;
}

const REASONS: Record<string, string> = { failed: "Why it failed", cancelled: "Why it was cancelled" };

/** What it says itself, and what those that it waited for say. */
function Reasons({ chain, graph }: { chain: Chain; graph: GraphJob[] }) {
  if (!chain.lastError) return null;
  const awaited = new Set(graph.filter((job) => job.chainId === chain.id).flatMap((job) => job.waitsFor));
  const roots = graph.filter((job) => awaited.has(job.chainId) && job.state === "failed");
  return (
    <Card title={REASONS[chain.state] ?? "Last error"} note={chain.lastJobType}>
      <ErrorText error={chain.lastError} isOpen={!roots.length} />
      {roots.map((job) => job.error && (
        <div key={job.id}>
          <p><a href={hrefTo(["chains", job.chainId])}>{job.type}</a> failed after {counted(job.attempts, "attempt")}:</p>
          <ErrorText error={job.error} isOpen />
        </div>
      ))}
    </Card>
  );
}

function About({ chain }: { chain: Chain }) {
  const facts: [string, ComponentChildren][] = [
    ["Id", <span class="mono">{chain.id}</span>],
    ["Key", chain.key],
    ["Started", <When at={chain.createdAt} />],
    ["Ended", chain.closedAt && <When at={chain.closedAt} />],
    ["Deadline", chain.deadlineAt && <When at={chain.deadlineAt} />],
    ["Waits for", waitsFor(chain.failedBlockers)],
  ];
  return (
    <div class="grid">
      <Card title="Chain"><Facts facts={facts} /></Card>
      <Card title="Input"><Payload value={chain.input} /></Card>
      {chain.state === "completed" && <Card title="Output"><Payload value={chain.output} /></Card>}
    </div>
  );
}

function JobCard({ job, tries }: { job: Job; tries: GraphJob["tries"] }) {
  const hasFailed = tries.some((each) => each.error);
  return (
    <Card id={job.id} title={`${job.position + 1}. ${job.type}`} note={<Badge word={job.state} />}>
      <div class="sides">
        <Facts facts={[["Attempts", `${job.attempts} of ${job.maxAttempts}`], ["Due", job.dueAt && <When at={job.dueAt} />], ["Started", job.startedAt && <When at={job.startedAt} />], ["Ended", job.finishedAt && <When at={job.finishedAt} />], ["Priority", job.priority ? String(job.priority) : null], ["Limit key", job.limitKey], ["Waits for", waitsFor(job.failedBlockers)], ["If a blocker fails", job.onBlockerFailure]]} />
        <details>
          <summary>Input and output</summary>
          <h3>Input</h3><Payload value={job.input} />
          {job.finishedAt && <><h3>Output</h3><Payload value={job.output} /></>}
        </details>
      </div>
      {job.state === "running" && job.progress !== null && (
        <div class="form"><Progress share={job.progress} label={`Progress of ${job.type}`} /><span class="muted small">{percent(job.progress)} {job.progressNote}</span></div>
      )}
      {(hasFailed || tries.length > 1) && (
        <Table
          caption={`Attempts of ${job.type}`}
          rows={tries}
          keyOf={(attempt) => attempt.attempt}
          columns={[
            { title: "Attempt", cell: (attempt) => count(attempt.attempt) },
            { title: "Outcome", cell: (attempt) => <Badge word={attempt.outcome} /> },
            { title: "Started", cell: (attempt) => <When at={attempt.startedAt} /> },
            { title: "Took", cell: (attempt) => attempt.startedAt && attempt.endedAt ? seconds((Date.parse(attempt.endedAt) - Date.parse(attempt.startedAt)) / 1000) : "–", isNumber: true },
            { title: "Error", cell: (attempt) => attempt.error && <ErrorText error={attempt.error} />, isWide: true },
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
        <Confirm title="Retry the chain" verb="Retry it" isSafe onClose={close} work={async () => {
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
