import type { Payload } from "./bytes.js";
import type { Answer, Condition, Inbound } from "./protocol.js";
import type { Requests } from "./requests.js";
/** A value and, where the gateway has `cache_versions`, the version to compare with later. */
export interface Versioned {
    readonly bytes: Uint8Array | null;
    readonly version: number | null;
}
/** What became of a conditional write: the version written, or the one that was there instead. */
export interface Applied {
    readonly applied: boolean;
    readonly version: number | null;
}
/** A change of a watched cache; `bytes` is `null` when the key was deleted or expired. */
export interface CacheChange {
    readonly cache: string;
    readonly key: string;
    readonly bytes: Uint8Array | null;
    /** Whether the key was there before. */
    readonly known: boolean;
}
/** What a cache needs of its client. */
export interface CacheUpstream {
    readonly requests: Requests;
    has(feature: string): boolean;
    watch(cache: string): void;
}
/** Keys of caches and counters, and values of scopes, as the gateway takes them. */
export declare function checkName(name: string, what: string): string;
/** The answer of the type that was asked for; anything else breaks the protocol. */
export declare function expect<T extends Answer["type"]>(answer: Answer | null, type: T): Extract<Answer, {
    type: T;
}>;
export declare class Cache {
    #private;
    readonly alias: string;
    private readonly upstream;
    constructor(alias: string, upstream: CacheUpstream);
    /** The value of `key`, or `null`. */
    get(key: string, options?: {
        signal?: AbortSignal;
    }): Promise<Uint8Array | null>;
    getVersioned(key: string, options?: {
        signal?: AbortSignal;
    }): Promise<Versioned>;
    /** Writes without a condition. Resolves when it is handed over: the protocol answers only refusals, as the event `writeFailed`. */
    put(key: string, value: Payload, options?: {
        signal?: AbortSignal;
    }): Promise<void>;
    /** Deletes. Resolves when it is handed over, like `put`. */
    delete(key: string, options?: {
        signal?: AbortSignal;
    }): Promise<void>;
    /** Writes if the key is `"absent"` or still has that version. */
    putIf(key: string, value: Payload, condition: Condition, options?: {
        signal?: AbortSignal;
    }): Promise<Applied>;
    /** Deletes if the key still has that version. */
    deleteIf(key: string, version: number, options?: {
        signal?: AbortSignal;
    }): Promise<Applied>;
    /** The entries as they are known by the watch: complete once `watch` has begun. */
    get entries(): ReadonlyMap<string, Uint8Array>;
    /** Whether the entries have been read since there was a connection. */
    get complete(): boolean;
    /** Calls back with each entry that is there, then with each change, until the signal aborts or the answer is called. */
    onChange(callback: (change: CacheChange) => void, options?: {
        signal?: AbortSignal;
    }): () => void;
    /** Resolves once the entries are complete, which they become while somebody watches; rejects when the client is closed. */
    loaded(): Promise<void>;
    /** Each entry that is there, then each change. Of changes that a slow reader left waiting the newest of each key stays. */
    watch(options?: {
        signal?: AbortSignal;
    }): AsyncGenerator<CacheChange, void, undefined>;
    /** Whether anybody watches, so that a new connection watches again. */
    get watched(): boolean;
    message(message: Extract<Inbound, {
        type: "cache_entries" | "cache_change";
    }>): void;
    forget(): void;
}
