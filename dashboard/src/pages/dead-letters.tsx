// Dead letters: grouped by error, over time, one by one, and back into their queues.
import { useRef, useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, Card, Facts, PageHead, Progress, QueueLink, Table, When } from "../parts";
import { Confirm, Dialog } from "../parts/dialog";
import { currentPage, Pager, TextFilter } from "../parts/fields";
import { Payload } from "../parts/json";
import { Empty, Failure } from "../parts/notes";
import { Chart } from "../parts/plot";
import { useLoad } from "../state/loading";
import { place, setQuery } from "../state/place";
import { gridOf, lastly, spelledRange } from "../state/range";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { count, groupName, units } from "../words";

type Letter = Schemas["DeadLetter"];
type Redrive = Schemas["Redrive"];
const LIMIT = 100;

function chosenFilter() {
  const { query } = place.value;
  return { queue: query.get("queue"), consumerGroup: query.get("group"), error: query.get("error") };
}

export function DeadLetters() {
  const filter = chosenFilter();
  const page = currentPage();
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const { data, error, reload } = useLoad((signal) => get("/api/v1/dlq", { query: { ...filter, limit: LIMIT, offset: page * LIMIT }, signal }), [filter, page], { everySeconds: 5 });
  const restart = () => {
    setChosen(new Set());
    reload();
  };
  return (
    <>
      <PageHead title="Dead letters">{data && data.total > 0 && may("redrive") && <RedriveButtons total={data.total} chosen={chosen} onStarted={restart} />}</PageHead>
      <div class="stack">
        <Redrives onMoved={reload} />
        <div class="filters">
          <TextFilter label="Queue" name="queue" />
          <TextFilter label="Group" name="group" />
          <TextFilter label="Error" name="error" placeholder="Part of the message" />
        </div>
        <Failure error={error} />
        {data && data.messages.length === 0 && <Empty title="No dead letters"><p>Messages appear here when their retries are used up, or when a consumer dead-letters them.</p></Empty>}
        {data && data.messages.length > 0 && (
          <>
            <div class="grid"><Causes filter={filter} /><Trend queue={filter.queue} /></div>
            <Card title={`${data.totalIsEstimate ? "≈ " : ""}${count(data.total)} dead letters`}>
              <Letters letters={data.messages} chosen={chosen} onChoose={setChosen} reload={reload} />
              <Pager total={data.total} limit={LIMIT} />
            </Card>
          </>
        )}
      </div>
    </>
  );
}

/** Errors without what differs from message to message, so that alike ones fall together. */
export function causeOf(error: string): string {
  return error.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/gi, "…").replace(/\d+/g, "#").slice(0, 160);
}

function Causes({ filter }: { filter: ReturnType<typeof chosenFilter> }) {
  const { data } = useLoad((signal) => get("/api/v1/dlq", { query: { ...filter, limit: 500 }, signal }), [filter], { everySeconds: 30 });
  const causes = new Map<string, { letters: number; last: string; example: string }>();
  for (const letter of data?.messages ?? []) {
    const cause = causeOf(letter.errorMessage);
    const known = causes.get(cause);
    causes.set(cause, { letters: (known?.letters ?? 0) + 1, last: known?.last ?? letter.failedAt, example: known?.example ?? letter.errorMessage });
  }
  const listed = [...causes].sort(([, a], [, b]) => b.letters - a.letters).slice(0, 12);
  return (
    <Card title="By error" note="of the newest 500">
      <Table
        caption="Dead letters by error"
        rows={listed}
        keyOf={([cause]) => cause}
        columns={[
          { title: "Error", cell: ([cause, { example }]) => <button class="plain wrap" onClick={() => setQuery({ error: longestPart(example, cause), page: null })}>{cause || "(no message)"}</button>, isWide: true },
          { title: "Letters", cell: ([, { letters }]) => count(letters), isNumber: true },
          { title: "Last", cell: ([, { last }]) => <When at={last} /> },
        ]}
      />
    </Card>
  );
}

