// What needs attention, worst first: what is the matter, why probably, and one thing to do about it.
import { useState } from "preact/hooks";
import { get, request, type Schemas } from "../api/client";
import { Badge, Card, When, type Tone } from "../parts";
import { Confirm } from "../parts/dialog";
import { useLoad } from "../state/loading";
import { hrefTo } from "../state/place";
import { hasRole } from "../state/session";
import { attempt } from "../state/toasts";
import { ago, count, rate, seconds } from "../words";

export type Attention = Schemas["Attention"];
type Item = Attention["items"][number];

const SHOWN = 8;
const TONES: Record<Item["severity"], Tone> = { critical: "bad", warning: "warn", notice: "info" };
/** These change many things at once: they are asked about first. */
const BULK = new Set(["redrive", "retry-jobs"]);
const FOR_ADMINS = new Set(["end-maintenance", "resume-jobs"]);

export function useAttention() {
  return useLoad((signal) => get("/api/v1/attention", { signal }), [], { everySeconds: 5 });
}

export function NeedsAttention({ attention, reload }: { attention: Attention; reload: () => void }) {
  const [isWhole, setWhole] = useState(false);
  const { items, total, checkedAt } = attention;
  const shown = isWhole ? items : items.slice(0, SHOWN);
  return (
    <Card title="Needs attention" note={`checked ${ago(checkedAt)}`}>
      {total === 0 && <p class="calm"><Badge word="healthy" /> Nothing needs attention: groups keep up, nothing is paused, nothing failed.</p>}
      {total > 0 && <ul class="attention">{shown.map((item) => <AttentionItem key={keyOf(item)} item={item} reload={reload} />)}</ul>}
      {shown.length < items.length && <button onClick={() => setWhole(true)}>Show {items.length - shown.length} more{total > items.length && ` of ${count(total)}`}</button>}
    </Card>
  );
}

/** Why the page one looks at is in this state: only its own items. */
export function Concerns({ isAbout, reload }: { isAbout: (item: Item) => boolean; reload: () => void }) {
  const attention = useAttention();
  const items = attention.data?.items.filter(isAbout) ?? [];
  const again = () => {
    attention.reload();
    reload();
  };
  return items.length ? <section class="card" aria-label="Needs attention"><ul class="attention">{items.map((item) => <AttentionItem key={keyOf(item)} item={item} reload={again} isHere />)}</ul></section> : null;
}

function keyOf(item: Item): string {
  return [item.kind, item.queue, item.group, item.name].join("/");
}

function AttentionItem({ item, reload, isHere }: { item: Item; reload: () => void; isHere?: boolean }) {
  const subject = isHere ? null : subjectOf(item);
  return (
    <li class={`severity-${item.severity}`}>
      <Badge word={item.severity} tone={TONES[item.severity]} />
      <div>
        <div class="what">{subject ? <a href={subject}>{item.summary}</a> : item.summary}</div>
        <div class="why"><span>{item.cause}</span><Pace item={item} /></div>
      </div>
      <Remedy item={item} reload={reload} isHere={isHere} />
    </li>
  );
}

/** How fast it gets worse or better, and since when. */
function Pace({ item: { growthPerSecond: growth, drainSeconds, since } }: { item: Item }) {
  return (
    <>
      {growth && growth > 0 ? <span class="tone-bad">grows by {rate(growth)} per second</span> : null}
      {drainSeconds ? <span>done in about {seconds(drainSeconds)} at this pace</span> : null}
      {since && <span>since <When at={since} /></span>}
    </>
  );
}

/** The page of what an item is about. */
function subjectOf({ kind, queue, group, name, action }: Item): string | null {
  if (kind === "dead-letters") return hrefTo(["dead-letters"], { queue, group });
  if (kind === "chains-failed") return hrefTo(["chains"], { type: name, state: "failed" });
  if (kind.startsWith("job")) return hrefTo(["chains"], { tab: "types" });
  if (queue && group) return hrefTo(["groups", group, queue]);
  return kind === "queue-paused" && queue ? hrefTo(["queues", queue]) : action.kind === "open" ? action.path : null;
}

function Remedy({ item, reload, isHere }: { item: Item; reload: () => void; isHere?: boolean | undefined }) {
  const { label, kind, path, body } = item.action;
  const [state, setState] = useState<"offered" | "asked" | "done">("offered");
  if (kind === "open") return isHere && path === location.pathname ? null : <a class="button" href={path}>{label}</a>;
  if (!hasRole(FOR_ADMINS.has(kind) ? "admin" : "read-write")) return null;
  // The broker judges anew every few seconds: until then it is said here that it was done.
  if (state === "done") return <Badge word="done" />;
  const work = async () => {
    await request("POST", path, { body: body ?? {} });
    setState("done");
    reload();
  };
  return (
    <>
      <button onClick={() => (BULK.has(kind) ? setState("asked") : void attempt(work))}>{label}</button>
      {state === "asked" && (
        <Confirm title={label} verb={label} isSafe onClose={() => setState((before) => (before === "asked" ? "offered" : before))} work={work}>
          <p>{item.summary}.</p>
          <p>{item.cause}</p>
        </Confirm>
      )}
    </>
  );
}
