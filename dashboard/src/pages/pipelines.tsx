// Spark: pipelines and readers with how far they are behind, and what the archive holds.
import { get, type Schemas } from "../api/client";
import { Badge, Card, PageHead, QueueLink, Table, Tabs, When } from "../parts";
import { currentPage, Pager } from "../parts/fields";
import { Empty, Failure } from "../parts/notes";
import { ErrorLine } from "../parts/trouble";
import { useLoad } from "../state/loading";
import { hrefTo, place } from "../state/place";
import { count, counted, millis, rate, seconds } from "../words";
import { Archive } from "./archive";
import { PipelinePage } from "./pipeline";

type Pipeline = Schemas["PipelineSummary"];
const LIMIT = 100;

export function Pipelines() {
  const name = place.value.segments[1];
  if (name !== undefined) return <PipelinePage key={name} name={name} />;
  const tab = place.value.query.get("tab") ?? "pipelines";
  return (
    <>
      <PageHead title="Pipelines" />
      <div class="stack">
        <Tabs name="Parts of the pipelines" current={tab} tabs={[["pipelines", "Pipelines and readers"], ["archive", "Archive and replay"]]} />
        {tab === "archive" ? <Archive /> : <Running />}
      </div>
    </>
  );
}

function Running() {
  const page = currentPage();
  const { data, error } = useLoad(
    async (signal) => {
      const [readers, pipelines] = await Promise.all([
        get("/api/v1/readers", { query: { limit: 1000 }, signal }),
        get("/api/v1/pipelines", { query: { limit: LIMIT, offset: page * LIMIT }, signal }),
      ]);
      return { readers: readers.readers, pipelines };
    },
    [page],
    { everySeconds: 5 },
  );
  return (
    <>
      <Failure error={error} />
      {data && !data.readers.length && !data.pipelines.total && (
        <Empty title="Nothing reads with Spark yet">
          <p>A pipeline appears here when it is run, and a stream of your own when it reads under a name:</p>
          <pre tabIndex={0}>{'skep pipeline run revenue.yaml\n\nspark.readStream.format("skep").option("queue", "orders").option("consumerGroup", "lake")'}</pre>
        </Empty>
      )}
      {data && data.pipelines.total > 0 && (
        <Card title="Pipelines">
          <PipelineTable pipelines={data.pipelines.pipelines} />
          <Pager total={data.pipelines.total} limit={LIMIT} />
        </Card>
      )}
      {data && data.readers.length > 0 && <Card title="Readers" note="how far behind the head of their queues"><ReaderTable readers={data.readers} /></Card>}
    </>
  );
}

export function PipelineState({ pipeline }: { pipeline: Pipeline }) {
  const isSilent = !pipeline.isAlive && (pipeline.state === "running" || pipeline.state === "starting");
  if (isSilent) return <Badge word="silent" tone="bad" />;
  return <Badge word={pipeline.isStopping ? "stopping" : pipeline.state} />;
}

function PipelineTable({ pipelines }: { pipelines: Pipeline[] }) {
  return (
    <Table
      caption="Pipelines"
      rows={pipelines}
      keyOf={(pipeline) => pipeline.name}
      columns={[
        { title: "Pipeline", cell: (pipeline) => <><a class="wrap" href={hrefTo(["pipelines", pipeline.name])}>{pipeline.name}</a>{pipeline.lastError && <div class="tone-bad small"><ErrorLine error={pipeline.lastError} /></div>}</>, isWide: true },
        { title: "State", cell: (pipeline) => <PipelineState pipeline={pipeline} /> },
        { title: "Behind", cell: (pipeline) => count(pipeline.lagMessages), isNumber: true },
        { title: "Time behind", cell: (pipeline) => seconds(pipeline.lagSeconds), isNumber: true },
        { title: "Last batch", cell: (pipeline) => pipeline.lastBatch ? `${counted(pipeline.lastBatch.rows, "row")}, ${millis(pipeline.lastBatch.durationMs)}` : "–", isNumber: true },
        { title: "Per second", cell: (pipeline) => (pipeline.isAlive ? rate(pipeline.messagesPerSecond) : "–"), isNumber: true },
        { title: "Read", cell: (pipeline) => count(pipeline.messages), isNumber: true },
        { title: "Last heartbeat", cell: (pipeline) => <When at={pipeline.reportedAt} isPast /> },
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
