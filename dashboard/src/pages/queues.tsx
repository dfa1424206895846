// The list of queues, and below it one queue.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, PageHead, QueueLink, Table } from "../parts";
import { Dialog } from "../parts/dialog";
import { ChoiceFilter, currentPage, Pager, TextFilter } from "../parts/fields";
import { Empty, Failure } from "../parts/notes";
import { Spark } from "../parts/plot";
import { useLoad } from "../state/loading";
import { hrefTo, navigate, place, setQuery } from "../state/place";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { count, groupName, rate, seconds } from "../words";
import { QueuePage } from "./queue";
import { Field } from "../parts/field";

const LIMIT = 100;
const GROUPS = 1000;
const MINUTES = 30;
const CONDITIONS = ["waiting", "draining", "active", "idle", "paused"] as const;
type Order = "newest" | "oldest" | "name";

export function Queues() {
  const name = place.value.segments[1];
  return name === undefined ? <QueueList /> : <QueuePage key={name} name={name} />;
}

function QueueList() {
  const { query } = place.value;
  const page = currentPage();
  const condition = CONDITIONS.find((each) => each === query.get("condition")) ?? null;
  const wanted = { search: query.get("search"), namespace: query.get("namespace"), condition, sort: (query.get("sort") ?? "name") as Order };
  const { data, error } = useLoad(
    (signal) => get("/api/v1/resources/queues", { query: { ...wanted, minutes: MINUTES, limit: LIMIT, offset: page * LIMIT }, signal }),
    [wanted, page],
    { everySeconds: 5 },
  );
  const groups = useLoad((signal) => get("/api/v1/consumer-groups", { query: { sort: "worst", limit: GROUPS }, signal }), [], { everySeconds: 15 });
  const namespaces = useLoad((signal) => get("/api/v1/resources/namespaces", { signal }), []);
  const labels = namespaces.data?.namespaces.map((each) => each.namespace).filter(Boolean) ?? [];
  return (
    <>
      <PageHead title="Queues">
        {may("configureQueue") && <button class="primary" onClick={() => setQuery({ create: "1" })}>Create a queue</button>}
      </PageHead>
      <div class="stack">
        <div class="filters">
          <TextFilter label="Search" name="search" placeholder="Part of a name" />
          <ChoiceFilter label="Namespace" name="namespace" choices={[["", "All"], ...labels.map((label): [string, string] => [label, label])]} />
          <ChoiceFilter label="State" name="condition" choices={[["", "Any"], ...CONDITIONS.map((each): [string, string] => [each, each])]} />
          <ChoiceFilter label="Order" name="sort" choices={[["", "By name"], ["newest", "Newest first"], ["oldest", "Oldest first"]]} />
        </div>
        <Failure error={error} />
        {data && (data.queues.length ? <Listed queues={data.queues} total={data.total} groups={groups.data ?? []} /> : <Empty title="No queue matches"><p>The first push to a queue creates it; or create it here.</p></Empty>)}
      </div>
      {query.get("create") && <CreateQueue onClose={() => setQuery({ create: null }, { replace: true })} />}
    </>
  );
}

type Group = Schemas["GroupEntry"];

function Listed({ queues, total, groups }: { queues: Schemas["QueueSummary"][]; total: number; groups: Group[] }) {
  const byQueue = Map.groupBy(groups, (group) => group.queueName);
  const worst = (queue: { name: string }) => byQueue.get(queue.name)?.[0];
  const oldest = (queue: { name: string }) => Math.max(0, ...(byQueue.get(queue.name) ?? []).map((group) => (group.totalLag ? group.maxTimeLag : 0)));
  return (
    <section class="card">
      <Table
        caption="Queues"
        rows={queues}
        keyOf={(queue) => queue.id}
        columns={[
          { title: "Queue", cell: (queue) => <><QueueLink name={queue.name} />{queue.namespace && !queue.name.startsWith(queue.namespace) && <div class="muted small">{queue.namespace}</div>}</>, by: (queue) => queue.name, isWide: true },
          { title: "State", cell: (queue) => <Badge word={queue.condition} />, by: (queue) => CONDITIONS.indexOf(queue.condition) },
          { title: "Worst group", cell: (queue) => <WorstGroup group={worst(queue)} isKnown={groups.length < GROUPS} /> },
          { title: "Lag", cell: (queue) => oldest(queue) ? seconds(oldest(queue)) : "–", by: oldest, isNumber: true },
          { title: "In/s", cell: (queue) => rate(queue.inPerSecond), by: (queue) => queue.inPerSecond, isNumber: true },
          { title: "Out/s", cell: (queue) => rate(queue.outPerSecond), by: (queue) => queue.outPerSecond, isNumber: true },
          { title: `Last ${MINUTES} min`, cell: (queue) => <Spark label={`Pushed and delivered in the last ${MINUTES} minutes`} series={[queue.pushed, queue.popped]} /> },
          { title: "Waiting", cell: (queue) => `${queue.estimated ? "≈ " : ""}${count(queue.messages.pending)}`, by: (queue) => queue.messages.pending, isNumber: true },
          { title: "Messages", cell: (queue) => `${queue.estimated ? "≈ " : ""}${count(queue.messages.total)}`, by: (queue) => queue.messages.total, isNumber: true, isMinor: true },
          { title: "Partitions", cell: (queue) => count(queue.partitions), by: (queue) => queue.partitions, isNumber: true, isMinor: true },
          { title: "Dead letters", cell: (queue) => queue.messages.deadLetter ? <a href={hrefTo(["dead-letters"], { queue: queue.name })}>{count(queue.messages.deadLetter)}</a> : "0", by: (queue) => queue.messages.deadLetter, isNumber: true },
        ]}
      />
      <Pager total={total} limit={LIMIT} />
    </section>
  );
}

function WorstGroup({ group, isKnown }: { group: Group | undefined; isKnown: boolean }) {
  if (!group) return isKnown ? <span class="muted">none</span> : <span class="muted" title={`Of more than ${count(GROUPS)} groups only the first are examined.`}>–</span>;
  return <a class="badge-link" href={hrefTo(["groups", group.name, group.queueName])} title={groupName(group.name)}><Badge word={group.condition} /></a>;
}

function CreateQueue({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [namespace, setNamespace] = useState("");
  const create = async (event: Event) => {
    event.preventDefault();
    const body = { queue: name, ...(namespace ? { namespace } : {}) };
    const isDone = await attempt(async () => void (await act("configureQueue", { body })));
    if (isDone) navigate(hrefTo(["queues", name]));
  };
  return (
    <Dialog title="Create a queue" onClose={onClose}>
      <form class="form" onSubmit={create}>
        <Field label="Name"><input value={name} required onInput={(event) => setName(event.currentTarget.value)} /></Field>
        <Field label="Namespace (optional)"><input value={namespace} onInput={(event) => setNamespace(event.currentTarget.value)} /></Field>
        <p class="muted small">It has the default options; change them on its page.</p>
        <div class="row end"><button type="button" onClick={onClose}>Cancel</button><button class="primary" disabled={!name}>Create</button></div>
      </form>
    </Dialog>
  );
}
