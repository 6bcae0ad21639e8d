/**
 * Requests that wait, are under way, or were answered. They go out in the order in which they were asked for; what is
 * under way is bounded, what waits is bounded too, and a cut tells the truth about each: a write that went out may have
 * been done, a read is asked again.
 */
import { ClosedError, FelixError, OutcomeUnknownError, RateLimitedError, RefusedError, TrimmedError, abortReason, onAbort } from "./errors.js";
/** Requests sent and not answered. */
const IN_FLIGHT_MAX = 128;
/** Requests not sent yet, and their bytes. */
const WAITING_MAX = 10_000;
const WAITING_BYTES_MAX = 16 * 1024 * 1024;
export class Requests {
    wire;
    #nextId = 1;
    #waiting = [];
    #waitingBytes = 0;
    #sent = new Map();
    #closed = false;
    constructor(wire) {
        this.wire = wire;
    }
    /** Sent and not answered. */
    get inFlight() {
        return this.#sent.size;
    }
    /** Not sent yet. */
    get waiting() {
        return this.#waiting.length;
    }
    /** Resolves with the answer. An abort takes back what was not sent; what was sent is `OutcomeUnknownError` or the reason. */
    ask(request, signal) {
        if (signal?.aborted === true)
            return Promise.reject(abortReason(signal));
        if (this.#closed)
            return Promise.reject(new ClosedError());
        if (this.#waiting.length >= WAITING_MAX || this.#waitingBytes + request.bytes > WAITING_BYTES_MAX) {
            return Promise.reject(new FelixError("overloaded", `${this.#waiting.length} requests of ${this.#waitingBytes} bytes wait already`, "later"));
        }
        return new Promise((resolve, reject) => {
            const pending = {
                request,
                resolve: (value) => { off(); resolve(value); },
                reject: (error) => { off(); reject(error instanceof Error ? error : new Error(String(error))); },
            };
            const off = onAbort(signal, (reason) => {
                const unsent = this.#takeBack(pending);
                reject(unsent || request.read ? reason : new OutcomeUnknownError(request.name));
            });
            this.#waiting.push(pending);
            this.#waitingBytes += request.bytes;
            this.pump();
        });
    }
    /** Sends what may be sent. */
    pump() {
        while (this.#waiting.length > 0 && this.#sent.size < IN_FLIGHT_MAX && this.wire.ready()) {
            const pending = this.#takeWaiting(0);
            if (pending === undefined)
                return;
            const id = this.#nextId++;
            try {
                const frame = pending.request.frame(id);
                if (pending.request.answered)
                    this.#sent.set(id, pending);
                this.wire.send(frame);
                if (!pending.request.answered)
                    pending.resolve(pending.request.take(null));
            }
            catch (error) {
                this.#sent.delete(id);
                pending.reject(error);
            }
        }
    }
    answer(answer) {
        const pending = this.#sent.get(answer.id);
        if (pending === undefined)
            return;
        this.#sent.delete(answer.id);
        try {
            pending.resolve(pending.request.take(answer));
        }
        catch (error) {
            pending.reject(error);
        }
        this.pump();
    }
    /** Whether the refusal was of a request of ours. */
    refuse(refusal) {
        const pending = refusal.id === null ? undefined : this.#sent.get(refusal.id);
        if (pending === undefined)
            return false;
        this.#sent.delete(refusal.id);
        pending.reject(refusalError(refusal));
        this.pump();
        return true;
    }
    cut() {
        const sent = [...this.#sent.values()];
        this.#sent.clear();
        const again = sent.filter((pending) => pending.request.read);
        this.#waiting.unshift(...again);
        for (const pending of again)
            this.#waitingBytes += pending.request.bytes;
        for (const pending of sent)
            if (!pending.request.read)
                pending.reject(new OutcomeUnknownError(pending.request.name));
    }
    /** Ends everything that waits. */
    fail(error) {
        const waiting = this.#waiting;
        this.#waiting = [];
        this.#waitingBytes = 0;
        for (const pending of waiting)
            pending.reject(error);
    }
    /** Requests are taken again after `forget`. */
    open() {
        this.#closed = false;
    }
    /** Ends what waits and takes nothing more: what is asked for now would wait for ever. */
    forget() {
        this.#closed = true;
        this.cut();
        this.fail(new ClosedError());
    }
    /** Whether it had not been sent. A read that was is not asked again after a cut. */
    #takeBack(pending) {
        const at = this.#waiting.indexOf(pending);
        if (at >= 0)
            this.#takeWaiting(at);
        if (pending.request.read)
            for (const [id, sent] of this.#sent)
                if (sent === pending)
                    this.#sent.delete(id);
        return at >= 0;
    }
    #takeWaiting(at) {
        const [pending] = this.#waiting.splice(at, 1);
        if (pending !== undefined)
            this.#waitingBytes -= pending.request.bytes;
        return pending;
    }
}
/** The gateway's refusal as an error to throw. */
export function refusalError(refusal) {
    if (refusal.code === "rate_limited")
        return new RateLimitedError(refusal.message, refusal.retryAfterMs ?? 0);
    if (refusal.code === "trimmed" && refusal.oldest !== null)
        return new TrimmedError(refusal.message, refusal.oldest);
    // A broker that went away in the middle of a write is one of the reasons for the first three.
    if (["publish_failed", "counter_failed", "cache_failed"].includes(refusal.code))
        return new RefusedError(refusal.code, refusal.message, "ask_first");
    const later = ["read_failed", "state_failed", "unavailable"].includes(refusal.code);
    return new RefusedError(refusal.code, refusal.message, later ? "later" : "no");
}
