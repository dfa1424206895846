// Retry or cancel many chains at once: how many that is first, then page by page.
import { useState } from "preact/hooks";
import { act, type Outcome } from "../api/actions";
import { Confirm } from "../parts/dialog";
import { Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { may } from "../state/session";
import { count, counted } from "../words";

export type ChainFilter = { state: string | null; type: string | null; key: string | null };
type Deed = "retryChains" | "cancelChains";

const DEEDS = {
  retryChains: { title: "Retry chains", verb: "Retry", done: "Retried", which: "failed or cancelled", ends: ["open", "completed"], effect: "Each continues with the job at which it ended, with all attempts of that job." },
  cancelChains: { title: "Cancel chains", verb: "Cancel", done: "Cancelled", which: "open", ends: ["completed", "failed", "cancelled"], effect: "They start no more jobs; running jobs are asked to stop." },
} as const;

export function BulkActions({ filter, chosen, onDone }: { filter: ChainFilter; chosen: ReadonlySet<string>; onDone: () => void }) {
  const [asked, setAsked] = useState<Deed | null>(null);
  const offered = (Object.keys(DEEDS) as Deed[]).filter((deed) => may(deed) && !(DEEDS[deed].ends as readonly string[]).includes(filter.state ?? ""));
  return (
    <>
      {offered.map((deed) => <button key={deed} onClick={() => setAsked(deed)}>{DEEDS[deed].verb} {chosen.size ? `the chosen (${chosen.size})` : "all that match"}</button>)}
      {asked && <BulkDialog deed={asked} filter={filter} chosen={chosen} onClose={() => setAsked(null)} onDone={onDone} />}
    </>
  );
}

function BulkDialog({ deed, filter, chosen, onClose, onDone }: { deed: Deed; filter: ChainFilter; chosen: ReadonlySet<string>; onClose: () => void; onDone: () => void }) {
  const { title, verb, done, which, effect } = DEEDS[deed];
  const wanted = chosen.size ? { ids: [...chosen] } : { ...filter, all: true };
  const preview = useLoad(async () => (await act(deed, { body: { ...wanted, dryRun: true } as never })).matches, []);
  const number = preview.data && `${preview.data.isExact ? "" : "at least "}${count(preview.data.count)}`;
  const work = async () => {
    let after: string | null = null;
    let [changed, refused] = [0, 0];
    do {
      const answer: Outcome<Deed> = await act(deed, { body: { ...wanted, after } as never });
      after = answer.after ?? null;
      changed += answer.done;
      refused += Object.values(answer.refused ?? {}).reduce((sum, each) => sum + each, 0);
    } while (after);
    onDone();
    return `${done} ${counted(changed, "chain")}${refused ? `; ${count(refused)} could not be` : ""}.`;
  };
  return (
    <Confirm title={title} verb={`${verb} ${number ?? "them"}`} isReady={Boolean(preview.data?.count)} isSafe={deed === "retryChains"} onClose={onClose} work={work}>
      <Failure error={preview.error} />
      <p role="status">{number ? <><strong>{number}</strong> {which} chains {chosen.size ? "are among the chosen" : "match the filters"}.</> : "Counting."}</p>
      <p>{effect}</p>
    </Confirm>
  );
}
