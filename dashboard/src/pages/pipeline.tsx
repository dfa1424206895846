// One pipeline: how it is doing, how long its batches take, where it is, what it computes.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Card, Facts, PageHead, Stat, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { Payload } from "../parts/json";
import { Failure, Missing } from "../parts/notes";
import { ErrorText } from "../parts/trouble";
import { useLoad } from "../state/loading";
import { may } from "../state/session";
import { count, counted, millis, moment, rate, seconds } from "../words";
import { PipelineState } from "./pipelines";

type Pipeline = Schemas["PipelineDetail"];

export function PipelinePage({ name }: { name: string }) {
  const { data, error, reload } = useLoad((signal) => get("/api/v1/pipelines/{name}", { names: { name }, signal }), [name], { everySeconds: (pipeline) => (pipeline && !pipeline.isAlive ? 15 : 2) });
  if (error?.status === 404) return <Missing what="Pipeline">No pipeline is named <strong class="wrap">{name}</strong>. <a href="/pipelines">All pipelines</a></Missing>;
  return (
    <>
      <PageHead from={["Pipelines", "/pipelines"]} title={name} state={data && <PipelineState pipeline={data} />}>{data?.isAlive && !data.isStopping && <Stop name={name} reload={reload} />}</PageHead>
      <div class="stack">
        <Failure error={error} />
        {data && (
          <>
            {data.lastError && <Card title="Last error"><ErrorText error={data.lastError} isOpen={data.state === "failed"} /></Card>}
            <Figures pipeline={data} />
            <Batches batches={data.recent} />
            <div class="grid">
              <About pipeline={data} />
              <Card title="Position" note="by sink and source">{data.position ? <Payload value={data.position} /> : <p class="muted">No batch has ended yet.</p>}</Card>
              <Card title="Definition"><Payload value={data.definition} /></Card>
            </div>
          </>
        )}
      </div>
    </>
  );
}

function Figures({ pipeline }: { pipeline: Pipeline }) {
  return (
    <div class="stats">
      <Stat label="Behind" value={count(pipeline.lagMessages)} note="messages" />
      <Stat label="Time behind" value={seconds(pipeline.lagSeconds)} />
      <Stat label="Per second" value={pipeline.isAlive ? rate(pipeline.messagesPerSecond) : "–"} note="messages, in the last batch" />
      <Stat label="Last batch" value={millis(pipeline.lastBatch?.durationMs)} note={pipeline.lastBatch ? counted(pipeline.lastBatch.rows, "row") : undefined} />
      <Stat label="Batches" value={count(pipeline.batches)} note="of this run" />
      <Stat label="Messages" value={count(pipeline.messages)} note="read by this run" />
    </div>
  );
}

function Batches({ batches }: { batches: Pipeline["recent"] }) {
  if (!batches.length) return null;
  const longest = Math.max(1, ...batches.map((batch) => batch.durationMs));
  const spoken = batches.map((batch) => `${millis(batch.durationMs)} for ${counted(batch.rows, "row")}`).join("; ");
  return (
    <Card title="Durations of the last batches" note={`longest ${millis(longest)}`}>
      <div class="bars" role="img" aria-label={`Oldest first: ${spoken}`}>
        {batches.map((batch) => (
          <div key={`${batch.sink}/${batch.number}`} title={`${batch.sink} ${batch.number}, ${moment(batch.startedAt)}: ${counted(batch.rows, "row")} in ${millis(batch.durationMs)}`} style={{ height: `${(batch.durationMs / longest) * 100}%` }} />
        ))}
      </div>
    </Card>
  );
}

function About({ pipeline }: { pipeline: Pipeline }) {
  return (
    <Card title="Pipeline">
      <Facts
        facts={[
          ["State", <PipelineState pipeline={pipeline} />],
          ["Started", <When at={pipeline.startedAt} />],
          ["Last heartbeat", <When at={pipeline.reportedAt} isPast />],
          ["Ended", <When at={pipeline.endedAt} />],
          ["Run by", pipeline.runner],
          ["Spark", pipeline.master],
          ["Checkpoint", <span class="mono">{pipeline.checkpoint}</span>],
        ]}
      />
    </Card>
  );
}

function Stop({ name, reload }: { name: string; reload: () => void }) {
  const [isAsked, setAsked] = useState(false);
  if (!may("stopPipeline")) return null;
  return (
    <>
      <button class="danger" onClick={() => setAsked(true)}>Stop</button>
      {isAsked && (
        <Confirm title="Stop the pipeline" verb="Stop it" onClose={() => setAsked(false)} work={async () => {
          await act("stopPipeline", { names: { name } });
          reload();
          return "Stop requested.";
        }}>
          <p>It ends after the current batch. <code>skep pipeline run</code> continues where it stopped.</p>
        </Confirm>
      )}
    </>
  );
}
