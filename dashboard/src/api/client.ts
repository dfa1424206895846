// Requests to the broker, typed by its own API document.
//
// `schema.d.ts` is generated from the OpenAPI document of the checkout, so a route that changes its
// shape is noticed by the type check. Every failure is an `ApiError` with the words of the broker.
import { noteRead } from "../state/pace";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

type JsonOf<Responses> = Responses extends { 200: { content: { "application/json": infer Answer } } }
  ? Answer
  : never;
export type GetPath = {
  [Path in keyof paths]: paths[Path] extends { get: { responses: infer Responses } }
    ? JsonOf<Responses> extends never ? never : Path
    : never;
}[keyof paths];
export type Answer<Path extends GetPath> = paths[Path] extends { get: { responses: infer Responses } }
  ? JsonOf<Responses>
  : never;
export type Query<Path extends GetPath> = paths[Path] extends {
  get: { parameters: { query?: infer Given } };
}
  ? Given
  : never;

export type Names = Record<string, string>;
export type Values = Record<string, string | number | boolean | null | undefined>;

/** A request that did not end well; `status` 0 means that the broker was not reached. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

let token: string | null = null;
let onUnauthorized: () => void = () => undefined;

/** Say with which token to ask, and whom to tell when it is not accepted. */
export function authorize(newToken: string | null, whenRefused: () => void): void {
  token = newToken;
  onUnauthorized = whenRefused;
}

export function spellPath(path: string, names: Names = {}, values: Values = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(names[name] ?? ""));
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const spelled = query.toString();
  return spelled ? `${filled}?${spelled}` : filled;
}

export async function request(
  method: string,
  url: string,
  options: { body?: unknown; signal?: AbortSignal; headers?: Record<string, string> } = {},
): Promise<Response> {
  const headers: Record<string, string> = { ...options.headers };
  if (token) headers["authorization"] = `Bearer ${token}`;
  if (options.body !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: options.body === undefined ? null : JSON.stringify(options.body),
      signal: options.signal ?? null,
    });
  } catch (failure) {
    if (failure instanceof DOMException && failure.name === "AbortError") throw failure;
    throw new ApiError(0, "unreachable", "The broker cannot be reached.");
  }
  if (!response.ok) throw await refusalOf(response);
  return response;
}

async function refusalOf(response: Response): Promise<ApiError> {
  if (response.status === 401) onUnauthorized();
  const text = await response.text();
  try {
    const told = JSON.parse(text) as { error?: string; code?: string };
    return new ApiError(response.status, told.code ?? "error", told.error ?? text);
  } catch {
    return new ApiError(response.status, "error", text || response.statusText);
  }
}

/** Read from a route of the API document. */
export async function get<Path extends GetPath>(
  path: Path,
  given: { names?: Names; query?: Query<Path>; signal?: AbortSignal } = {},
): Promise<Answer<Path>> {
  const url = spellPath(path, given.names, given.query as Values);
  const began = performance.now();
  const response = await request("GET", url, given.signal ? { signal: given.signal } : {});
  noteRead(performance.now() - began);
  return (await response.json()) as Answer<Path>;
}
