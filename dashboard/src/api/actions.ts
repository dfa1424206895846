// Everything the dashboard can change, and the role that each change needs.
//
// A test compares this table with the API document, so what is offered is what is allowed.
import { request, spellPath, type Names, type Values } from "./client";
import type { paths } from "./schema";

export type Role = "read-only" | "read-write" | "admin";
type Spec = { method: "POST" | "PUT" | "DELETE"; path: string; needs: Role };

export const actions = {
  configureQueue: { method: "POST", path: "/api/v1/configure", needs: "read-write" },
  push: { method: "POST", path: "/api/v1/push", needs: "read-write" },
  pauseQueue: { method: "POST", path: "/api/v1/queues/{queue}/pause", needs: "read-write" },
  resumeQueue: { method: "POST", path: "/api/v1/queues/{queue}/resume", needs: "read-write" },
  clearQueue: { method: "DELETE", path: "/api/v1/queues/{queue}/clear", needs: "admin" },
  deleteQueue: { method: "DELETE", path: "/api/v1/resources/queues/{queue}", needs: "admin" },
  retryMessage: { method: "POST", path: "/api/v1/messages/{partition_id}/{transaction_id}/retry", needs: "read-write" },
  giveUpMessage: { method: "POST", path: "/api/v1/messages/{partition_id}/{transaction_id}/dlq", needs: "read-write" },
  deleteMessage: { method: "DELETE", path: "/api/v1/messages/{partition_id}/{transaction_id}", needs: "read-write" },
  seek: { method: "POST", path: "/api/v1/consumer-groups/{group}/queues/{queue}/seek", needs: "read-write" },
  pauseGroup: { method: "POST", path: "/api/v1/consumer-groups/{group}/queues/{queue}/pause", needs: "read-write" },
  resumeGroup: { method: "POST", path: "/api/v1/consumer-groups/{group}/queues/{queue}/resume", needs: "read-write" },
  deleteGroup: { method: "DELETE", path: "/api/v1/consumer-groups/{group}/queues/{queue}", needs: "admin" },
  redrive: { method: "POST", path: "/api/v1/dlq/redrive", needs: "read-write" },
  cancelRedrive: { method: "POST", path: "/api/v1/dlq/redrive/{redrive_id}/cancel", needs: "read-write" },
  replayLetter: { method: "POST", path: "/api/v1/dlq/{dlq_id}/replay", needs: "read-write" },
  deleteLetter: { method: "DELETE", path: "/api/v1/dlq/{dlq_id}", needs: "read-write" },
  deleteQuery: { method: "DELETE", path: "/streams/v1/queries/{name}", needs: "admin" },
  runRetention: { method: "POST", path: "/api/v1/retention/run", needs: "admin" },
  cancelOperation: { method: "DELETE", path: "/api/v1/operations/{operation_id}", needs: "read-write" },
  retryOperation: { method: "POST", path: "/api/v1/operations/{operation_id}/retry", needs: "read-write" },
  setPushMaintenance: { method: "POST", path: "/api/v1/system/maintenance", needs: "admin" },
  setPopMaintenance: { method: "POST", path: "/api/v1/system/maintenance/pop", needs: "admin" },
  cancelChain: { method: "POST", path: "/api/v1/chains/{chain_id}/cancel", needs: "read-write" },
  retryChain: { method: "POST", path: "/api/v1/chains/{chain_id}/retry", needs: "read-write" },
  cancelChains: { method: "POST", path: "/api/v1/chains/matching/cancel", needs: "read-write" },
  retryChains: { method: "POST", path: "/api/v1/chains/matching/retry", needs: "read-write" },
  deleteChain: { method: "DELETE", path: "/api/v1/chains/{chain_id}", needs: "admin" },
  triggerJob: { method: "POST", path: "/api/v1/jobs/{job_id}/trigger", needs: "read-write" },
  pauseJobType: { method: "POST", path: "/api/v1/jobs/types/{name}/pause", needs: "admin" },
  resumeJobType: { method: "POST", path: "/api/v1/jobs/types/{name}/resume", needs: "admin" },
  pauseSchedule: { method: "POST", path: "/api/v1/schedules/{name}/pause", needs: "admin" },
  resumeSchedule: { method: "POST", path: "/api/v1/schedules/{name}/resume", needs: "admin" },
  deleteSchedule: { method: "DELETE", path: "/api/v1/schedules/{name}", needs: "admin" },
  startReplay: { method: "POST", path: "/api/v1/replays", needs: "read-write" },
  stopPipeline: { method: "POST", path: "/api/v1/pipelines/{name}/stop", needs: "admin" },
  deliverScheduled: { method: "POST", path: "/api/v1/scheduled/{scheduled_id}/deliver", needs: "read-write" },
} as const satisfies Record<string, Spec>;

export type ActionName = keyof typeof actions;

type Operation<Name extends ActionName> = (typeof actions)[Name] extends {
  method: infer Method extends string;
  path: infer Path extends keyof paths;
}
  ? paths[Path][Lowercase<Method> & keyof paths[Path]]
  : never;
type JsonContent<T> = T extends { content: { "application/json": infer Json } } ? Json : unknown;
export type Outcome<Name extends ActionName> = Operation<Name> extends {
  responses: infer Responses;
}
  ? JsonContent<Responses[keyof Responses & (200 | 201 | 202)]>
  : unknown;
type Body<Name extends ActionName> = Operation<Name> extends { requestBody?: infer Wanted }
  ? JsonContent<NonNullable<Wanted>>
  : undefined;

export async function act<Name extends ActionName>(
  name: Name,
  given: { names?: Names; query?: Values; body?: Partial<Body<Name>> } = {},
): Promise<Outcome<Name>> {
  const { method, path } = actions[name];
  const options = given.body === undefined ? {} : { body: given.body };
  const response = await request(method, spellPath(path, given.names, given.query), options);
  return (await response.json()) as Outcome<Name>;
}
