// A chain as a drawing: its steps from left to right, and above each what it waits for.
import type { Job } from "../api/further";

const BOX = { width: 150, height: 46, gap: 40, rise: 30 };

type Blocker = { label: string; state: string };

function blockersOf(job: Job): Blocker[] {
  return (job.blockers ?? []).map((blocker) =>
    typeof blocker === "string"
      ? { label: blocker.slice(0, 8), state: "" }
      : { label: blocker.type ?? blocker.chainId?.slice(0, 8) ?? "chain", state: blocker.state ?? "" });
}

const clip = (text: string) => (text.length > 20 ? `${text.slice(0, 19)}…` : text);

export function ChainGraph({ jobs }: { jobs: Job[] }) {
  const most = Math.max(0, ...jobs.map((job) => blockersOf(job).length));
  const top = most * BOX.rise + 8;
  const width = jobs.length * (BOX.width + BOX.gap);
  const spoken = jobs.map((job) => `${job.type ?? job.id}: ${job.state ?? "unknown"}`).join(", then ");
  return (
    <div class="graph" tabIndex={0} role="region" aria-label="Steps of the chain">
      <svg width={width} height={top + BOX.height + 8} role="img" aria-label={spoken}>
        {jobs.map((job, index) => {
          const x = index * (BOX.width + BOX.gap) + 4;
          return (
            <g key={job.id}>
              {index > 0 && <line x1={x - BOX.gap} y1={top + BOX.height / 2} x2={x} y2={top + BOX.height / 2} />}
              {blockersOf(job).map((blocker, place) => {
                const y = top - (place + 1) * BOX.rise + 4;
                return (
                  <g key={blocker.label}>
                    <line x1={x + 12} y1={y + 20} x2={x + 12} y2={top} />
                    <text x={x + 20} y={y + 14}>{clip(`waits: ${blocker.label} ${blocker.state}`)}</text>
                  </g>
                );
              })}
              <rect x={x} y={top} width={BOX.width} height={BOX.height} rx="6" />
              <text x={x + 10} y={top + 19}>{clip(job.type ?? job.id)}</text>
              <text x={x + 10} y={top + 36} style={{ fill: "var(--muted)" }}>{job.state ?? "unknown"}</text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}
