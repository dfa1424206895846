// A chain as a drawing: its steps from left to right, above each the chains it waits for, and behind
// the last one what waits for this chain.
import type { Schemas } from "../api/client";
import { toneOf } from "../parts";
import { hrefTo } from "../state/place";

export type Blocker = Pick<Schemas["BlockerRow"], "chain" | "type" | "state">;
type Job = Schemas["JobRow"];
type Spot = { x: number; y: number };

const BOX = { width: 168, height: 46, gap: 40, rise: 62 };
const TEXT_CHARS = 22;
const BLOCKERS_SHOWN = 5;

const clip = (text: string) => (text.length > TEXT_CHARS ? `${text.slice(0, TEXT_CHARS - 1)}…` : text);

function Box({ at, title, state, isOutside = false }: { at: Spot; title: string; state: string; isOutside?: boolean }) {
  return (
    <g class={`tone-${toneOf(state)}`}>
      <title>{`${title}: ${state}`}</title>
      <rect x={at.x} y={at.y} width={BOX.width} height={BOX.height} rx={isOutside ? 20 : 6} stroke-dasharray={isOutside ? "4 3" : undefined} />
      <text x={at.x + 14} y={at.y + 19}>{clip(title)}</text>
      <text class="state" x={at.x + 14} y={at.y + 36}>{state}</text>
    </g>
  );
}

function OtherChain({ at, chain, to }: { at: Spot; chain: Blocker; to: Spot }) {
  return (
    <g>
      <line x1={at.x + BOX.width / 2} y1={at.y + BOX.height} x2={to.x + BOX.width / 2} y2={to.y} />
      <a href={hrefTo(["chains", chain.chain])}><Box at={at} title={chain.type} state={chain.state} isOutside /></a>
    </g>
  );
}

export function ChainGraph({ jobs, blockers, waiting }: { jobs: Job[]; blockers: Map<string, Blocker[]>; waiting: Blocker[] }) {
  const shown = (job: Job) => (blockers.get(job.id) ?? []).slice(0, BLOCKERS_SHOWN);
  const rows = Math.max(0, ...jobs.map((job) => shown(job).length));
  const top = rows * BOX.rise + 4;
  const spotOf = (index: number): Spot => ({ x: index * (BOX.width + BOX.gap) + 4, y: top });
  const behind = waiting.slice(0, BLOCKERS_SHOWN);
  const columns = jobs.length + (behind.length ? 1 : 0);
  const height = top + Math.max(1, behind.length) * BOX.rise;
  return (
    <div class="graph" tabIndex={0} role="region" aria-label="Steps of the chain">
      <svg width={columns * (BOX.width + BOX.gap)} height={height} role="group" aria-label={spoken(jobs, blockers, waiting)}>
        {jobs.map((job, index) => {
          const spot = spotOf(index);
          const middle = spot.y + BOX.height / 2;
          return (
            <g key={job.id}>
              {index > 0 && <line x1={spot.x - BOX.gap} y1={middle} x2={spot.x} y2={middle} />}
              {shown(job).map((blocker, place) => (
                <OtherChain key={blocker.chain} chain={blocker} at={{ x: spot.x, y: top - (place + 1) * BOX.rise }} to={{ x: spot.x, y: top - place * BOX.rise }} />
              ))}
              <Box at={spot} title={job.type} state={job.state} />
            </g>
          );
        })}
        {behind.map((other, place) => {
          const spot = { x: spotOf(jobs.length).x, y: top + place * BOX.rise };
          return (
            <g key={other.chain}>
              <line class="awaited" x1={spot.x - BOX.gap} y1={top + BOX.height / 2} x2={spot.x} y2={spot.y + BOX.height / 2} />
              <a href={hrefTo(["chains", other.chain])}><Box at={spot} title={other.type} state={other.state} isOutside /></a>
            </g>
          );
        })}
      </svg>
      <p class="muted small">Round boxes are other chains: above a step those that it waits for, behind the last step those that wait for this chain.{tooMany(jobs, blockers, waiting)}</p>
    </div>
  );
}

function tooMany(jobs: Job[], blockers: Map<string, Blocker[]>, waiting: Blocker[]): string {
  const most = Math.max(waiting.length, ...jobs.map((job) => blockers.get(job.id)?.length ?? 0));
  return most > BLOCKERS_SHOWN ? ` Only the first ${BLOCKERS_SHOWN} of each are drawn.` : "";
}

/** Describe the drawing in words for screen readers. */
function spoken(jobs: Job[], blockers: Map<string, Blocker[]>, waiting: Blocker[]): string {
  const steps = jobs.map((job) => {
    const awaited = (blockers.get(job.id) ?? []).map((each) => `${each.type}, ${each.state}`);
    return `${job.type}: ${job.state}${awaited.length ? ` (waits for ${awaited.join("; ")})` : ""}`;
  });
  const after = waiting.length ? `. Awaited by ${waiting.map((each) => each.type).join(", ")}` : "";
  return steps.join(", then ") + after;
}
