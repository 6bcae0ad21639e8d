/** One subscription: survives reconnects, delivers each offset once, and keeps a bounded queue for a reader that is slow. */
import { json, text } from "./bytes.js";
import { asyncDispose } from "./dispose.js";
import { ClosedError, abortReason, guarded, onAbort } from "./errors.js";
import { begin, judge, subscribed, trimmed, wanted } from "./position.js";
class ReceivedEvent {
    stream;
    offset;
    timeMs;
    bytes;
    constructor(stream, offset, timeMs, bytes) {
        this.stream = stream;
        this.offset = offset;
        this.timeMs = timeMs;
        this.bytes = bytes;
    }
    text() {
        return text(this.bytes);
    }
    json() {
        return json(this.bytes);
    }
}
/** Events and bytes that wait for a slow reader. */
const QUEUE_MAX = 4_096;
const QUEUE_BYTES_MAX = 8 * 1024 * 1024;
export class Subscription {
    stream;
    options;
    upstream;
    #position;
    #queue = [];
    #queueBytes = 0;
    #waiters = [];
    #end = null;
    /** Requests whose `subscribed` is still to come; events before it belong to the one replaced. */
    #asked = 0;
    #failures = 0;
    /** Records were left upstream because the reader is slow. */
    #behind = false;
    #live = null;
    #ready = [];
    #unlisten;
    constructor(stream, options, upstream) {
        this.stream = stream;
        this.options = options;
        this.upstream = upstream;
        this.#position = begin(options.from ?? "live");
        const { signal } = options;
        this.#unlisten = onAbort(signal, (reason) => this.fail(reason));
        if (signal?.aborted === true)
            this.fail(abortReason(signal));
    }
    /** First offset not yet delivered; `null` while unknown or without a log. */
    get nextOffset() {
        return this.#position.next;
    }
    /** The end of the log when the gateway last said `subscribed`; `null` without a log. */
    get liveOffset() {
        return this.#live;
    }
    /** Resolves when the gateway has confirmed the subscription for the first time; rejects when it ends before. */
    async started() {
        if (!this.#position.begun && this.#end === null)
            await new Promise((resolve) => this.#ready.push(resolve));
        if (this.#end !== null && this.#end !== "done")
            throw this.#end.error;
        if (!this.#position.begun)
            throw new ClosedError("the subscription ended before it began");
    }
    /** Ends it; a reader sees the end after what is queued. */
    close() {
        this.#finish("done");
    }
    async next() {
        const event = this.#queue.shift();
        if (event !== undefined) {
            this.#queueBytes -= event.bytes.length;
            if (this.#queue.length === 0)
                this.#catchUp();
            return { done: false, value: event };
        }
        if (this.#end === "done")
            return { done: true, value: undefined };
        if (this.#end !== null)
            throw this.#end.error;
        return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
    }
    /** What `break` in a loop over this does. */
    async return() {
        this.close();
        return { done: true, value: undefined };
    }
    [Symbol.asyncIterator]() {
        return this;
    }
    async [asyncDispose]() {
        this.close();
    }
    // ---- what the client tells
    /** What to ask for now; counts as asked. */
    ask() {
        this.#asked += 1;
        this.#behind = false;
        return wanted(this.#position);
    }
    /** Nothing that was asked on the connection before will be answered. */
    cut() {
        this.#asked = 0;
        this.#behind = false;
    }
    began(startOffset, liveOffset) {
        this.#asked = Math.max(0, this.#asked - 1);
        if (this.#asked > 0 || this.#end !== null)
            return;
        this.#failures = 0;
        this.#live = liveOffset;
        const { position, resynced } = subscribed(this.#position, startOffset, liveOffset);
        this.#position = position;
        for (const ready of this.#ready.splice(0))
            ready();
        if (resynced !== null)
            this.upstream.resynced({ ...resynced, stream: this.stream });
    }
    receive(offset, skippedBefore, timeMs, bytes) {
        if (this.#end !== null || this.#asked > 0)
            return;
        if (this.#behind && offset !== null)
            return;
        const judged = judge(this.#position, offset, skippedBefore);
        if (judged.kind === "duplicate")
            return;
        if (judged.kind === "again") {
            this.#position = judged.position;
            return this.upstream.subscribe(this);
        }
        if (!this.#fits(bytes.length) && offset !== null) {
            this.#behind = true;
            return this.upstream.lagged({ stream: this.stream, from: this.#position.next, missed: 0 });
        }
        const from = this.#position.next;
        this.#position = judged.position;
        const lost = judged.lost + this.#makeRoom(bytes.length);
        if (lost > 0)
            this.upstream.lagged({ stream: this.stream, from, missed: lost });
        this.#deliver(new ReceivedEvent(this.stream, offset, timeMs, bytes));
    }
    /** The gateway's refusal to subscribe, or the end of what was subscribed. */
    refused(code, oldest, error) {
        this.#asked = Math.max(0, this.#asked - (code === "subscription_ended" ? 0 : 1));
        // What is asked anew already has an answer of its own.
        if (this.#end !== null || this.#asked > 0)
            return;
        if (code === "trimmed" && oldest !== null)
            return this.#trimmed(oldest);
        if (code === "bad_request" || code === "past_end" || code === "unsupported" || code === "forbidden")
            return this.fail(error);
        this.#failures += 1;
        this.upstream.subscribeLater(this, this.#failures);
    }
    /** Ends it with an error that the reader gets after what is queued. */
    fail(error) {
        this.#finish({ error });
    }
    // ---- inside
    #trimmed(oldest) {
        const from = this.#position.next;
        const silent = this.#position.from === "earliest" && !this.#position.begun;
        this.#position = trimmed(this.#position, oldest);
        if (!silent)
            this.upstream.trimmed({ stream: this.stream, from, oldest });
        this.upstream.subscribe(this);
    }
    #fits(bytes) {
        return this.#queue.length < QUEUE_MAX && this.#queueBytes + bytes <= QUEUE_BYTES_MAX;
    }
    /** Drops the oldest of what waits (there is no log to get it from again); the number dropped. */
    #makeRoom(bytes) {
        let dropped = 0;
        while (this.#queue.length > 0 && !this.#fits(bytes)) {
            this.#queueBytes -= this.#queue.shift()?.bytes.length ?? 0;
            dropped += 1;
        }
        return dropped;
    }
    #deliver(event) {
        const { onEvent } = this.options;
        if (onEvent !== undefined)
            return guarded(() => onEvent(event));
        const waiter = this.#waiters.shift();
        if (waiter !== undefined)
            return waiter.resolve({ done: false, value: event });
        this.#queue.push(event);
        this.#queueBytes += event.bytes.length;
    }
    #catchUp() {
        if (!this.#behind)
            return;
        this.#behind = false;
        this.upstream.subscribe(this);
    }
    #finish(end) {
        if (this.#end !== null)
            return;
        this.#end = end;
        this.#unlisten();
        for (const ready of this.#ready.splice(0))
            ready();
        for (const waiter of this.#waiters.splice(0)) {
            if (end === "done")
                waiter.resolve({ done: true, value: undefined });
            else
                waiter.reject(end.error);
        }
        this.upstream.closed(this);
    }
}
