// The pages by the first segment of their address. The broker knows the same list (site.py).
import type { ComponentType } from "preact";
import { Chains } from "./pages/chains";
import { DeadLetters } from "./pages/dead-letters";
import { Groups } from "./pages/groups";
import { Messages } from "./pages/messages";
import { Operations } from "./pages/operations";
import { Overview } from "./pages/overview";
import { Pipelines } from "./pages/pipelines";
import { Queues } from "./pages/queues";
import { Settings } from "./pages/settings";
import { Streams } from "./pages/streams";
import { System } from "./pages/system";
import { Traces } from "./pages/traces";

export type Page = { segment: string; title: string; section: string; view: ComponentType; depth: number };

export const sections = ["", "Messages", "Jobs", "Broker"];

/** `depth` is how many segments may follow: what lies deeper is no page. */
export const pages: Page[] = [
  { segment: "", title: "Overview", section: "", view: Overview, depth: 0 },
  { segment: "queues", title: "Queues", section: "Messages", view: Queues, depth: 1 },
  { segment: "messages", title: "Messages", section: "Messages", view: Messages, depth: 2 },
  { segment: "groups", title: "Consumer groups", section: "Messages", view: Groups, depth: 2 },
  { segment: "dead-letters", title: "Dead letters", section: "Messages", view: DeadLetters, depth: 0 },
  { segment: "chains", title: "Chains and jobs", section: "Jobs", view: Chains, depth: 1 },
  { segment: "pipelines", title: "Pipelines", section: "Jobs", view: Pipelines, depth: 1 },
  { segment: "traces", title: "Traces", section: "Messages", view: Traces, depth: 1 },
  { segment: "streams", title: "Streams", section: "Jobs", view: Streams, depth: 0 },
  { segment: "operations", title: "Operations", section: "Broker", view: Operations, depth: 0 },
  { segment: "system", title: "System", section: "Broker", view: System, depth: 0 },
  { segment: "settings", title: "Settings", section: "Broker", view: Settings, depth: 0 },
];
