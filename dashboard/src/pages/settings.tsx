// The settings in force, and where each comes from.
import { get } from "../api/client";
import { Badge, Card, PageHead, Prose, Table } from "../parts";
import { TextFilter } from "../parts/fields";
import { Empty, Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { place } from "../state/place";
import { hasRole } from "../state/session";
import { counted } from "../words";

export function Settings() {
  const search = place.value.query.get("search")?.toLowerCase() ?? "";
  const isAllowed = hasRole("admin");
  const { data, error } = useLoad(async (signal) => (isAllowed ? get("/api/v1/system/settings", { signal }) : null), [isAllowed]);
  if (!isAllowed) {
    return (
      <>
        <PageHead title="Settings" />
        <Empty title="For administrators"><p>Your role may not see the broker settings.</p></Empty>
      </>
    );
  }
  const shown = data?.settings.filter((setting) => setting.name.includes(search)) ?? [];
  return (
    <>
      <PageHead title="Settings" />
      <div class="stack">
        <div class="filters"><TextFilter label="Search" name="search" placeholder="Part of a name" /></div>
        <Failure error={error} />
        {data && (
          <Card note="of the instance that answers; passwords are hidden" title={counted(shown.length, "setting")}>
            <Table
              caption="Settings"
              rows={shown}
              keyOf={(setting) => setting.name}
              columns={[
                { title: "Setting", cell: (setting) => <><code>{setting.name}</code>{setting.origin !== "default" && <div><Badge word={setting.origin} tone="good" /></div>}</> },
                { title: "Value", cell: (setting) => setting.value === null ? <span class="muted">not set</span> : <span class="mono wrap">{setting.value}</span>, isWide: true },
                { title: "Meaning", cell: (setting) => <span class="small"><Prose text={setting.description} /></span>, isWide: true },
              ]}
            />
          </Card>
        )}
      </div>
    </>
  );
}
