// The blocks that pages are made of.
import type { ComponentChildren } from "preact";
import { hrefTo, place, spellQuery } from "../state/place";
import { ago, moment } from "../words";

export function PageHead({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  return <div class="page-head"><h1>{title}</h1><span class="grow" />{children}</div>;
}

export function Card(props: { title?: string; note?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="card" aria-label={props.title}>
      {props.title && (
        <div class="card-head"><h2>{props.title}</h2>{props.note && <span class="muted small">{props.note}</span>}</div>
      )}
      {props.children}
    </section>
  );
}

export function Stat(props: { label: string; value: string; note?: string | undefined; href?: string; tone?: Tone | undefined }) {
  const inside = (
    <>
      <div class="stat-label">{props.label}</div>
      <div class="stat-value">{props.value}</div>
      <div class="stat-note">{props.note}</div>
    </>
  );
  const look = props.tone ? `stat stat-${props.tone}` : "stat";
  return props.href ? <a class={look} href={props.href}>{inside}</a> : <div class={look}>{inside}</div>;
}

export type Tone = "good" | "warn" | "bad" | "plain";
const TONES: Record<string, Tone> = {
  Stable: "good", Lagging: "warn", Dead: "bad", Paused: "warn",
  completed: "good", done: "good", running: "good", active: "good", processing: "warn",
  continued: "good", stopped: "warn", leased: "warn", retrying: "warn",
  healthy: "good", crowded: "warn", full: "bad", stuck: "bad",
  failed: "bad", dead_letter: "bad", dead: "bad", cancelled: "warn", paused: "warn", blocked: "warn",
};

export function toneOf(word: string): Tone {
  return TONES[word] ?? "plain";
}

export function Badge({ word, tone }: { word: string; tone?: Tone }) {
  const chosen = tone ?? toneOf(word);
  return <span class={chosen === "plain" ? "badge" : `badge badge-${chosen}`}>{word.replaceAll("_", " ")}</span>;
}

export function When({ at }: { at: string | null | undefined }) {
  return at ? <time dateTime={at} title={moment(at)}>{ago(at)}</time> : <span class="muted">–</span>;
}

export function QueueLink({ name }: { name: string }) {
  return <a class="wrap" href={hrefTo(["queues", name])}>{name}</a>;
}

export function Tabs({ name, tabs, current }: { name: string; tabs: [string, string][]; current: string }) {
  return (
    <nav class="tabs" aria-label={name}>
      {tabs.map(([value, title], index) => (
        <a key={value} href={location.pathname + spellQuery({ tab: index ? value : null })} aria-current={value === current ? "true" : undefined}>{title}</a>
      ))}
    </nav>
  );
}

export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return <dl class="facts">{facts.map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name}=`}>{value ?? "–"}</dd>])}</dl>;
}

export function Progress({ share, label }: { share: number; label: string }) {
  const width = `${Math.round(Math.min(Math.max(share, 0), 1) * 100)}%`;
  return <div class="progress" role="progressbar" aria-label={label} aria-valuenow={Math.round(share * 100)} aria-valuemin={0} aria-valuemax={100}><div style={{ width }} /></div>;
}

export function TimeRangeChoice() {
  const chosen = place.value.query.get("range") ?? "1h";
  return (
    <nav class="row" aria-label="Time range">
      {Object.keys(RANGES).map((name) => (
        <a key={name} class="button" href={location.pathname + spellQuery({ range: name === "1h" ? null : name })} aria-current={name === chosen ? "true" : undefined}>{name}</a>
      ))}
    </nav>
  );
}

const RANGES: Record<string, number> = { "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800 };

/** The range that the address asks for, in seconds. */
export function chosenRange(): number {
  return RANGES[place.value.query.get("range") ?? "1h"] ?? 3600;
}
