// A payload: as a tree, or as it was sent. Everything is rendered as text.
import { useState } from "preact/hooks";
import { copy } from "./copy";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const OPEN_DEPTH = 2;
const CHILDREN_SHOWN = 200;

export function Payload({ value }: { value: unknown }) {
  const [isRaw, setRaw] = useState(false);
  const raw = JSON.stringify(value, null, 2) ?? "null";
  return (
    <div class="form">
      <div class="row">
        <button aria-pressed={!isRaw} onClick={() => setRaw(false)}>Tree</button>
        <button aria-pressed={isRaw} onClick={() => setRaw(true)}>Raw</button>
        <button onClick={() => copy(raw)}>Copy</button>
      </div>
      {isRaw ? <pre tabIndex={0}>{raw}</pre> : <div class="json"><Node value={value as Json} depth={0} /></div>}
    </div>
  );
}

function Node({ name, value, depth }: { name?: string | undefined; value: Json; depth: number }) {
  const [shown, setShown] = useState(CHILDREN_SHOWN);
  const label = name === undefined ? null : <span class="json-key">{name}: </span>;
  if (value === null || typeof value !== "object") return <div class="leaf">{label}<Leaf value={value} /></div>;
  const entries = Array.isArray(value) ? value.map((each, index): [string, Json] => [String(index), each]) : Object.entries(value);
  const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return <div class="leaf">{label}{size}</div>;
  return (
    <details open={depth < OPEN_DEPTH}>
      <summary>{label}<span class="muted">{size}</span></summary>
      {entries.slice(0, shown).map(([key, each]) => <Node key={key} name={key} value={each} depth={depth + 1} />)}
      {entries.length > shown && <button class="plain" onClick={() => setShown(shown + CHILDREN_SHOWN)}>{entries.length - shown} more</button>}
    </details>
  );
}

function Leaf({ value }: { value: null | boolean | number | string }) {
  return typeof value === "string"
    ? <span class="json-string">{JSON.stringify(value)}</span>
    : <span class="json-other">{String(value)}</span>;
}
