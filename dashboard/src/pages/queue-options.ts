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
  leaseTime: number("Lease", "Seconds that a consumer holds what it popped."),
  retryLimit: number("Retries", "Times that a message may fail before it becomes a dead letter."),
  retryDelay: number("Retry delay", "Milliseconds after the first failure; doubles."),
  retryDelayMax: number("Longest retry delay", "Milliseconds that the doubling does not exceed."),
  maxDeliveries: number("Deliveries without outcome", "After so many it becomes a dead letter. 0: any number."),
  ackMode: choice("Acknowledgments", "Cumulative: completing a message completes those before it.", ["cumulative", "individual"]),
  priority: number("Priority", "Higher goes first in polls of a namespace or task."),
  delayedProcessing: number("Delay", "Seconds that every message waits before its first delivery."),
  windowBuffer: number("Quiet time", "Seconds that a partition must be quiet before it is delivered."),
  ttl: number("Time to live", "Seconds after which a message is not delivered any more. 0: never."),
  deadLetterQueue: toggle("Keep dead letters", "Messages that were given up are kept."),
  dlqAfterMaxRetries: toggle("Keep after the last retry", "Messages whose retries are used up are kept."),
  retentionEnabled: toggle("Retention", "Whether the two retentions are in force."),
  retentionSeconds: number("Keep at most", "Seconds after which messages may be deleted, read or not. 0: never."),
  completedRetentionSeconds: number("Keep read messages", "Seconds after which messages every group has read may be deleted."),
  maxWaitTimeSeconds: number("Evict unread after", "Seconds after which a message that nobody took may be evicted. 0: never."),
  archiveAfterSeconds: number("Archive after", "Seconds after which messages may be copied to the archive. 0: never."),
  archiveBeforeDelete: toggle("Archive before deleting", "Retention deletes only what is in the archive."),
  maxSize: number("Largest size", "Messages that may wait for the slowest group. 0: any number."),
  overflow: choice("When full", "Reject answers 429; drop_oldest deletes the oldest.", ["reject", "drop_oldest"]),
  deferral: choice("Under overload", "Who gets a 202 and waits in the operation queue.", ["asked", "always", "never"]),
  dedupWindowSeconds: number("Duplicate window", "Seconds in which a transaction id is stored once. 0: no check."),
  encryptionEnabled: toggle("Encryption", "Payloads are encrypted at rest. Needs a key in the broker."),
  jsonSchema: { title: "JSON Schema", hint: "Every payload must fulfil it. Empty: any payload.", kind: "json" },
};

const topics: [string, OptionName[]][] = [
  ["Delivery", ["leaseTime", "ackMode", "priority", "delayedProcessing", "windowBuffer", "ttl"]],
  ["Failures", ["retryLimit", "retryDelay", "retryDelayMax", "maxDeliveries", "deadLetterQueue", "dlqAfterMaxRetries"]],
  ["Retention", ["retentionEnabled", "retentionSeconds", "completedRetentionSeconds", "maxWaitTimeSeconds", "archiveAfterSeconds", "archiveBeforeDelete"]],
  ["What is accepted", ["maxSize", "overflow", "deferral", "dedupWindowSeconds", "encryptionEnabled", "jsonSchema"]],
];

const placed = new Set(topics.flatMap(([, names]) => names));
const others = (Object.keys(wordings) as OptionName[]).filter((name) => !placed.has(name));

export const optionGroups: { title: string; fields: OptionField[] }[] = [...topics, ["Further", others] as [string, OptionName[]]]
  .filter(([, names]) => names.length)
  .map(([title, names]) => ({ title, fields: names.map((name) => ({ name, ...wordings[name] })) }));
