/** Whether trying again can help, and how. */
export type Retry = "no" | "later" | "ask_first";
/**
 * Base of every error of this package. `code` never changes its meaning; `retry` says whether the same call can
 * succeed later (`later`), never (`no`), or only after finding out what became of the first try (`ask_first`).
 */
export declare class FelixError extends Error {
    readonly code: string;
    readonly retry: Retry;
    readonly name: string;
    constructor(code: string, message: string, retry?: Retry);
}
/** The gateway refused a request; `code` is the protocol's. Nothing was written, unless `retry` is `ask_first`. */
export declare class RefusedError extends FelixError {
    readonly name: string;
}
/** A limit refused the write. Nothing was written; after `retryAfterMs` the same write fits. */
export declare class RateLimitedError extends RefusedError {
    readonly retryAfterMs: number;
    readonly name: string;
    constructor(message: string, retryAfterMs: number);
}
/** The position asked for is below the oldest record that is kept. */
export declare class TrimmedError extends RefusedError {
    readonly oldest: number;
    readonly name: string;
    constructor(message: string, oldest: number);
}
/**
 * The connection was cut after the request went out and before its answer came: it may have been done or not.
 * It is never sent again by this package.
 */
export declare class OutcomeUnknownError extends FelixError {
    readonly request: string;
    readonly name: string;
    constructor(request: string);
}
/** The client was closed or signed out before the request was sent. Nothing was written. */
export declare class ClosedError extends FelixError {
    readonly name: string;
    constructor(why?: string);
}
/** The gateway did not accept who we are. Terminal until `setToken` and `connect`. */
export declare class UnauthorizedError extends FelixError {
    readonly reason: string;
    readonly name: string;
    constructor(reason: string, message: string);
}
/** What arrived is not the protocol. The connection is given up and opened again. */
export declare class ProtocolError extends FelixError {
    readonly name: string;
    constructor(message: string);
}
/** The caller used the package in a way that cannot work; nothing was sent. */
export declare class UsageError extends FelixError {
    readonly name: string;
    constructor(message: string);
}
/** The error that an aborted `signal` stands for: its own reason. */
export declare function abortReason(signal: AbortSignal): unknown;
/** Calls back when `signal` aborts. The answer takes that back: a signal may live longer than what listens to it. */
export declare function onAbort(signal: AbortSignal | undefined, callback: (reason: unknown) => void): () => void;
/** Runs code of the application. What it throws is thrown in a task of its own, where it stops nobody else. */
export declare function guarded(work: () => void): void;
