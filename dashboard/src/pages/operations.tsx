// What waits: accepted operations under overload and those that are stuck, messages spilled to disk, maintenance, schedules.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Query, type Schemas } from "../api/client";
import { Badge, Card, PageHead, QueueLink, Stat, Table, toneOf, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { ChoiceFilter } from "../parts/fields";
import { Failure } from "../parts/notes";
import { ErrorLine } from "../parts/trouble";
import { useLoad } from "../state/loading";
import { place, spellQuery } from "../state/place";
import { hasRole, may } from "../state/session";
import { attempt } from "../state/toasts";
import { bytes, count, moment, seconds } from "../words";

type Page = Schemas["OperationPage"];
type Stats = Schemas["OperationStats"];
type Status = NonNullable<Query<"/api/v1/operations">>["status"];

export function Operations() {
  return (
    <>
      <PageHead title="Operations" />
      <div class="stack">
        <AcceptedOperations />
        {hasRole("admin") && <Maintenance />}
        <ScheduledMessages />
      </div>
    </>
  );
}

function AcceptedOperations() {
  const status = place.value.query.get("status") as Status | null;
  const before = Number(place.value.query.get("before")) || null;
  const { data, error, reload } = useLoad(
    async (signal) => {
      const [stats, page] = await Promise.all([
        get("/api/v1/operations/stats", { signal }),
        get("/api/v1/operations", { query: { status, before, limit: 50 }, signal }),
      ]);
      return { stats, page };
    },
    [status, before],
    { everySeconds: 5 },
  );
  return (
    <Card title="Operation queue" note={<>pushes and acknowledgments accepted under overload {data && <Badge word={data.stats.systemHealth} />}</>}>
      <Failure error={error} />
      {data && <Trouble stats={data.stats} reload={reload} />}
      {data && (
        <div class="stats">
          <Stat label="Waiting" value={count(data.stats.total.waiting)} note={bytes(data.stats.waitingBytes)} />
          <Stat label="Being done" value={count(data.stats.total.processing)} />
          <Stat label="Done" value={count(data.stats.total.completed)} />
          <Stat label="Failed" value={count(data.stats.total.failed)} tone={data.stats.total.failed ? "bad" : undefined} />
          <Stat label="Estimated wait" value={data.stats.systemHealth === "stuck" ? "–" : seconds(data.stats.estimatedWait)} note={data.stats.oldestWaitingAt ? `oldest since ${moment(data.stats.oldestWaitingAt)}` : undefined} />
        </div>
      )}
      {data && <OperationList page={data.page} reload={reload} />}
    </Card>
  );
}

const RAISE_LIMITS = <>Add instances, or raise <code>operation_depth_max</code> or <code>operation_mib_max</code>.</>;
const ADVICE: Partial<Record<Stats["systemHealth"], ComponentChildren>> = {
  crowded: <>Over 80% of a limit is in use. At the limit, requests that find no room are answered 429. {RAISE_LIMITS}</>,
  full: <>A limit is reached: requests that find no room are answered 429. {RAISE_LIMITS}</>,
  stuck: <>Operations are overdue, and later requests for their partitions wait behind them. Check instances, long transactions and running statements on the <a href="/system">System</a> page.</>,
};

function Trouble({ stats, reload }: { stats: Stats; reload: () => void }) {
  const health = stats.systemHealth;
  return (
    <>
      {ADVICE[health] && <div class={`note note-${toneOf(health)}`}>{ADVICE[health]}</div>}
      {stats.alerts.length > 0 && (
        <Table
          caption="Stuck operations"
          rows={stats.alerts}
          keyOf={(alert) => alert.operationId}
          columns={[
            { title: "Stuck operation", cell: (alert) => alert.type },
            { title: "Status", cell: (alert) => <Badge word={alert.status} /> },
            { title: "Queue", cell: (alert) => <QueueLink name={alert.queue} />, isWide: true },
            { title: "Partition", cell: (alert) => <span class="clip">{alert.partition}</span> },
            { title: "Retries", cell: (alert) => count(alert.retries), isNumber: true },
            { title: "Due", cell: (alert) => <When at={alert.dueAt} /> },
            { title: "What to do", cell: (alert) => alert.status === "waiting"
              ? "No process has picked it up: find what blocks it, or cancel it. Cancelling discards its items."
              : "The process that picked it up did not finish, and no other took over: restart the instances.", isWide: true },
            { title: "", cell: (alert) => <OperationActions operation={alert} reload={reload} /> },
          ]}
        />
      )}
    </>
  );
}

function OperationActions({ operation, reload }: { operation: Pick<Stats["alerts"][number], "operationId" | "status">; reload: () => void }) {
  const run = (name: "retryOperation" | "cancelOperation") => () => attempt(async () => {
    await act(name, { names: { operation_id: operation.operationId } });
    reload();
  });
  return (
    <div class="row">
      {operation.status === "failed" && may("retryOperation") && <button onClick={run("retryOperation")}>Retry</button>}
      {operation.status === "waiting" && may("cancelOperation") && <button onClick={run("cancelOperation")}>Cancel</button>}
    </div>
  );
}

function OperationList({ page, reload }: { page: Page; reload: () => void }) {
  return (
    <>
      <div class="filters"><ChoiceFilter label="Status" name="status" choices={[["", "Any"], ["waiting", "Waiting"], ["processing", "Processing"], ["completed", "Completed"], ["failed", "Failed"], ["cancelled", "Cancelled"]]} /></div>
      <Table
        caption="Operations"
        rows={page.operations}
        keyOf={(operation) => operation.operationId}
        columns={[
          { title: "Operation", cell: (operation) => operation.type },
          { title: "Status", cell: (operation) => <Badge word={operation.status} /> },
          { title: "Queue", cell: (operation) => <QueueLink name={operation.queue} />, isWide: true },
          { title: "Partition", cell: (operation) => <span class="clip">{operation.partition}</span> },
          { title: "Items", cell: (operation) => count(operation.itemCount), isNumber: true, isMinor: true },
          { title: "Retries", cell: (operation) => count(operation.retries), isNumber: true, isMinor: true },
          { title: "Accepted", cell: (operation) => <When at={operation.createdAt} /> },
          { title: "Error", cell: (operation) => <ErrorLine error={operation.error} />, isWide: true },
          { title: "", cell: (operation) => <OperationActions operation={operation} reload={reload} /> },
        ]}
      />
      {page.nextBefore && <a class="button" href={location.pathname + spellQuery({ before: page.nextBefore })}>Older</a>}
    </>
  );
}

function Maintenance() {
  const { data, error, reload } = useLoad((signal) => get("/api/v1/system/maintenance", { signal }), [], { everySeconds: 5 });
  const [asked, setAsked] = useState<"setPushMaintenance" | "setPopMaintenance" | null>(null);
  const isOn = asked === "setPushMaintenance" ? data?.maintenanceMode : data?.popMaintenanceMode;
  return (
    <Card title="Failover and maintenance" note="for all instances">
      <Failure error={error} />
      {data && (
        <>
          <div class="stats">
            <Stat label="Pushes" value={data.maintenanceMode ? "To disk" : "To PostgreSQL"} tone={data.maintenanceMode ? "warn" : undefined} />
            <Stat label="Polls" value={data.popMaintenanceMode ? "Stopped" : "Delivered"} tone={data.popMaintenanceMode ? "warn" : undefined} />
            <Stat label="On disk" value={count(data.bufferedMessages)} note={data.bufferHealthy ? "files are intact" : "files need attention"} tone={data.bufferHealthy ? undefined : "bad"} />
            <Stat label="Set aside" value={count(data.bufferStats.failedFiles.count)} note={bytes(data.bufferStats.failedFiles.totalBytes)} tone={data.bufferStats.failedFiles.count ? "bad" : undefined} />
          </div>
          <div class="row">
            {may("setPushMaintenance") && <button onClick={() => setAsked("setPushMaintenance")}>{data.maintenanceMode ? "End push maintenance" : "Keep pushes on disk"}</button>}
            {may("setPopMaintenance") && <button onClick={() => setAsked("setPopMaintenance")}>{data.popMaintenanceMode ? "Resume deliveries" : "Stop deliveries"}</button>}
          </div>
        </>
      )}
      {asked && (
        <Confirm title="Maintenance" verb={isOn ? "End maintenance" : "Start maintenance"} onClose={() => setAsked(null)} work={async () => {
          const { message } = await act(asked, { body: { enabled: !isOn } });
          reload();
          return message;
        }}>
          <p>{asked === "setPushMaintenance" ? "Pushes are kept in files and stored when maintenance ends." : "Polls return nothing during maintenance."} This applies to all instances.</p>
        </Confirm>
      )}
    </Card>
  );
}

function ScheduledMessages() {
  const { data, error, reload } = useLoad((signal) => get("/api/v1/scheduled", { query: { limit: 50 }, signal }), [], { everySeconds: 10 });
  const deliver = (id: string) => () => attempt(async () => {
    await act("deliverScheduled", { names: { scheduled_id: id } });
    reload();
    return "Delivered the message.";
  });
  return (
    <Card title="Scheduled messages" note={data && `${data.isTotalExact ? "" : "≈ "}${count(data.total)} scheduled`}>
      <Failure error={error} />
      {data && data.messages.length > 0 && (
        <Table
          caption="Scheduled messages"
          rows={data.messages}
          keyOf={(message) => message.id}
          columns={[
            { title: "Transaction id", cell: (message) => <span class="clip mono">{message.transactionId}</span> },
            { title: "Queue", cell: (message) => <QueueLink name={message.queue} />, isWide: true },
            { title: "Partition", cell: (message) => <span class="clip">{message.partition}</span> },
            { title: "Delivered", cell: (message) => <When at={message.deliverAt} /> },
            { title: "", cell: (message) => may("deliverScheduled") && <button onClick={deliver(message.id)}>Deliver now</button> },
          ]}
        />
      )}
    </Card>
  );
}
