// When each attempt ran, on one time axis: what waited, what was slow, and what ran at the same time.
import { Card, toneOf } from "../parts";
import { hrefTo } from "../state/place";
import { moment, seconds } from "../words";
import { runOf, type GraphJob } from "./chain-graph";

const SHOWN = 40;

export function ChainTimeline({ chainId, jobs }: { chainId: string; jobs: GraphJob[] }) {
  const now = Date.now();
  const time = (at: string | null) => (at ? Date.parse(at) : now);
  const begun = jobs.filter((job) => job.startedAt ?? job.tries.length);
  if (!begun.length) return null;
  const sorted = [...begun].sort((a, b) => time(a.createdAt) - time(b.createdAt) || a.position - b.position).slice(0, SHOWN);
  const start = Math.min(...sorted.map((job) => time(job.createdAt)));
  const end = Math.max(start + 1, ...sorted.map((job) => time(job.finishedAt)));
  const between = (from: number, to: number) => ({ left: `${((from - start) / (end - start)) * 100}%`, width: `max(3px, ${((to - from) / (end - start)) * 100}%)` });
  return (
    <Card title="Timeline" note={`${moment(new Date(start).toISOString())}, ${seconds((end - start) / 1000)} long`}>
      <ol class="spans">
        {sorted.map((job) => {
          const tries = attemptsOf(job);
          return (
            <li key={job.id}>
              <a class="clip" href={job.chainId === chainId ? `#${job.id}` : hrefTo(["chains", job.chainId])}>{job.type}</a>
              <div class="span-track" role="img" aria-label={tries.map((each) => tell(each, now)).join("; ")}>
                <div class="span-wait" style={between(time(job.createdAt), time(job.finishedAt))} />
                {tries.map((each) => <div key={each.attempt} class={`span-${toneOf(each.outcome)}`} style={between(time(each.startedAt), time(each.endedAt))} title={tell(each, now)} />)}
              </div>
              <span class="number small">{runOf(job) ?? "–"}</span>
            </li>
          );
        })}
      </ol>
      {begun.length > SHOWN && <p class="muted small">The first {SHOWN} of {begun.length} jobs.</p>}
    </Card>
  );
}

type Try = Pick<GraphJob["tries"][number], "attempt" | "outcome" | "startedAt" | "endedAt">;

/** The attempts that ended, and the one that runs. */
function attemptsOf(job: GraphJob): Try[] {
  const ended = job.tries.filter((each) => each.startedAt);
  const isRunning = job.state === "running" && !ended.some((each) => each.attempt === job.attempts);
  return isRunning ? [...ended, { attempt: job.attempts, outcome: "running", startedAt: job.startedAt, endedAt: null }] : ended;
}

function tell({ attempt, outcome, startedAt, endedAt }: Try, now: number): string {
  const took = ((endedAt ? Date.parse(endedAt) : now) - Date.parse(startedAt ?? "")) / 1000;
  return `attempt ${attempt}: ${outcome}, ${seconds(took)}`;
}
