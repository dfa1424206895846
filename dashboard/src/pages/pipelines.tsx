// Spark: readers and pipelines with their lag, and how far the archive reaches.
import { get, getIfServed, type Schemas } from "../api/client";
import { entriesOf, type Coverage, type Pipeline } from "../api/further";
import { Badge, Card, PageHead, QueueLink, Table, When } from "../parts";
import { Empty, Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { count, moment, rate, seconds } from "../words";

export function Pipelines() {
  const { data, error } = useLoad(
    async (signal) => {
      const [readers, pipelines, coverage] = await Promise.all([
        get("/api/v1/readers", { query: { limit: 1000 }, signal }),
        getIfServed<unknown>("/api/v1/pipelines", { signal }),
        getIfServed<unknown>("/api/v1/archive/coverage", { signal }),
      ]);
      return { readers: readers.readers, pipelines: entriesOf<Pipeline>(pipelines, "pipelines"), coverage: entriesOf<Coverage>(coverage, "queues") };
    },
    [],
    { everySeconds: 5 },
  );
  const isEmpty = data && !data.readers.length && !data.pipelines.length && !data.coverage.length;
  return (
    <>
      <PageHead title="Pipelines" />
      <div class="stack">
        <Failure error={error} />
        {isEmpty && (
          <Empty title="Nothing reads with Spark yet">
            <p>A stream that reads a queue under a name appears here:</p>
            <pre tabIndex={0}>{'spark.readStream.format("skep").option("queue", "orders").option("consumerGroup", "lake")'}</pre>
          </Empty>
        )}
        {data && data.pipelines.length > 0 && <Card title="Pipelines"><PipelineTable pipelines={data.pipelines} /></Card>}
        {data && data.readers.length > 0 && <Card title="Readers" note="how far behind the head of their queues"><ReaderTable readers={data.readers} /></Card>}
        {data && data.coverage.length > 0 && <ArchiveCoverage coverage={data.coverage} />}
        {data && data.coverage.length > 0 && (
          <Card title="Replay" note="from the archive and the live log">
            <p>A replay runs in Spark, where the data is. From any machine that reaches the database:</p>
            <pre tabIndex={0}>skep replay --queue QUEUE --from START --to END --into QUEUE</pre>
          </Card>
        )}
      </div>
    </>
  );
}

function PipelineTable({ pipelines }: { pipelines: Pipeline[] }) {
  return (
    <Table
      caption="Pipelines"
      rows={pipelines}
      keyOf={(pipeline) => pipeline.name}
      columns={[
        { title: "Pipeline", cell: (pipeline) => pipeline.name, isWide: true },
        { title: "State", cell: (pipeline) => <Badge word={pipeline.state ?? "unknown"} /> },
        { title: "Behind", cell: (pipeline) => count(pipeline.lag), isNumber: true },
        { title: "Batch", cell: (pipeline) => seconds(pipeline.batchSeconds), isNumber: true },
        { title: "Rows per second", cell: (pipeline) => rate(pipeline.rowsPerSecond), isNumber: true },
        { title: "Last sign of life", cell: (pipeline) => <When at={pipeline.heartbeatAt ?? pipeline.updatedAt} /> },
        { title: "Last error", cell: (pipeline) => pipeline.lastError ?? pipeline.error ?? "", isWide: true },
      ]}
    />
  );
}

function ReaderTable({ readers }: { readers: Schemas["ReaderLag"][] }) {
  return (
    <Table
      caption="Readers"
      rows={readers}
      keyOf={(reader) => `${reader.queue}/${reader.name}`}
      columns={[
        { title: "Reader", cell: (reader) => reader.name, isWide: true },
        { title: "Queue", cell: (reader) => <QueueLink name={reader.queue} />, isWide: true },
        { title: "Behind", cell: (reader) => count(reader.messages), isNumber: true },
        { title: "Time behind", cell: (reader) => seconds(reader.timeLagSeconds), isNumber: true },
        { title: "Last batch", cell: (reader) => <When at={reader.updatedAt} /> },
        { title: "Log kept", cell: (reader) => <Badge word={reader.active ? "yes" : "no"} tone={reader.active ? "good" : "warn"} /> },
      ]}
    />
  );
}

/** Per queue, which part of the time from the oldest archived message to now is in the archive. */
function ArchiveCoverage({ coverage }: { coverage: Coverage[] }) {
  const now = Date.now();
  const start = Math.min(now, ...coverage.map((each) => Date.parse(each.from ?? "") || now));
  const place = (at: string | null | undefined) => (((Date.parse(at ?? "") || now) - start) / Math.max(now - start, 1)) * 100;
  return (
    <Card title="Archive" note={`from ${moment(new Date(start).toISOString())} to now`}>
      <Table
        caption="Archive by queue"
        rows={coverage}
        keyOf={(each) => each.queue}
        columns={[
          { title: "Queue", cell: (each) => <QueueLink name={each.queue} />, isWide: true },
          { title: "Messages", cell: (each) => count(each.messages), isNumber: true },
          { title: "Covered", cell: (each) => <div class="coverage" role="img" aria-label={`${moment(each.from)} to ${moment(each.to)}`}><div style={{ left: `${place(each.from)}%`, right: `${100 - place(each.to)}%`, background: "var(--plot-3)" }} /></div>, isWide: true },
        ]}
      />
    </Card>
  );
}
