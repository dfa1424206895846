// Dead letters: grouped by error, over time, one by one, and back into their queues.
import { useRef, useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, Card, Facts, PageHead, Progress, QueueLink, Table, TimeRangeChoice, When } from "../parts";
import { Confirm, Dialog } from "../parts/dialog";
import { Field } from "../parts/field";
import { Choices, currentPage, Pager, TextFilter } from "../parts/fields";
import { Payload } from "../parts/json";
import { Empty, Failure } from "../parts/notes";
import { Chart, Charts } from "../parts/plot";
import { ErrorLine, ErrorText, errorLine } from "../parts/trouble";
import { useLoad } from "../state/loading";
import { hrefTo, place, setQuery } from "../state/place";
import { chosenRange, gridOf, spelledRange } from "../state/range";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { count, counted, groupName, theGroup, units } from "../words";
import { PayloadLine } from "./messages";

type Letter = Schemas["DeadLetter"];
type Redrive = Schemas["Redrive"];
type Filter = ReturnType<typeof chosenFilter>;
const LIMIT = 100;
const EXAMPLES = 500;
const PAYLOAD_CHARS = 200;
const DAY_MS = 86_400_000;

function chosenFilter() {
  const { query } = place.value;
  return { queue: query.get("queue"), consumerGroup: query.get("group"), error: query.get("error"), ...failedWithin(query.get("failed")) };
}

/** Days as people mean them: from midnight to midnight where they are. */
function failedWithin(span: string | null): { from: string | null; to: string | null } {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const spell = (time: number) => new Date(time).toISOString();
  if (span === "today") return { from: spell(midnight), to: null };
  if (span === "yesterday") return { from: spell(midnight - DAY_MS), to: spell(midnight) };
  if (span === "week") return { from: spell(midnight - 6 * DAY_MS), to: null };
  return { from: null, to: null };
}

/** What a redrive would move: letters by number, or those that a filter finds. */
type Choice = { letters: number; ids?: number[]; filter: Filter };

export function DeadLetters() {
  const filter = chosenFilter();
  const page = currentPage();
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const [asked, setAsked] = useState<Choice | null>(null);
  const [started, setStarted] = useState(0);
  const { data, error, reload } = useLoad((signal) => get("/api/v1/dlq", { query: { ...filter, limit: LIMIT, offset: page * LIMIT }, signal }), [filter, page], { everySeconds: 5 });
  const restart = () => {
    setChosen(new Set());
    setStarted((before) => before + 1);
    reload();
  };
  return (
    <>
      <PageHead title="Dead letters">{data && data.total > 0 && may("redrive") && (
        <div class="row">
          <button disabled={chosen.size === 0} onClick={() => setAsked({ letters: chosen.size, ids: [...chosen], filter })}>Redrive the chosen ({chosen.size})</button>
          <button class="primary" onClick={() => setAsked({ letters: data.total, filter })}>Redrive all {isFiltered(filter) ? "that match" : ""}</button>
        </div>
      )}</PageHead>
      <div class="stack">
        <Redrives started={started} onMoved={reload} />
        <div class="filters">
          <TextFilter label="Queue" name="queue" />
          <TextFilter label="Group" name="group" />
          <TextFilter label="Error" name="error" placeholder="Part of it" />
          <Choices label="Failed" name="failed" choices={[["", "Any time"], ["today", "Today"], ["yesterday", "Yesterday"], ["week", "Last 7 days"]]} />
        </div>
        <Failure error={error} />
        {data && data.messages.length === 0 && <Empty title="No dead letters"><p>{isFiltered(filter) ? <>None matches the filters. <a href="/dead-letters">All dead letters</a></> : "Messages appear here when their retries are used up, or when a consumer dead-letters them."}</p></Empty>}
        {data && data.messages.length > 0 && (
          <>
            <Causes filter={filter} onRedrive={setAsked} />
            <Card title={`${data.totalIsEstimate ? "≈ " : ""}${counted(data.total, "dead letter")}`}>
              <Letters letters={data.messages} chosen={chosen} onChoose={setChosen} reload={reload} />
              <Pager total={data.total} limit={LIMIT} />
            </Card>
            <Trend queue={filter.queue} />
          </>
        )}
      </div>
      {asked && <RedriveDialog choice={asked} onClose={() => setAsked(null)} onStarted={restart} />}
    </>
  );
}

/** Errors without what differs from message to message, so that alike ones fall together. */
export function causeOf(error: string): string {
  return errorLine(error).replace(/[0-9a-f]{8}-[0-9a-f-]{27}/gi, "…").replace(/\d+/g, "#").slice(0, 160);
}

const isFiltered = (filter: Filter) => Object.values(filter).some(Boolean);

type Cause = { letters: number; first: string; last: string; example: string };

