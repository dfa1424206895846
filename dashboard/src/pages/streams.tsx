// Stream queries and the size of their state.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get } from "../api/client";
import { Card, PageHead, QueueLink, Table, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { currentPage, Pager } from "../parts/fields";
import { Empty, Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { may } from "../state/session";
import { bytes, count } from "../words";

const LIMIT = 100;

export function Streams() {
  const page = currentPage();
  const [doomed, setDoomed] = useState<string | null>(null);
  const { data, error, reload } = useLoad((signal) => get("/streams/v1/queries", { query: { limit: LIMIT, offset: page * LIMIT }, signal }), [page], { everySeconds: 10 });
  return (
    <>
      <PageHead title="Streams" />
      <Failure error={error} />
      {data && (data.queries.length ? (
        <Card>
          <Table
            caption="Stream queries"
            rows={data.queries}
            keyOf={(query) => query.query_id}
            columns={[
              { title: "Query", cell: (query) => query.name, isWide: true },
              { title: "Source", cell: (query) => <QueueLink name={query.source_queue} /> },
              { title: "Sink", cell: (query) => query.sink_queue ? <QueueLink name={query.sink_queue} /> : "–" },
              { title: "Partitions", cell: (query) => count(query.partitions), isNumber: true },
              { title: "State rows", cell: (query) => count(query.state_rows), isNumber: true },
              { title: "State size", cell: (query) => bytes(query.state_bytes), isNumber: true },
              { title: "Changed", cell: (query) => <When at={query.updated_at} /> },
              { title: "", cell: (query) => may("deleteQuery") && <button class="danger" onClick={() => setDoomed(query.name)}>Delete</button> },
            ]}
          />
          <Pager total={data.total} limit={LIMIT} />
        </Card>
      ) : <Empty title="No stream queries"><p>Queries of the streams SDK appear here once they are registered.</p></Empty>)}
      {doomed !== null && (
        <Confirm title="Delete the query" verb="Delete" typed={doomed} onClose={() => setDoomed(null)} work={async () => {
          await act("deleteQuery", { names: { name: doomed } });
          reload();
          return "Deleted.";
        }}>
          <p>The query and all its state are deleted. If it runs again, it starts without state.</p>
        </Confirm>
      )}
    </>
  );
}
