/**
 * Base of every error of this package. `code` never changes its meaning; `retry` says whether the same call can
 * succeed later (`later`), never (`no`), or only after finding out what became of the first try (`ask_first`).
 */
export class FelixError extends Error {
    code;
    retry;
    name = "FelixError";
    constructor(code, message, retry = "no") {
        super(message);
        this.code = code;
        this.retry = retry;
    }
}
/** The gateway refused a request; `code` is the protocol's. Nothing was written, unless `retry` is `ask_first`. */
export class RefusedError extends FelixError {
    name = "RefusedError";
}
/** A limit refused the write. Nothing was written; after `retryAfterMs` the same write fits. */
export class RateLimitedError extends RefusedError {
    retryAfterMs;
    name = "RateLimitedError";
    constructor(message, retryAfterMs) {
        super("rate_limited", message, "later");
        this.retryAfterMs = retryAfterMs;
    }
}
/** The position asked for is below the oldest record that is kept. */
export class TrimmedError extends RefusedError {
    oldest;
    name = "TrimmedError";
    constructor(message, oldest) {
        super("trimmed", message);
        this.oldest = oldest;
    }
}
/**
 * The connection was cut after the request went out and before its answer came: it may have been done or not.
 * It is never sent again by this package.
 */
export class OutcomeUnknownError extends FelixError {
    request;
    name = "OutcomeUnknownError";
    constructor(request) {
        super("outcome_unknown", `the connection was cut before ${request} was answered; it may have been done`, "ask_first");
        this.request = request;
    }
}
/** The client was closed or signed out before the request was sent. Nothing was written. */
export class ClosedError extends FelixError {
    name = "ClosedError";
    constructor(why = "the client is closed") {
        super("closed", why);
    }
}
/** The gateway did not accept who we are. Terminal until `setToken` and `connect`. */
export class UnauthorizedError extends FelixError {
    reason;
    name = "UnauthorizedError";
    constructor(reason, message) {
        super("unauthorized", message);
        this.reason = reason;
    }
}
/** What arrived is not the protocol. The connection is given up and opened again. */
export class ProtocolError extends FelixError {
    name = "ProtocolError";
    constructor(message) {
        super("protocol", message, "later");
    }
}
/** The caller used the package in a way that cannot work; nothing was sent. */
export class UsageError extends FelixError {
    name = "UsageError";
    constructor(message) {
        super("usage", message);
    }
}
/** The error that an aborted `signal` stands for: its own reason. */
export function abortReason(signal) {
    return signal.reason ?? new DOMException("aborted", "AbortError");
}
/** Calls back when `signal` aborts. The answer takes that back: a signal may live longer than what listens to it. */
export function onAbort(signal, callback) {
    if (signal === undefined)
        return () => undefined;
    const told = () => callback(abortReason(signal));
    signal.addEventListener("abort", told, { once: true });
    return () => signal.removeEventListener("abort", told);
}
/** Runs code of the application. What it throws is thrown in a task of its own, where it stops nobody else. */
export function guarded(work) {
    try {
        work();
    }
    catch (error) {
        queueMicrotask(() => { throw error; });
    }
}