/** Letters by what went wrong, the most frequent first. */
function causesOf(letters: Letter[]): [string, Cause][] {
  const causes = new Map<string, Cause>();
  for (const { errorMessage, failedAt } of letters) {
    const cause = causeOf(errorMessage);
    const known = causes.get(cause);
    causes.set(cause, { letters: (known?.letters ?? 0) + 1, first: failedAt, last: known?.last ?? failedAt, example: known?.example ?? errorMessage });
  }
  return [...causes].sort(([, a], [, b]) => b.letters - a.letters);
}

function Causes({ filter, onRedrive }: { filter: Filter; onRedrive: (choice: Choice) => void }) {
  const { data } = useLoad((signal) => get("/api/v1/dlq", { query: { ...filter, limit: EXAMPLES }, signal }), [filter], { everySeconds: 30 });
  const letters = data?.messages ?? [];
  return (
    <Card title="By error" note={data && data.total > letters.length ? `of the newest ${count(letters.length)}` : undefined}>
      <Table
        caption="Dead letters by error"
        rows={causesOf(letters).slice(0, 12)}
        keyOf={([cause]) => cause}
        columns={[
          { title: "Error", cell: ([cause, { example }]) => <button class="plain mono" onClick={() => setQuery({ error: commonPart(example, cause), page: null })}>{cause || "(no message)"}</button>, isWide: true },
          { title: "Letters", cell: ([, { letters }]) => count(letters), isNumber: true },
          { title: "First", cell: ([, { first }]) => <When at={first} /> },
          { title: "Last", cell: ([, { last }]) => <When at={last} /> },
          { title: "", cell: ([cause, { letters, example }]) => may("redrive") && commonPart(example, cause) && <button onClick={() => onRedrive({ letters, filter: { ...filter, error: commonPart(example, cause) } })}>Redrive these</button> },
        ]}
      />
    </Card>
  );
}

/** The longest piece that all errors of a cause have in common, to filter by. */
function commonPart(example: string, cause: string): string {
  const parts = cause.split(/[#…]/).filter((part) => example.includes(part));
  return parts.reduce((longest, part) => (part.trim().length > longest.length ? part.trim() : longest), "");
}

function Trend({ queue }: { queue: string | null }) {
  const range = chosenRange();
  const { data } = useLoad((signal) => get("/api/v1/status", { query: { queue, ...spelledRange(range) }, signal }), [queue, range.key], { everySeconds: 60 });
  const grid = data && gridOf(range, data.bucketMinutes, data.throughput, (point) => point.timestamp);
  const lines = [{ label: "Dead letters", colour: 4 as const, values: grid?.values((point) => point.dlqCount, 0) ?? [] }];
  return (
    <>
      <TimeRangeChoice />
      <Charts range={range}>
        <Chart title="Messages dead-lettered" nothing="No message was dead-lettered in this time." times={grid?.times} range={range} unit={units.whole} lines={lines} />
      </Charts>
    </>
  );
}

function Letters(props: { letters: Letter[]; chosen: ReadonlySet<number>; onChoose: (chosen: ReadonlySet<number>) => void; reload: () => void }) {
  // By its number, not its place: newer letters arrive above it while it is read.
  const [shown, setShown] = useState<number | null>(null);
  const at = props.letters.findIndex((each) => each.dlqId === shown);
  const letter = props.letters[at];
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
          { title: "Transaction id", cell: (letter) => <button class="plain mono" onClick={() => setShown(letter.dlqId)}>{letter.transactionId}</button> },
          { title: "Queue", cell: (letter) => <>{letter.queue ? <QueueLink name={letter.queue} /> : "–"}<div class="muted small">{letter.consumerGroup && groupName(letter.consumerGroup)}</div></> },
          { title: "Payload", cell: (letter) => <PayloadLine text={payloadLine(letter)} />, isWide: true },
          { title: "Error", cell: (letter) => <ErrorLine error={letter.errorMessage} />, isWide: true },
          { title: "Failed", cell: (letter) => <When at={letter.failedAt} /> },
        ]}
      />
      {letter && <LetterDialog key={letter.dlqId} letter={letter} onClose={() => setShown(null)} reload={props.reload} onMove={(by) => setShown(props.letters[at + by]?.dlqId ?? null)} place={at} last={props.letters.length - 1} />}
    </>
  );
}

const payloadLine = (letter: Letter) => letter.payloadError ?? JSON.stringify(letter.data)?.slice(0, PAYLOAD_CHARS);

type LetterProps = { letter: Letter; place: number; last: number; onMove: (by: number) => void; onClose: () => void; reload: () => void };

