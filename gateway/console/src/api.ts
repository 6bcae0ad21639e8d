/** Calls to `/console/api` with the caller's own session or token. */

import type { Refusal } from "./types.js";

const BASE = "/console/api";
/** A token that somebody pasted lives in this page's memory and nowhere else. */
let token: string | null = null;

export function useToken(next: string | null): void {
  token = next;
}

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly body: Refusal,
  ) {
    super(body.message);
    this.name = "Refused";
  }

  get code(): string {
    return this.body.code;
  }
}

/** What somebody can do about a code. A code that is not here speaks for itself. */
const ADVICE: Readonly<Record<string, string>> = {
  signed_out: "Sign in again; this page keeps your place.",
  unauthenticated: "Sign in again; this page keeps your place.",
  forbidden: "Ask whoever manages your roles; the Access page shows what you hold and explains why not.",
  not_found: "It may have been removed, or never existed in this namespace. Check the namespace at the top left.",
  read_only: "The gateway runs with console_writes off. Use felixctl, or ask an operator.",
  version_mismatch: "Somebody wrote in between. Load the entry again, look, and repeat your change.",
  offset_too_old: "Retention removed it. Begin at the oldest offset instead.",
  offset_in_future: "Nothing is there yet. Begin at the end, or tail live.",
  too_many_requests: "Too many requests of yours are running. Close other tabs of this console or wait a moment.",
  unreachable: "No broker answered. The page tries again by itself.",
  unavailable: "The server cannot answer at the moment. The page tries again by itself.",
  timeout: "No answer came in time. Look at the state before repeating a change.",
  outcome_unknown: "It may have happened. Look at the state before repeating it.",
  offline: "The gateway cannot be reached. The page tries again by itself.",
  invalid: "Correct what the message names.",
  quota_exceeded: "A quota of the tenant, namespace or principal is used up.",
};

export function advice(body: Refusal): string {
  const known = ADVICE[body.code];
  if (known !== undefined) return known;
  if (body.retry === "look_first") return "It may have happened. Look at the state before repeating it.";
  if (body.retry === "now" || body.retry === "later") return "Trying again may help.";
  return "Trying again will not help.";
}

export type Query = Record<string, string | number | boolean | null | undefined>;

function address(path: readonly (string | number)[], query: Query): string {
  const parts = path.map((part) => encodeURIComponent(String(part))).join("/");
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return `${BASE}/${parts}${text === "" ? "" : `?${text}`}`;
}

function headers(extra: Record<string, string>): Headers {
  const all = new Headers({ accept: "application/json", ...extra });
  if (token !== null) all.set("authorization", `Bearer ${token}`);
  return all;
}

async function refusal(response: Response): Promise<Refused> {
  const request_id = response.headers.get("x-request-id") ?? "–";
  try {
    const body = (await response.json()) as Partial<Refusal>;
    if (typeof body.code === "string" && typeof body.message === "string") {
      return new Refused(response.status, { retry: "never", request_id, ...body } as Refusal);
    }
  } catch {
    // An answer that is no JSON came from something between us and the gateway.
  }
  const message = `the answer has status ${response.status} and is not the console's`;
  return new Refused(response.status, { code: "unavailable", message, retry: "later", request_id });
}

async function send(method: string, url: string, body: unknown, signal: AbortSignal | undefined): Promise<Response> {
  const extra: Record<string, string> = method === "GET" ? {} : { "x-felix-console": "1" };
  if (body !== undefined) extra["content-type"] = "application/json";
  const init: RequestInit = { method, headers: headers(extra), credentials: "same-origin", cache: "no-store", redirect: "error" };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (signal !== undefined) init.signal = signal;
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch (error) {
    if (signal?.aborted === true) throw error;
    throw new Refused(0, { code: "offline", message: "the gateway cannot be reached", retry: "later", request_id: "–" });
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

export async function get<T>(path: readonly (string | number)[], query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await (await send("GET", address(path, query), undefined, signal)).json()) as T;
}

export async function post<T>(path: readonly (string | number)[], body: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await send("POST", address(path, {}), body, signal)).json()) as T;
}

export async function put<T>(path: readonly (string | number)[], body: unknown): Promise<T> {
  return (await (await send("PUT", address(path, {}), body, undefined)).json()) as T;
}

export async function remove<T>(path: readonly (string | number)[], query: Query): Promise<T> {
  return (await (await send("DELETE", address(path, query), undefined, undefined)).json()) as T;
}

/** An event of a server-sent stream. */
export interface Told {
  event: string;
  id: string;
  data: string;
}

/** Longest line that is kept while its end has not come. */
const LINE_MAX = 16 * 1024 * 1024;
const AGAIN_MS = [500, 1000, 2000, 4000, 8000] as const;

/**
 * Follows a stream of events until `signal` aborts, and takes it up again where it was cut off. `fetch` instead of
 * `EventSource`, because a pasted token goes into a header.
 */
export async function follow(
  path: readonly (string | number)[],
  query: Query,
  signal: AbortSignal,
  tell: (told: Told) => void,
  state: (state: "live" | "lost", detail: string) => void,
): Promise<void> {
  let last = "";
  let tries = 0;
  while (!signal.aborted) {
    try {
      const extra: Record<string, string> = { accept: "text/event-stream" };
      if (last !== "") extra["last-event-id"] = last;
      const init: RequestInit = { headers: headers(extra), credentials: "same-origin", cache: "no-store", signal };
      const response = await fetch(address(path, query), init);
      if (!response.ok) throw await refusal(response);
      state("live", "");
      const ended = await read(response, (told) => {
        tries = 0;
        if (told.id !== "") last = told.id;
        tell(told);
      });
      if (ended) return;
      state("lost", "the gateway ended the stream");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.body.retry === "never") throw error;
      state("lost", error instanceof Error ? error.message : "lost");
    }
    await pause(AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)] ?? 8000, signal);
    tries += 1;
  }
}

/** Reads events until the body ends. True when the server said that nothing follows. */
async function read(response: Response, tell: (told: Told) => void): Promise<boolean> {
  const reader = response.body?.getReader();
  if (reader === undefined) return false;
  const decoder = new TextDecoder();
  let rest = "";
  let event = "message";
  let id = "";
  let data: string[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return false;
    rest += decoder.decode(value, { stream: true });
    if (rest.length > LINE_MAX) throw new Error("an event is too long");
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0) tell({ event, id, data: data.join("\n") });
        if (event === "end") return true;
        event = "message";
        id = "";
        data = [];
      } else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      else if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("id:")) id = line.slice(3).trim();
    }
  }
}

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}
