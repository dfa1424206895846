// Replays: ordered here or by a command, and watched until they end. The form is in the address.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, Card, Progress, QueueLink, Table, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { Command, quoted } from "../parts/copy";
import { CheckFilter, MomentFilter, TextFilter } from "../parts/fields";
import { Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { hrefTo, place, spellQuery } from "../state/place";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { count, counted, moment, percent } from "../words";

type Ordered = Schemas["ReplayRow"];
const LIMIT = 20;

export function Replay() {
  const after = place.value.query.get("after");
  const { data, error, reload } = useLoad(
    (signal) => get("/api/v1/replays", { query: { limit: LIMIT, after }, signal }),
    [after],
    { everySeconds: (page) => (page?.items.some((replay) => !replay.finishedAt) ? 2 : 10) },
  );
  return (
    <>
      <Form onStarted={reload} />
      <Failure error={error} />
      {data && data.items.length > 0 && (
        <Card title="Replays" note="newest first">
          <Replays replays={data.items} reload={reload} />
          {data.after && <a class="button" href={location.pathname + spellQuery({ after: data.after })}>Earlier replays</a>}
        </Card>
      )}
    </>
  );
}

/** What the address says is to be replayed. */
function wanted() {
  const { query } = place.value;
  const given = (name: string) => query.get(name) || null;
  return { queue: given("queue"), from: given("from"), to: given("to"), into: given("into"), partition: given("partition"), where: given("where"), keepIds: query.get("keep") === "1" };
}

function Form({ onStarted }: { onStarted: () => void }) {
  const [isAsked, setAsked] = useState(false);
  const order = wanted();
  const isCounting = place.value.query.get("dry") === "1";
  const isComplete = Boolean(order.queue && order.from && order.to && order.into);
  const start = async () => {
    const { isDuplicate } = await act("startReplay", { body: order as never });
    onStarted();
    return isDuplicate ? "This replay was already started." : "Requested the replay.";
  };
  return (
    <Card title="Replay" note="from the archive and the live log">
      <div class="form">
        <p>A replay runs on Spark. All of its messages are stored, or none, and it can be repeated safely.</p>
        <div class="filters">
          <TextFilter label="Queue" name="queue" />
          <MomentFilter label="From" name="from" />
          <MomentFilter label="To" name="to" />
          <TextFilter label="Into queue" name="into" />
          <TextFilter label="Only partition" name="partition" />
          <TextFilter label="Only where (SQL)" name="where" placeholder="length(payload) > 100" />
          <CheckFilter label="Only count" name="dry" />
          <CheckFilter label="Keep transaction ids" name="keep" />
        </div>
        {may("startReplay") && (
          <div class="row">
            <button class="primary" disabled={!isComplete || isCounting} onClick={() => setAsked(true)}>Start the replay</button>
            {isCounting && <span class="muted small">Counting requires the command.</span>}
          </div>
        )}
        <p class="muted small">Or run the command on a machine with Spark and access to the database:</p>
        <Command label="Replay command" text={replayCommand(order, isCounting)} />
      </div>
      {isAsked && (
        <Confirm title="Start the replay" verb="Replay" onClose={() => setAsked(false)} work={start}>
          <p>
            What <strong>{order.queue}</strong> stored from {moment(order.from)} until {moment(order.to)}
            {order.partition && <> in its partition <strong>{order.partition}</strong></>}
            {order.where && <> where <code>{order.where}</code></>} is put into <strong>{order.into}</strong> once more.
          </p>
          <p>{order.queue === order.into ? "All its consumer groups receive these messages again." : "All consumer groups of that queue receive them."} A worker with Spark runs it. Until it ends it can be cancelled, and nothing is stored.</p>
        </Confirm>
      )}
    </Card>
  );
}

function Replays({ replays, reload }: { replays: Ordered[]; reload: () => void }) {
  return (
    <Table
      caption="Replays"
      rows={replays}
      keyOf={(replay) => replay.id}
      columns={[
        { title: "Requested", cell: (replay) => <a href={hrefTo(["chains", replay.id])}><When at={replay.createdAt} /></a> },
        { title: "Queue", cell: (replay) => replay.order && <QueueLink name={replay.order.queue} />, isWide: true },
        { title: "Into", cell: (replay) => replay.order && <QueueLink name={replay.order.into} />, isWide: true },
        { title: "Stored", cell: (replay) => replay.order && <><span class="nowrap">{toMinutes(replay.order.from)} –</span> <span class="nowrap">{toMinutes(replay.order.to)}</span></> },
        { title: "State", cell: (replay) => <Badge word={replay.state} /> },
        { title: "", cell: (replay) => <Standing replay={replay} />, isWide: true },
        { title: "", cell: (replay) => <Cancel replay={replay} reload={reload} /> },
      ]}
    />
  );
}

const toMinutes = (at: string) => moment(at).replace(/:00$/, "");

/** How far it is, what came of it, or what is wrong. */
function Standing({ replay }: { replay: Ordered }) {
  if (replay.hint) return <span class="note note-warn small">{replay.hint}</span>;
  if (replay.error) return <span class="wrap">{replay.error}</span>;
  if (replay.progress !== null) {
    return <div><Progress share={replay.progress} label="Progress of the replay" /><span class="muted small">{percent(replay.progress)} {replay.progressNote}</span></div>;
  }
  return replay.result && <>{outcome(replay.result)}</>;
}

function outcome(result: Schemas["ReplayResult"]): string {
  const told = [`${result.isRepeated ? "already done: " : ""}${counted(result.messages, "message")}`];
  if (result.duplicates) told.push(counted(result.duplicates, "duplicate"));
  if (result.rejected) told.push(`${count(result.rejected)} became dead letters`);
  return told.join(", ");
}

function Cancel({ replay, reload }: { replay: Ordered; reload: () => void }) {
  if (replay.finishedAt || !may("cancelChain")) return null;
  const cancel = () => attempt(async () => {
    await act("cancelChain", { names: { chain_id: replay.id }, body: { reason: "cancelled in the dashboard" } });
    reload();
    return "Cancelled the replay.";
  });
  return <button onClick={cancel}>Cancel</button>;
}

function replayCommand(order: ReturnType<typeof wanted>, isCounting: boolean): string {
  const given = (text: string | null, absent: string) => quoted(text ?? absent);
  const parts = [`--queue ${given(order.queue, "QUEUE")}`, `--from ${given(order.from, "START")}`, `--to ${given(order.to, "END")}`, `--into ${given(order.into, "QUEUE")}`];
  if (order.partition) parts.push(`--partition ${quoted(order.partition)}`);
  if (order.where) parts.push(`--where ${quoted(order.where)}`);
  if (isCounting) parts.push("--dry-run");
  if (order.keepIds) parts.push("--keep-ids");
  return `skep replay ${parts.join(" \\\n  ")}`;
}
