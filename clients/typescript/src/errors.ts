/** Whether trying again can help, and how. */
export type Retry = "no" | "later" | "ask_first";

/**
 * Base of every error of this package. `code` never changes its meaning; `retry` says whether the same call can
 * succeed later (`later`), never (`no`), or only after finding out what became of the first try (`ask_first`).
 */
export class FelixError extends Error {
  override readonly name: string = "FelixError";
  constructor(
    readonly code: string,
    message: string,
    readonly retry: Retry = "no",
  ) {
    super(message);
  }
}

/** The gateway refused a request; `code` is the protocol's. Nothing was written, unless `retry` is `ask_first`. */
export class RefusedError extends FelixError {
  override readonly name: string = "RefusedError";
}

/** A limit refused the write. Nothing was written; after `retryAfterMs` the same write fits. */
export class RateLimitedError extends RefusedError {
  override readonly name: string = "RateLimitedError";
  constructor(
    message: string,
    readonly retryAfterMs: number,
  ) {
    super("rate_limited", message, "later");
  }
}

/** The position asked for is below the oldest record that is kept. */
export class TrimmedError extends RefusedError {
  override readonly name: string = "TrimmedError";
  constructor(
    message: string,
    readonly oldest: number,
  ) {
    super("trimmed", message);
  }
}

/**
 * The connection was cut after the request went out and before its answer came: it may have been done or not.
 * It is never sent again by this package.
 */
export class OutcomeUnknownError extends FelixError {
  override readonly name: string = "OutcomeUnknownError";
  constructor(readonly request: string) {
    super("outcome_unknown", `the connection was cut before ${request} was answered; it may have been done`, "ask_first");
  }
}

/** The client was closed or signed out before the request was sent. Nothing was written. */
export class ClosedError extends FelixError {
  override readonly name: string = "ClosedError";
  constructor(why = "the client is closed") {
    super("closed", why);
  }
}

/** The gateway did not accept who we are. Terminal until `setToken` and `connect`. */
export class UnauthorizedError extends FelixError {
  override readonly name: string = "UnauthorizedError";
  constructor(
    readonly reason: string,
    message: string,
  ) {
    super("unauthorized", message);
  }
}

/** What arrived is not the protocol. The connection is given up and opened again. */
export class ProtocolError extends FelixError {
  override readonly name: string = "ProtocolError";
  constructor(message: string) {
    super("protocol", message, "later");
  }
}

/** The caller used the package in a way that cannot work; nothing was sent. */
export class UsageError extends FelixError {
  override readonly name: string = "UsageError";
  constructor(message: string) {
    super("usage", message);
  }
}

/** The error that an aborted `signal` stands for: its own reason. */
export function abortReason(signal: AbortSignal): unknown {
  return signal.reason ?? new DOMException("aborted", "AbortError");
}

/** Calls back when `signal` aborts. The answer takes that back: a signal may live longer than what listens to it. */
export function onAbort(signal: AbortSignal | undefined, callback: (reason: unknown) => void): () => void {
  if (signal === undefined) return () => undefined;
  const told = (): void => callback(abortReason(signal));
  signal.addEventListener("abort", told, { once: true });
  return () => signal.removeEventListener("abort", told);
}

/** Runs code of the application. What it throws is thrown in a task of its own, where it stops nobody else. */
export function guarded(work: () => void): void {
  try {
    work();
  } catch (error) {
    queueMicrotask(() => { throw error; });
  }
}
