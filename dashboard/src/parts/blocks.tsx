// The blocks that pages are made of.
import type { ComponentChildren } from "preact";
import { hrefTo, spellQuery } from "../state/place";
import { chosenRange, RANGES } from "../state/range";
import { ago, moment } from "../words";

export function PageHead(props: { title: ComponentChildren; from?: [title: string, href: string]; state?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="page-head">
      <div class="title">
        {props.from && <div class="crumb"><a href={props.from[1]}>{props.from[0]}</a></div>}
        <h1>{props.title}</h1>
        {props.state}
      </div>
      <span class="grow" />
      {props.children}
    </div>
  );
}

export function Card(props: { title?: string; id?: string; note?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="card" id={props.id} aria-label={props.title}>
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

export type Tone = "good" | "warn" | "bad" | "info" | "plain";
const TONES: Record<string, Tone> = {
  consuming: "good", lagging: "warn", stalled: "bad", "no-consumers": "bad", paused: "info", empty: "plain",
  waiting: "warn", draining: "info",
  completed: "good", done: "good", running: "good", active: "good", processing: "warn",
  continued: "good", stopped: "warn", leased: "warn", retrying: "warn",
  healthy: "good", crowded: "warn", full: "bad", stuck: "bad",
  failed: "bad", dead_letter: "bad", dead: "bad", cancelled: "warn", blocked: "warn",
};

export function toneOf(word: string): Tone {
  return TONES[word] ?? "plain";
}

export function Badge({ word, tone }: { word: string; tone?: Tone }) {
  const chosen = tone ?? toneOf(word);
  return <span class={chosen === "plain" ? "badge" : `badge badge-${chosen}`}>{word.replaceAll(/[_-]/g, " ")}</span>;
}

/** A time as people tell it; one that is past is never to come, however the clocks differ. */
export function When({ at, isPast }: { at: string | null | undefined; isPast?: boolean }) {
  if (!at) return <span class="muted">–</span>;
  return <time dateTime={at} title={moment(at)}>{isPast && Date.parse(at) > Date.now() ? "now" : ago(at)}</time>;
}

const SHORT_CHARS = 24;

export function QueueLink({ name }: { name: string }) {
  return <a class={name.length > SHORT_CHARS ? "wrap" : "nowrap"} href={hrefTo(["queues", name])}>{name}</a>;
}

/** A sentence whose names stand in backticks. */
export function Prose({ text }: { text: string }) {
  return <>{text.split("`").map((piece, index) => (index % 2 ? <code key={index}>{piece}</code> : piece))}</>;
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

/** What there is to say: a fact that has no value is left out. */
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return <dl class="facts">{known.map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name}=`}>{value}</dd>])}</dl>;
}

export function Progress({ share, label }: { share: number; label: string }) {
  const width = `${Math.round(Math.min(Math.max(share, 0), 1) * 100)}%`;
  return <div class="progress" role="progressbar" aria-label={label} aria-valuenow={Math.round(share * 100)} aria-valuemin={0} aria-valuemax={100}><div style={{ width }} /></div>;
}

export function TimeRangeChoice() {
  const { name, isZoomed, bounds } = chosenRange();
  return (
    <nav class="row" aria-label="Time range">
      {isZoomed && <a class="button small" href={location.pathname + spellQuery({ zoom: null })} title={`Back to the last ${name}`}>{bounds().map((time) => moment(new Date(time * 1000).toISOString()).slice(5, 16)).join(" – ")} <span aria-hidden="true">✕</span><span class="unseen">Back to the last {name}</span></a>}
      <div class="choice">
        {Object.keys(RANGES).map((each) => (
          <a key={each} href={location.pathname + spellQuery({ range: each, zoom: null })} aria-current={each === name && !isZoomed ? "true" : undefined}>{each}</a>
        ))}
      </div>
    </nav>
  );
}
