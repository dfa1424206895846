// Numbers and times as people read them. Pure.
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 1_000_000 ? compact.format(value) : whole.format(value);
}

/** How many there are: "1 message", "1,024 batches". */
export function counted(value: number, thing: string): string {
  const ending = value === 1 ? "" : thing.endsWith("ch") ? "es" : "s";
  return `${count(value)} ${thing}${ending}`;
}

export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0 || value >= 100) return count(value);
  return value.toFixed(value >= 10 ? 1 : 2);
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  const step = value < 1 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), units.length - 1);
  const scaled = value / 1000 ** step;
  return `${scaled >= 100 || step === 0 ? scaled.toFixed(0) : scaled.toFixed(1)} ${units[step]}`;
}

export function millis(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ms`;
  return seconds(value / 1000);
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172_800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86_400)} d`;
}

export function percent(share: number | null | undefined): string {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(1)}%`;
}

export function moment(iso: string | null | undefined): string {
  if (!iso) return "–";
  const date = new Date(iso);
  return `${date.toLocaleDateString("sv-SE")} ${date.toLocaleTimeString("sv-SE")}`;
}

export function ago(iso: string | null | undefined, now = Date.now()): string {
  if (!iso) return "never";
  const passed = (now - Date.parse(iso)) / 1000;
  if (passed < -1) return `in ${seconds(-passed)}`;
  return passed < 2 ? "now" : `${seconds(passed)} ago`;
}

/** How the values of a chart are spelled, and which steps its axis may take. */
export type Unit = { spell: (value: number) => string; steps: number[] };

const decades = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => [1, 2, 5].map((step) => Number(`${step}e${from + index}`))).flat();
const minutes = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000];

export const units = {
  whole: { spell: count, steps: decades(0, 12) },
  perSecond: { spell: rate, steps: decades(-2, 8) },
  bytes: { spell: bytes, steps: decades(0, 14) },
  share: { spell: percent, steps: [...decades(-3, -2), 0.1, 0.25, 0.5, 1, 2, 5, 10] },
  millis: { spell: millis, steps: [...decades(0, 3), 10_000, 20_000, 30_000, ...minutes.map((each) => each * 1000)] },
  seconds: { spell: seconds, steps: [1, 2, 5, 10, 20, 30, ...minutes] },
} satisfies Record<string, Unit>;

/** A value at the axis: without the zeros that only a measured one has. */
export function tick(text: string): string {
  if (/^0(\.0+)?\D/.test(text)) return "0";
  return text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
}

/** The name of a consumer group for people: Queen reserves one for queue mode. */
export function groupName(name: string): string {
  return name === "__QUEUE_MODE__" ? "default group" : name;
}

/** A consumer group within a sentence. */
export function theGroup(name: string | null): string {
  return name === "__QUEUE_MODE__" ? "the default group" : `group ${name ?? "–"}`;
}
