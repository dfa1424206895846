// A chain as a drawing: what goes on at the same time stands below each other. Each chain is a row; lines lead
// from what a job waited for, and from the job that started a chain.
import type { Schemas } from "../api/client";
import { toneOf } from "../parts";
import { hrefTo } from "../state/place";
import { seconds } from "../words";

export type GraphJob = Schemas["GraphJob"];
type Node = { job: GraphJob; after: GraphJob[]; column: number; row: number };

const BOX = { width: 172, height: 46, gap: 44, rise: 60 };
const TEXT_CHARS = 22;

const clip = (text: string) => (text.length > TEXT_CHARS ? `${text.slice(0, TEXT_CHARS - 1)}…` : text);

/** How long a job ran, or has been running. */
export function runOf({ startedAt, finishedAt, state }: GraphJob): string | null {
  if (!startedAt || !(finishedAt || state === "running")) return null;
  return seconds((Date.parse(finishedAt ?? new Date().toISOString()) - Date.parse(startedAt)) / 1000);
}

/** Jobs by their chain, in order. */
function chainsOf(jobs: GraphJob[]): Map<string, GraphJob[]> {
  const chains = Map.groupBy(jobs, (job) => job.chainId);
  for (const steps of chains.values()) steps.sort((a, b) => a.position - b.position);
  return chains;
}

/** Columns by what comes after what; rows so that no two chains overlap, the chain one looks at on top. */
function laidOut(chainId: string, jobs: GraphJob[]): Node[] {
  const chains = chainsOf(jobs);
  const known = new Map(jobs.map((job) => [job.id, job]));
  const nodes = new Map<string, Node>();
  const visit = (job: GraphJob): Node => {
    const seen = nodes.get(job.id);
    if (seen) return seen;
    const steps = chains.get(job.chainId) ?? [];
    const before = steps[steps.indexOf(job) - 1] ?? known.get(job.parentJobId ?? "");
    const after = [before, ...job.waitsFor.map((chain) => chains.get(chain)?.at(-1))].filter((each) => each !== undefined);
    const node: Node = { job, after, column: 0, row: 0 };
    nodes.set(job.id, node);
    node.column = Math.max(0, ...after.map((each) => visit(each).column + 1));
    return node;
  };
  jobs.forEach(visit);
  // What others wait for stands next to the first of them.
  for (const steps of chains.values()) {
    const last = steps.at(-1);
    const behind = [...nodes.values()].filter(({ job, after }) => job.chainId !== last?.chainId && last && after.includes(last));
    const isBound = steps.some((job) => visit(job).after.some((each) => each.chainId !== job.chainId));
    const room = last ? Math.min(...behind.map((node) => node.column)) - 1 - visit(last).column : 0;
    if (!isBound && Number.isFinite(room)) for (const job of steps) visit(job).column += room;
  }
  const taken: [number, number][][] = [];
  for (const [chain, steps] of [...chains].sort(([a], [b]) => Number(b === chainId) - Number(a === chainId))) {
    const columns = steps.map((job) => visit(job).column);
    const [first, last] = [Math.min(...columns), Math.max(...columns)];
    const isFree = (row: number) => row > 0 && (taken[row] ?? []).every(([from, to]) => last < from || first > to);
    let row = 0;
    while (chain !== chainId && !isFree(row)) row++;
    (taken[row] ??= []).push([first, last]);
    for (const job of steps) visit(job).row = row;
  }
  return [...nodes.values()];
}

export function ChainGraph({ chainId, jobs }: { chainId: string; jobs: GraphJob[] }) {
  const nodes = laidOut(chainId, jobs);
  const spots = new Map(nodes.map(({ job, column, row }) => [job.id, { x: column * (BOX.width + BOX.gap) + 4, y: row * BOX.rise + 4 }]));
  const columns = 1 + Math.max(0, ...nodes.map((node) => node.column));
  const rows = 1 + Math.max(0, ...nodes.map((node) => node.row));
  const others = jobs.some((job) => job.chainId !== chainId);
  return (
    <div class="graph" tabIndex={0} role="region" aria-label="Steps of the chain">
      <svg width={columns * (BOX.width + BOX.gap)} height={rows * BOX.rise + 4} role="group" aria-label={spoken(chainId, jobs)}>
        {nodes.flatMap(({ job, after }) => after.map((before) => <Line key={`${before.id}/${job.id}`} from={spots.get(before.id)} to={spots.get(job.id)} isAwaited={job.state === "blocked"} />))}
        {nodes.map(({ job }) => <Box key={job.id} job={job} at={spots.get(job.id)} isOutside={job.chainId !== chainId} />)}
      </svg>
      {others && <p class="muted small">Round boxes are steps of other chains: those that this one waits for, that it started, or that wait for it.</p>}
    </div>
  );
}

type Spot = { x: number; y: number } | undefined;

function Line({ from, to, isAwaited }: { from: Spot; to: Spot; isAwaited: boolean }) {
  if (!from || !to) return null;
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = Math.min(BOX.gap, Math.abs(x2 - x1)) / 2;
  return <path class={isAwaited ? "awaited" : undefined} d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`} />;
}

function Box({ job, at, isOutside }: { job: GraphJob; at: Spot; isOutside: boolean }) {
  if (!at) return null;
  const run = runOf(job);
  const tries = job.attempts > 1 ? `${job.attempts} attempts` : null;
  return (
    <a href={isOutside ? hrefTo(["chains", job.chainId]) : `#${job.id}`} class={`tone-${toneOf(job.state)}`}>
      <title>{`${job.type}: ${job.state}`}</title>
      <rect x={at.x} y={at.y} width={BOX.width} height={BOX.height} rx={isOutside ? 20 : 6} stroke-dasharray={isOutside ? "4 3" : undefined} />
      <text x={at.x + 14} y={at.y + 19}>{clip(job.type)}</text>
      <text class="state" x={at.x + 14} y={at.y + 36}>{clip([job.state, tries ?? run].filter(Boolean).join(" · "))}</text>
    </a>
  );
}

/** Describe the drawing in words for screen readers. */
function spoken(chainId: string, jobs: GraphJob[]): string {
  const chains = chainsOf(jobs);
  const tell = (chain: string) => (chains.get(chain)?.[0] ? `${chains.get(chain)?.[0]?.type}, ${chains.get(chain)?.[0]?.chainState}` : null);
  const own = chains.get(chainId) ?? [];
  const steps = own.map((job) => {
    const awaited = job.waitsFor.map(tell).filter(Boolean);
    return `${job.type}: ${job.state}${awaited.length ? ` (waits for ${awaited.join("; ")})` : ""}`;
  });
  const names = (some: GraphJob[]) => [...new Set(some.map((job) => job.type))].join(", ");
  const started = jobs.filter((job) => job.position === 0 && own.some(({ id }) => id === job.parentJobId));
  const waiting = jobs.filter((job) => job.waitsFor.includes(chainId));
  return [steps.join(", then "), started.length && `Started ${names(started)}`, waiting.length && `Awaited by ${names(waiting)}`].filter(Boolean).join(". ");
}
