// How much reading a page may do by itself: refreshing must cost the broker next to nothing.
//
// What a read takes longer than the fastest one is the broker's work; the rest is the way there and
// back. All refreshes of a page together may take a sixtieth of the time: after expensive ones they
// are rarer, however many views the page has. What a person asks for is read at once.
const PAUSE_PER_COST = 60;
const PAUSE_MS_MAX = 60_000;

let fastestMs = Infinity;
let freeAt = 0;

export function noteRead(tookMs: number): void {
  fastestMs = Math.min(fastestMs, tookMs);
  const now = Date.now();
  const due = Math.max(freeAt, now) + (tookMs - fastestMs) * PAUSE_PER_COST;
  freeAt = Math.min(due, now + PAUSE_MS_MAX);
}

export function mayRefresh(): boolean {
  return Date.now() >= freeAt;
}
