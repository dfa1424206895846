// Fields whose value is in the address.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { place, setQuery, spellQuery } from "../state/place";
import { Field } from "./field";

const SETTLE_MS = 300;

export function TextFilter(props: { label: string; name: string; placeholder?: string }) {
  const current = place.value.query.get(props.name) ?? "";
  const [text, setText] = useState(current);
  // The text follows the address only when the address was changed elsewhere, never over recent typing;
  // an effect would run after the first key press of a fast typist.
  const known = useRef(current);
  if (known.current !== current) {
    known.current = current;
    setText(current);
  }
  useEffect(() => {
    const wanted = text.trim();
    if (wanted === known.current) return;
    const timer = setTimeout(() => {
      known.current = wanted;
      setQuery({ [props.name]: wanted || null, page: null }, { replace: true });
    }, SETTLE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <Field label={props.label}><input type="search" value={text} placeholder={props.placeholder} onInput={(event) => setText(event.currentTarget.value)} /></Field>
  );
}

export function ChoiceFilter(props: { label: string; name: string; choices: [string, string][] }) {
  return (
    <Field label={props.label}><select value={place.value.query.get(props.name) ?? ""} onChange={(event) => setQuery({ [props.name]: event.currentTarget.value || null, page: null })}>
        {props.choices.map(([value, title]) => <option key={value} value={value}>{title}</option>)}
      </select></Field>
  );
}

/** Few choices side by side, one click each; the first is what holds without a choice. */
export function Choices(props: { label: string; name: string; choices: [string, ComponentChildren][] }) {
  const current = place.value.query.get(props.name) ?? "";
  return (
    <nav class="choice" aria-label={props.label}>
      {props.choices.map(([value, title]) => (
        <a key={value} href={location.pathname + spellQuery({ [props.name]: value || null, page: null, after: null })} aria-current={value === current ? "true" : undefined}>{title}</a>
      ))}
    </nav>
  );
}

/** A moment, kept in the address as UTC and shown in the time of the reader. */
export function MomentFilter(props: { label: string; name: string }) {
  const kept = place.value.query.get(props.name);
  const date = new Date(kept ?? NaN);
  const local = Number.isNaN(date.getTime()) ? "" : new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  const keep = (text: string) => setQuery({ [props.name]: text ? new Date(text).toISOString() : null }, { replace: true });
  return <Field label={props.label}><input type="datetime-local" value={local} onChange={(event) => keep(event.currentTarget.value)} /></Field>;
}

export function CheckFilter(props: { label: string; name: string }) {
  const isChecked = place.value.query.get(props.name) === "1";
  return (
    <label class="row small">
      <input type="checkbox" checked={isChecked} onChange={(event) => setQuery({ [props.name]: event.currentTarget.checked ? "1" : null }, { replace: true })} />
      {props.label}
    </label>
  );
}

/** Page through a list whose total is known. */
export function Pager({ total, limit }: { total: number; limit: number }) {
  const page = currentPage();
  const last = Math.max(0, Math.ceil(total / limit) - 1);
  if (last === 0) return null;
  const go = (to: number) => setQuery({ page: to ? String(to) : null });
  return (
    <nav class="row" aria-label="Pages of the list">
      <button disabled={page === 0} onClick={() => go(page - 1)}>Previous</button>
      <span class="muted small">Page {page + 1} of {last + 1}</span>
      <button disabled={page >= last} onClick={() => go(page + 1)}>Next</button>
    </nav>
  );
}

export function currentPage(): number {
  return Math.max(0, Math.trunc(Number(place.value.query.get("page")) || 0));
}