function LetterDialog({ letter, place, last, onMove, onClose, reload }: LetterProps) {
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
    <Dialog title={letter.transactionId} onClose={onClose} isWide>
      <div class="stack">
        <div class="sides">
          <section aria-label="Error">
            <h3>Error</h3>
            <ErrorText error={letter.errorMessage} isOpen />
            <Facts facts={[["Queue", letter.queue], ["Partition", letter.partition], ["Group", letter.consumerGroup && groupName(letter.consumerGroup)], ["Failures", String(letter.retryCount)], ["Deliveries", count(letter.attempts)], ["Pushed", <When at={letter.createdAt} />], ["Failed", <When at={letter.failedAt} />], ["Message", <a href={hrefTo(["messages", letter.partitionId, letter.id])}>What happened to it</a>]]} />
          </section>
          <section aria-label="Payload">
            <h3>Payload</h3>
            {letter.payloadError ? <div class="note note-warn">{letter.payloadError}</div> : <Payload value={letter.data} />}
          </section>
        </div>
        <div class="row">
          <button disabled={place === 0} onClick={() => onMove(-1)}>Previous</button>
          <button disabled={place === last} onClick={() => onMove(1)}>Next</button>
          <span class="grow" />
          {may("deleteLetter") && <button class="danger" onClick={remove}>Delete</button>}
          {may("replayLetter") && <button class="primary" onClick={replay}>Redrive this one</button>}
        </div>
      </div>
    </Dialog>
  );
}

/** What is about to be pushed again, before it is. */
function RedriveDialog({ choice, onClose, onStarted }: { choice: Choice; onClose: () => void; onStarted: () => void }) {
  const [groups, setGroups] = useState<"failed" | "all">("failed");
  const { data, error } = useLoad((signal) => get("/api/v1/dlq", { query: { ...choice.filter, limit: EXAMPLES }, signal }), [choice.filter]);
  const letters = choice.ids ? data?.messages.filter((letter) => choice.ids?.includes(letter.dlqId)) : data?.messages;
  const total = choice.ids ? choice.letters : (data?.total ?? choice.letters);
  const whence = Map.groupBy(letters ?? [], (letter) => `${letter.queue ?? "a deleted queue"}, failed by ${theGroup(letter.consumerGroup)}`);
  const start = async () => {
    await act("redrive", { body: { ...(choice.ids ? { ids: choice.ids } : choice.filter), target: { groups } } as never });
    onStarted();
    return "Started the redrive.";
  };
  return (
    <Confirm title="Redrive" verb={`Push ${count(total)} again`} isWide isSafe onClose={onClose} work={start}>
      <div class="stack">
        <Failure error={error} />
        <p>{data?.totalIsEstimate && !choice.ids && "About "}{counted(total, "message")} will be pushed again, each into its own queue and partition.</p>
        {letters && <ul class="plain">{[...whence].map(([from, some]) => <li key={from}><strong>{count(some.length)}</strong> of {from}</li>)}{total > letters.length && <li>{count(total - letters.length)} older ones</li>}</ul>}
        <Field label="Delivered to"><select value={groups} onChange={(event) => setGroups(event.currentTarget.value as "failed" | "all")}>
            <option value="failed">Only the group that failed</option>
            <option value="all">All groups of the queue</option>
          </select></Field>
        {letters && (
          <Table
            caption="Examples"
            rows={letters.slice(0, 3)}
            keyOf={(letter) => letter.dlqId}
            columns={[
              { title: "Transaction id", cell: (letter) => <span class="mono">{letter.transactionId}</span> },
              { title: "Payload", cell: (letter) => <PayloadLine text={payloadLine(letter)} />, isWide: true },
              { title: "Error", cell: (letter) => <ErrorLine error={letter.errorMessage} />, isWide: true },
            ]}
          />
        )}
      </div>
    </Confirm>
  );
}

/** Followed closely while one runs; started elsewhere, it appears a little later. */
function Redrives({ started, onMoved }: { started: number; onMoved: () => void }) {
  const seen = useRef<string | null>(null);
  const { data, reload } = useLoad(
    async (signal) => {
      const { redrives } = await get("/api/v1/dlq/redrive", { query: { limit: 5 }, signal });
      // By what was moved, not by what runs: a redrive may begin and end between two looks.
      const progress = JSON.stringify(redrives.map(({ id, state, moved, duplicates }) => [id, state, moved, duplicates]));
      if (seen.current !== progress && (started > 0 || seen.current !== null)) onMoved();
      seen.current = progress;
      return redrives;
    },
    [started],
    { everySeconds: (redrives) => (redrives?.some(({ state }) => state === "running") ? 1 : 10) },
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
        <span>{count(redrive.moved)} of {redrive.totalIsEstimate && "≈ "}{count(redrive.total)} pushed again{redrive.duplicates > 0 && `, ${counted(redrive.duplicates, "duplicate")}`}</span>
        <span class="muted small"><When at={redrive.createdAt} /></span>
        {redrive.state === "running" && may("cancelRedrive") && <button onClick={cancel}>Cancel</button>}
      </div>
      {redrive.error && <div class="note note-bad">{redrive.error}</div>}
      <Progress share={redrive.total ? done / redrive.total : 1} label="Redriven" />
    </div>
  );
}
