import { asyncDispose } from "./dispose.js";
import type { Resynced } from "./position.js";
import type { From } from "./protocol.js";
/** A record as it arrived. `offset` is `null` without a log, `timeMs` when the connection does not carry times. */
export interface Event {
    readonly stream: string;
    readonly offset: number | null;
    readonly timeMs: number | null;
    readonly bytes: Uint8Array;
    /** The payload as UTF-8; throws on other bytes. */
    text(): string;
    /** The payload as JSON that nobody checked yet; throws on other bytes. */
    json(): unknown;
}
/** Records were lost (in memory), or come later because the reader is slow (durable; `missed` is 0). */
export interface Lagged {
    readonly stream: string;
    readonly from: number | null;
    readonly missed: number;
}
/** Retention was faster than we: everything below `oldest` is gone. Reading goes on at `oldest`. */
export interface Trimmed {
    readonly stream: string;
    readonly from: number | null;
    readonly oldest: number;
}
export type StreamResynced = Resynced & {
    readonly stream: string;
};
/** What a subscription needs of its client. */
export interface Upstream {
    /** Asks the gateway for `stream` from where it stands, when there is a connection. */
    subscribe(subscription: Subscription): void;
    /** The same after `ms`. */
    subscribeLater(subscription: Subscription, failures: number): void;
    lagged(event: Lagged): void;
    trimmed(event: Trimmed): void;
    resynced(event: StreamResynced): void;
    closed(subscription: Subscription): void;
}
export interface SubscribeOptions {
    /** Where to begin: what is new (default), an offset (first wanted), or the oldest record there is. */
    readonly from?: From | "earliest";
    readonly signal?: AbortSignal;
    /** Called for each record at once, in order; the subscription is then not to be iterated. */
    readonly onEvent?: (event: Event) => void;
}
export declare class Subscription implements AsyncIterableIterator<Event, undefined> {
    #private;
    readonly stream: string;
    private readonly options;
    private readonly upstream;
    constructor(stream: string, options: SubscribeOptions, upstream: Upstream);
    /** First offset not yet delivered; `null` while unknown or without a log. */
    get nextOffset(): number | null;
    /** The end of the log when the gateway last said `subscribed`; `null` without a log. */
    get liveOffset(): number | null;
    /** Resolves when the gateway has confirmed the subscription for the first time; rejects when it ends before. */
    started(): Promise<void>;
    /** Ends it; a reader sees the end after what is queued. */
    close(): void;
    next(): Promise<IteratorResult<Event, undefined>>;
    /** What `break` in a loop over this does. */
    return(): Promise<IteratorResult<Event, undefined>>;
    [Symbol.asyncIterator](): this;
    [asyncDispose](): Promise<void>;
    /** What to ask for now; counts as asked. */
    ask(): From;
    /** Nothing that was asked on the connection before will be answered. */
    cut(): void;
    began(startOffset: number | null, liveOffset: number | null): void;
    receive(offset: number | null, skippedBefore: number, timeMs: number | null, bytes: Uint8Array): void;
    /** The gateway's refusal to subscribe, or the end of what was subscribed. */
    refused(code: string, oldest: number | null, error: Error): void;
    /** Ends it with an error that the reader gets after what is queued. */
    fail(error: unknown): void;
}
