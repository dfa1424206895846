// Shapes of routes that a broker may lack: job chains, schedules, pipelines, the archive.
//
// Pages that use them ask by `getIfServed` and say calmly when there is nothing to ask. Every
// member is optional: these parts of the API are younger than the dashboard.
export type Chain = {
  id: string;
  type?: string;
  state?: string;
  createdAt?: string;
  closedAt?: string | null;
  key?: string | null;
  error?: string | null;
  jobCount?: number;
  lastJobType?: string;
  lastJobState?: string;
  input?: unknown;
  output?: unknown;
};
export type Job = {
  id: string;
  chainId?: string;
  position?: number;
  type?: string;
  state?: string;
  dueAt?: string | null;
  startedAt?: string | null;
  finishedAt?: string | null;
  attempts?: number;
  maxAttempts?: number;
  error?: string | null;
  input?: unknown;
  output?: unknown;
  blockers?: (string | { chainId?: string; state?: string; type?: string })[];
};
export type Attempt = { attempt?: number; outcome?: string; startedAt?: string | null; endedAt?: string | null; error?: string | null };
export type TypeCounts = { type: string; ready?: number; scheduled?: number; blocked?: number; running?: number; oldestReadyS?: number | null };
export type Schedule = { name: string; type?: string; cron?: string; timezone?: string; nextAt?: string | null; lastAt?: string | null; isPaused?: boolean };
export type Pipeline = {
  name: string;
  state?: string;
  lag?: number | null;
  lagSeconds?: number | null;
  rowsPerSecond?: number | null;
  batchSeconds?: number | null;
  rows?: number | null;
  position?: unknown;
  lastError?: string | null;
  error?: string | null;
  heartbeatAt?: string | null;
  updatedAt?: string | null;
};
export type Coverage = { queue: string; from?: string | null; to?: string | null; messages?: number };

/** The entries of a page, whatever the page calls them. */
export function entriesOf<T>(page: unknown, name: string): T[] {
  if (Array.isArray(page)) return page as T[];
  const members = (page ?? {}) as Record<string, unknown>;
  return ((members[name] ?? members["items"] ?? []) as T[]);
}
