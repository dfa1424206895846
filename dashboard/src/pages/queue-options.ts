// What the options of a queue are called here, by topic. The type check sees to it that none of
// those that the broker has is missing.
import type { Schemas } from "../api/client";

export type OptionName = keyof Schemas["QueueOptions"];
export type OptionField = {
  name: OptionName;
  title: string;
  hint: string;
  kind: "number" | "switch" | "choice" | "json";
  choices?: string[];
};

type Wording = Omit<OptionField, "name">;
const number = (title: string, hint: string): Wording => ({ title, hint, kind: "number" });
const toggle = (title: string, hint: string): Wording => ({ title, hint, kind: "switch" });
const choice = (title: string, hint: string, choices: string[]): Wording => ({ title, hint, kind: "choice", choices });

const wordings: Record<OptionName, Wording> = {
  leaseTime: number("Lease", "Seconds until unacknowledged messages are redelivered."),
  retryLimit: number("Retries", "Failures after which a message becomes a dead letter."),
  retryDelay: number("Retry delay", "Milliseconds after the first failure; doubles each time."),
  retryDelayMax: number("Maximum retry delay", "Upper limit in milliseconds."),
  maxDeliveries: number("Deliveries without outcome", "Deliveries after which a message becomes a dead letter. 0: no limit."),
  ackMode: choice("Acknowledgments", "Cumulative: completing a message completes those before it.", ["cumulative", "individual"]),
  priority: number("Priority", "Higher goes first when a consumer polls a namespace or task."),
  delayedProcessing: number("Delay", "Seconds that every message waits before its first delivery."),
  windowBuffer: number("Quiet time", "Seconds that a partition must be quiet before it is delivered."),
  ttl: number("Expire after (seconds)", "Older messages are not delivered. 0: never."),
  deadLetterQueue: toggle("Keep dead letters", "Failed messages are kept as dead letters."),
  dlqAfterMaxRetries: toggle("Keep after the last retry", "Messages without retries left are kept as dead letters."),
  retentionEnabled: toggle("Retention", "Whether the two retention limits apply."),
  retentionSeconds: number("Keep at most", "Seconds after which messages may be deleted, read or not. 0: never."),
  completedRetentionSeconds: number("Keep read messages", "Seconds after which messages that every group has read may be deleted."),
  maxWaitTimeSeconds: number("Evict unread after", "Seconds after which an unread message may be evicted. 0: never."),
  archiveAfterSeconds: number("Archive after", "Seconds after which messages may be copied to the archive. 0: never."),
  archiveBeforeDelete: toggle("Archive before deleting", "Retention deletes only what is in the archive."),
  lakeTable: choice("Table of the archive", "Raw: the table of all queues. Typed: a table of its own, with a column for each property of the JSON Schema.", ["raw", "typed"]),
  maxSize: number("Maximum size", "Messages that may wait for the slowest group. 0: no limit."),
  overflow: choice("When full", "Reject answers 429; drop_oldest deletes the oldest.", ["reject", "drop_oldest"]),
  deferral: choice("Under overload", "Which requests are answered with 202 and wait in the operation queue.", ["asked", "always", "never"]),
  dedupWindowSeconds: number("Duplicate window", "Seconds in which a repeated transaction id is a duplicate. 0: no check."),
  encryptionEnabled: toggle("Encryption", "Payloads are encrypted at rest. Requires a key in the broker."),
  strict: toggle("Strict", "Items with unknown fields or without a payload are refused."),
  jsonSchema: { title: "JSON Schema", hint: "Every payload must match it. Empty: any payload.", kind: "json" },
};

const topics: [string, OptionName[]][] = [
  ["Delivery", ["leaseTime", "ackMode", "priority", "delayedProcessing", "windowBuffer", "ttl"]],
  ["Failures", ["retryLimit", "retryDelay", "retryDelayMax", "maxDeliveries", "deadLetterQueue", "dlqAfterMaxRetries"]],
  ["Retention", ["retentionEnabled", "retentionSeconds", "completedRetentionSeconds", "maxWaitTimeSeconds", "archiveAfterSeconds", "archiveBeforeDelete", "lakeTable"]],
  ["Admission", ["maxSize", "overflow", "deferral", "dedupWindowSeconds", "encryptionEnabled", "strict", "jsonSchema"]],
];

const placed = new Set(topics.flatMap(([, names]) => names));
const others = (Object.keys(wordings) as OptionName[]).filter((name) => !placed.has(name));

export const optionGroups: { title: string; fields: OptionField[] }[] = [...topics, ["Further", others] as [string, OptionName[]]]
  .filter(([, names]) => names.length)
  .map(([title, names]) => ({ title, fields: names.map((name) => ({ name, ...wordings[name] })) }));
