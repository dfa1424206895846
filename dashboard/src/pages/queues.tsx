// The list of queues, and below it one queue.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, PageHead, QueueLink, Table, When } from "../parts";
import { Dialog } from "../parts/dialog";
import { ChoiceFilter, currentPage, Pager, TextFilter } from "../parts/fields";
import { Empty, Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { hrefTo, navigate, place, setQuery } from "../state/place";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { count } from "../words";
import { QueuePage } from "./queue";
import { Field } from "../parts/field";

const LIMIT = 100;
type Order = "newest" | "oldest" | "name";

export function Queues() {
  const name = place.value.segments[1];
  return name === undefined ? <QueueList /> : <QueuePage key={name} name={name} />;
}

function QueueList() {
  const { query } = place.value;
  const page = currentPage();
  const wanted = { search: query.get("search"), namespace: query.get("namespace"), sort: (query.get("sort") ?? "name") as Order };
  const { data, error } = useLoad(
    (signal) => get("/api/v1/resources/queues", { query: { ...wanted, limit: LIMIT, offset: page * LIMIT }, signal }),
    [wanted, page],
    { everySeconds: 5 },
  );
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
          <ChoiceFilter label="Order" name="sort" choices={[["", "By name"], ["newest", "Newest first"], ["oldest", "Oldest first"]]} />
        </div>
        <Failure error={error} />
        {data && (data.queues.length ? <Listed page={data} /> : <Empty title="No queue matches"><p>The first push to a queue creates it; or create it here.</p></Empty>)}
      </div>
      {query.get("create") && <CreateQueue onClose={() => setQuery({ create: null }, { replace: true })} />}
    </>
  );
}

function Listed({ page }: { page: Schemas["QueuePage"] }) {
  return (
    <section class="card">
      <Table
        caption="Queues"
        rows={page.queues}
        keyOf={(queue) => queue.id}
        columns={[
          { title: "Queue", cell: (queue) => <QueueLink name={queue.name} />, by: (queue) => queue.name, isWide: true },
          { title: "State", cell: (queue) => queue.isPaused ? <Badge word="paused" /> : <Badge word="open" tone="good" /> },
          { title: "Waiting", cell: (queue) => `${queue.estimated ? "≈ " : ""}${count(queue.messages.pending)}`, by: (queue) => queue.messages.pending, isNumber: true },
          { title: "Processing", cell: (queue) => count(queue.messages.processing), by: (queue) => queue.messages.processing, isNumber: true },
          { title: "Dead letters", cell: (queue) => queue.messages.deadLetter ? <a href={hrefTo(["dead-letters"], { queue: queue.name })}>{count(queue.messages.deadLetter)}</a> : "0", by: (queue) => queue.messages.deadLetter, isNumber: true },
          { title: "Messages", cell: (queue) => `${queue.estimated ? "≈ " : ""}${count(queue.messages.total)}`, by: (queue) => queue.messages.total, isNumber: true },
          { title: "Partitions", cell: (queue) => count(queue.partitions), by: (queue) => queue.partitions, isNumber: true },
          { title: "Namespace", cell: (queue) => queue.namespace || "–", by: (queue) => queue.namespace || null },
          { title: "Created", cell: (queue) => <When at={queue.createdAt} />, by: (queue) => queue.createdAt },
        ]}
      />
      <Pager total={page.total} limit={LIMIT} />
    </section>
  );
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
