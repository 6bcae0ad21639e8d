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

export class FakeStream {
  /** The records that are kept; the first has the offset `oldest`. */
  readonly records: LogRecord[] = [];
  oldest = 0;
  next = 0;
  readonly readers = new Set<(record: LogRecord) => void>();

  constructor(
    readonly spec: StreamSpec,
    private readonly clock: StoreClock,
  ) {}

  get durable(): boolean {
    return this.spec.durable ?? true;
  }

  /** Appends and delivers; the offset, or `null` without a log. */
  append(payload: Uint8Array): number | null {
    const offset = this.durable ? this.next++ : null;
    const record = { offset, timeMs: this.clock.wallClock(), payload };
    if (offset !== null) this.records.push(record);
    for (const reader of [...this.readers]) reader(record);
    return offset;
  }

  /** Forgets what is below `oldest`. */
  trim(oldest: number): void {
    this.records.splice(0, Math.max(0, oldest - this.oldest));
    this.oldest = Math.max(this.oldest, oldest);
    this.next = Math.max(this.next, oldest);
  }

  from(offset: number): readonly LogRecord[] {
    return this.records.slice(Math.max(0, offset - this.oldest));
  }
}

export interface Stored {
  readonly payload: Uint8Array;
  readonly version: number;
  readonly expiresAt: number | null;
}

export class FakeCache {
  readonly entries = new Map<string, Stored>();
  readonly watchers = new Set<(key: string, stored: Stored | null) => void>();
  readonly #expiries = new Map<string, () => void>();
  #version = 0;

  constructor(
    readonly spec: CacheSpec,
    private readonly clock: StoreClock,
  ) {}

  put(key: string, payload: Uint8Array): number {
    const ttl = this.spec.ttlS === undefined ? null : this.spec.ttlS * 1000;
    const stored = { payload, version: ++this.#version, expiresAt: ttl === null ? null : this.clock.now() + ttl };
    this.#expiries.get(key)?.();
    if (ttl !== null) this.#expiries.set(key, this.clock.after(ttl, () => this.delete(key)));
    this.entries.set(key, stored);
    for (const watcher of [...this.watchers]) watcher(key, stored);
    return stored.version;
  }

  delete(key: string): void {
    this.#expiries.get(key)?.();
    this.#expiries.delete(key);
    if (!this.entries.delete(key)) return;
    for (const watcher of [...this.watchers]) watcher(key, null);
  }

  expiresInMs(stored: Stored): number | null {
    return stored.expiresAt === null ? null : Math.max(0, Math.ceil(stored.expiresAt - this.clock.now()));
  }
}

/** Everything that one scope value has. */
export class FakeRoom {
  readonly streams = new Map<string, FakeStream>();
  readonly caches = new Map<string, FakeCache>();
  readonly counters = new Map<string, Map<string, number>>();

  constructor(streams: readonly StreamSpec[], caches: readonly CacheSpec[], counters: readonly CounterSpec[], clock: StoreClock) {
    for (const spec of streams) this.streams.set(spec.alias, new FakeStream(spec, clock));
    for (const spec of caches) this.caches.set(spec.alias, new FakeCache(spec, clock));
    for (const spec of counters) this.counters.set(spec.alias, new Map());
  }
}