/** The longest piece that all errors of a cause have in common, to filter by. */
function longestPart(example: string, cause: string): string {
  const parts = cause.split(/[#…]/).filter((part) => example.includes(part));
  return parts.reduce((longest, part) => (part.trim().length > longest.length ? part.trim() : longest), "");
}

function Trend({ queue }: { queue: string | null }) {
  const range = lastly("24h");
  const { data } = useLoad((signal) => get("/api/v1/status", { query: { queue, from: spelledRange(range).from }, signal }), [queue], { everySeconds: 60 });
  const grid = data && gridOf(range, data.bucketMinutes, data.throughput, (point) => point.timestamp);
  const lines = [{ label: "Dead letters", colour: 4 as const, values: grid?.values((point) => point.dlqCount, 0) ?? [] }];
  return <Chart title="Trend" note="last day" nothing="No message was dead-lettered in the last day." times={grid?.times} range={range} unit={units.whole} lines={lines} />;
}

function Letters(props: { letters: Letter[]; chosen: ReadonlySet<number>; onChoose: (chosen: ReadonlySet<number>) => void; reload: () => void }) {
  const [shown, setShown] = useState<Letter | null>(null);
  const toggle = (id: number) => {
    const next = new Set(props.chosen);
    if (!next.delete(id)) next.add(id);
    props.onChoose(next);
  };
  return (
    <>
      <Table
        caption="Dead letters"
        rows={props.letters}
        keyOf={(letter) => letter.dlqId}
        columns={[
          { title: "Chosen", cell: (letter) => <input type="checkbox" aria-label={`Choose ${letter.transactionId}`} checked={props.chosen.has(letter.dlqId)} onChange={() => toggle(letter.dlqId)} /> },
          { title: "Transaction id", cell: (letter) => <button class="plain mono clip" onClick={() => setShown(letter)}>{letter.transactionId}</button> },
          { title: "Queue", cell: (letter) => letter.queue ? <QueueLink name={letter.queue} /> : "–", isWide: true },
          { title: "Group", cell: (letter) => letter.consumerGroup ? groupName(letter.consumerGroup) : "–" },
          { title: "Error", cell: (letter) => letter.errorMessage, isWide: true },
          { title: "Deliveries", cell: (letter) => count(letter.attempts), isNumber: true },
          { title: "Failed", cell: (letter) => <When at={letter.failedAt} /> },
        ]}
      />
      {shown && <LetterDialog letter={shown} onClose={() => setShown(null)} reload={props.reload} />}
    </>
  );
}

function LetterDialog({ letter, onClose, reload }: { letter: Letter; onClose: () => void; reload: () => void }) {
  const names = { dlq_id: String(letter.dlqId) };
  const run = (work: () => Promise<string>) => async () => {
    if (await attempt(work)) {
      reload();
      onClose();
    }
  };
  const replay = run(async () => ((await act("replayLetter", { names, body: {} })).result === "moved" ? "Pushed again." : "Duplicate: it was pushed before."));
  const remove = run(async () => (await act("deleteLetter", { names }), "Deleted."));
  return (
    <Dialog title={letter.transactionId} onClose={onClose}>
      <div class="stack">
        <Facts facts={[["Queue", letter.queue], ["Partition", letter.partition], ["Group", letter.consumerGroup && groupName(letter.consumerGroup)], ["Error", letter.errorMessage], ["Failures", String(letter.retryCount)], ["Pushed", <When at={letter.createdAt} />], ["Failed", <When at={letter.failedAt} />]]} />
        {letter.payloadError ? <div class="note note-warn">{letter.payloadError}</div> : <Payload value={letter.data} />}
        <div class="row end">
          {may("deleteLetter") && <button class="danger" onClick={remove}>Delete</button>}
          {may("replayLetter") && <button class="primary" onClick={replay}>Redrive this one</button>}
          <button onClick={onClose}>Close</button>
        </div>
      </div>
    </Dialog>
  );
}

function RedriveButtons({ total, chosen, onStarted }: { total: number; chosen: ReadonlySet<number>; onStarted: () => void }) {
  const [asked, setAsked] = useState<"chosen" | "all" | null>(null);
  const { queue, consumerGroup, error } = chosenFilter();
  const isFiltered = Boolean(queue ?? consumerGroup ?? error);
  const letters = asked === "chosen" ? chosen.size : total;
  const start = async () => {
    const body = asked === "chosen" ? { ids: [...chosen] } : { queue, consumerGroup, error };
    await act("redrive", { body: body as never });
    onStarted();
    return "Started the redrive.";
  };
  return (
    <div class="row">
      <button disabled={chosen.size === 0} onClick={() => setAsked("chosen")}>Redrive the chosen ({chosen.size})</button>
      <button class="primary" onClick={() => setAsked("all")}>Redrive all {isFiltered ? "that match" : ""}</button>
      {asked && (
        <Confirm title="Redrive" verb={`Push ${count(letters)} again`} onClose={() => setAsked(null)} work={start}>
          <p>{count(letters)} messages are pushed again, each into its own queue and partition, for all groups of that queue.</p>
        </Confirm>
      )}
    </div>
  );
}

function Redrives({ onMoved }: { onMoved: () => void }) {
  const seen = useRef<string | null>(null);
  const { data, reload } = useLoad(
    async (signal) => {
      const { redrives } = await get("/api/v1/dlq/redrive", { query: { limit: 5 }, signal });
      // By what was moved, not by what runs: a redrive may begin and end between two looks.
      const progress = JSON.stringify(redrives.map(({ id, state, moved, duplicates }) => [id, state, moved, duplicates]));
      if (seen.current !== null && seen.current !== progress) onMoved();
      seen.current = progress;
      return redrives;
    },
    [],
    { everySeconds: 1 },
  );
  const recent = data?.filter((redrive) => redrive.state === "running" || Date.now() - Date.parse(redrive.finishedAt ?? "") < 600_000) ?? [];
  if (!recent.length) return null;
  return <Card title="Redrives">{recent.map((redrive) => <RedriveProgress key={redrive.id} redrive={redrive} reload={reload} />)}</Card>;
}

function RedriveProgress({ redrive, reload }: { redrive: Redrive; reload: () => void }) {
  const done = redrive.moved + redrive.duplicates;
  const cancel = () => attempt(async () => {
    await act("cancelRedrive", { names: { redrive_id: redrive.id } });
    reload();
  });
  return (
    <div class="form">
      <div class="row">
        <Badge word={redrive.state} />
        <span>{count(redrive.moved)} of {redrive.totalIsEstimate && "≈ "}{count(redrive.total)} pushed again{redrive.duplicates > 0 && `, ${count(redrive.duplicates)} duplicates`}</span>
        <span class="muted small"><When at={redrive.createdAt} /></span>
        {redrive.state === "running" && may("cancelRedrive") && <button onClick={cancel}>Cancel</button>}
      </div>
      {redrive.error && <div class="note note-bad">{redrive.error}</div>}
      <Progress share={redrive.total ? done / redrive.total : 1} label="Redriven" />
    </div>
  );
}
