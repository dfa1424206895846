// The time that charts show: one for all pages, kept in the address.
import { place, setQuery } from "./place";

export const RANGES = { "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800 } as const;
export type RangeName = keyof typeof RANGES;

/** Times are in seconds. A range that is zoomed into stands still; all others end now. */
export type Range = { name: RangeName; isZoomed: boolean; key: string; bounds: () => [number, number] };

const ZOOM = /^(\d+)-(\d+)$/;
const ZOOM_LEAST_S = 180;
const BEGUN_S = 60;

export function chosenRange(): Range {
  const asked = place.value.query.get("range") ?? "";
  const name = asked in RANGES ? (asked as RangeName) : "1h";
  const [, from, to] = ZOOM.exec(place.value.query.get("zoom") ?? "") ?? [];
  if (from !== undefined && to !== undefined && Number(from) < Number(to)) {
    return { name, isZoomed: true, key: `${from}-${to}`, bounds: () => [Number(from), Number(to)] };
  }
  return lastly(name);
}

/** A range that ends now. */
function lastly(name: RangeName): Range {
  const now = () => Date.now() / 1000;
  return { name, isZoomed: false, key: name, bounds: () => [now() - RANGES[name], now()] };
}

export function zoomTo(from: number, to: number): void {
  const more = Math.max(0, ZOOM_LEAST_S - (to - from)) / 2;
  setQuery({ zoom: `${Math.floor(from - more)}-${Math.ceil(to + more)}` });
}

/** The range as the query of a chart asks for it. */
export function spelledRange(range: Range): { from: string; to: string } {
  const [from, to] = range.bounds().map((time) => new Date(time * 1000).toISOString()) as [string, string];
  return { from, to };
}

/**
 * A chart's points on an even grid of its buckets, so that what is missing shows as such. A bucket that
 * has just begun is left out: it would look like a fall.
 */
export type Grid<Point> = { times: number[]; values: (pick: (point: Point) => number | null, absent?: 0 | null) => (number | null)[] };

export function gridOf<Point>(range: Range, bucketMinutes: number, points: Point[], at: (point: Point) => string): Grid<Point> {
  const step = bucketMinutes * 60;
  const [from, to] = range.bounds();
  const known = new Map(points.map((point) => [Date.parse(at(point)) / 1000, point]));
  const times: number[] = [];
  for (let time = Math.ceil(from / step) * step; time + Math.min(step, BEGUN_S) <= to; time += step) times.push(time);
  return {
    times,
    values: (pick, absent = null) => times.map((time) => {
      const point = known.get(time);
      return point === undefined ? absent : pick(point);
    }),
  };
}
