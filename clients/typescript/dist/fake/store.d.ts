/** What the fake gateway keeps: the streams, caches and counters of each scope. */
export interface StreamSpec {
    readonly alias: string;
    readonly actions?: readonly ("publish" | "subscribe")[];
    /** Whether it has a log (default true). */
    readonly durable?: boolean;
    readonly stampSender?: boolean;
}
export interface CacheSpec {
    readonly alias: string;
    readonly actions?: readonly ("read" | "write" | "watch")[];
    readonly ttlS?: number;
}
export interface CounterSpec {
    readonly alias: string;
}
export interface LogRecord {
    readonly offset: number | null;
    readonly timeMs: number;
    readonly payload: Uint8Array;
}
/** Where time comes from. */
export interface StoreClock {
    wallClock(): number;
    now(): number;
    after(ms: number, callback: () => void): () => void;
}
export declare class FakeStream {
    readonly spec: StreamSpec;
    private readonly clock;
    /** The records that are kept; the first has the offset `oldest`. */
    readonly records: LogRecord[];
    oldest: number;
    next: number;
    readonly readers: Set<(record: LogRecord) => void>;
    constructor(spec: StreamSpec, clock: StoreClock);
    get durable(): boolean;
    /** Appends and delivers; the offset, or `null` without a log. */
    append(payload: Uint8Array): number | null;
    /** Forgets what is below `oldest`. */
    trim(oldest: number): void;
    from(offset: number): readonly LogRecord[];
}
export interface Stored {
    readonly payload: Uint8Array;
    readonly version: number;
    readonly expiresAt: number | null;
}
export declare class FakeCache {
    #private;
    readonly spec: CacheSpec;
    private readonly clock;
    readonly entries: Map<string, Stored>;
    readonly watchers: Set<(key: string, stored: Stored | null) => void>;
    constructor(spec: CacheSpec, clock: StoreClock);
    put(key: string, payload: Uint8Array): number;
    delete(key: string): void;
    expiresInMs(stored: Stored): number | null;
}
/** Everything that one scope value has. */
export declare class FakeRoom {
    readonly streams: Map<string, FakeStream>;
    readonly caches: Map<string, FakeCache>;
    readonly counters: Map<string, Map<string, number>>;
    constructor(streams: readonly StreamSpec[], caches: readonly CacheSpec[], counters: readonly CounterSpec[], clock: StoreClock);
}
