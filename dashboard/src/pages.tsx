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

export type Page = { segment: string; title: string; view: ComponentType };

export const pages: Page[] = [
  { segment: "", title: "Overview", view: Overview },
  { segment: "queues", title: "Queues", view: Queues },
  { segment: "messages", title: "Messages", view: Messages },
  { segment: "groups", title: "Consumer groups", view: Groups },
  { segment: "dead-letters", title: "Dead letters", view: DeadLetters },
  { segment: "chains", title: "Chains and jobs", view: Chains },
  { segment: "pipelines", title: "Pipelines", view: Pipelines },
  { segment: "traces", title: "Traces", view: Traces },
  { segment: "streams", title: "Streams", view: Streams },
  { segment: "operations", title: "Operations", view: Operations },
  { segment: "system", title: "System", view: System },
  { segment: "settings", title: "Settings", view: Settings },
];
