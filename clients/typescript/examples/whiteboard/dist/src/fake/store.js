/** What the fake gateway keeps: the streams, caches and counters of each scope. */
export class FakeStream {
    spec;
    clock;
    /** The records that are kept; the first has the offset `oldest`. */
    records = [];
    oldest = 0;
    next = 0;
    readers = new Set();
    constructor(spec, clock) {
        this.spec = spec;
        this.clock = clock;
    }
    get durable() {
        return this.spec.durable ?? true;
    }
    /** Appends and delivers; the offset, or `null` without a log. */
    append(payload) {
        const offset = this.durable ? this.next++ : null;
        const record = { offset, timeMs: this.clock.wallClock(), payload };
        if (offset !== null)
            this.records.push(record);
        for (const reader of [...this.readers])
            reader(record);
        return offset;
    }
    /** Forgets what is below `oldest`. */
    trim(oldest) {
        this.records.splice(0, Math.max(0, oldest - this.oldest));
        this.oldest = Math.max(this.oldest, oldest);
        this.next = Math.max(this.next, oldest);
    }
    from(offset) {
        return this.records.slice(Math.max(0, offset - this.oldest));
    }
}
export class FakeCache {
    spec;
    clock;
    entries = new Map();
    watchers = new Set();
    #expiries = new Map();
    #version = 0;
    constructor(spec, clock) {
        this.spec = spec;
        this.clock = clock;
    }
    put(key, payload) {
        const ttl = this.spec.ttlS === undefined ? null : this.spec.ttlS * 1000;
        const stored = { payload, version: ++this.#version, expiresAt: ttl === null ? null : this.clock.now() + ttl };
        this.#expiries.get(key)?.();
        if (ttl !== null)
            this.#expiries.set(key, this.clock.after(ttl, () => this.delete(key)));
        this.entries.set(key, stored);
        for (const watcher of [...this.watchers])
            watcher(key, stored);
        return stored.version;
    }
    delete(key) {
        this.#expiries.get(key)?.();
        this.#expiries.delete(key);
        if (!this.entries.delete(key))
            return;
        for (const watcher of [...this.watchers])
            watcher(key, null);
    }
    expiresInMs(stored) {
        return stored.expiresAt === null ? null : Math.max(0, Math.ceil(stored.expiresAt - this.clock.now()));
    }
}
/** Everything that one scope value has. */
export class FakeRoom {
    streams = new Map();
    caches = new Map();
    counters = new Map();
    constructor(streams, caches, counters, clock) {
        for (const spec of streams)
            this.streams.set(spec.alias, new FakeStream(spec, clock));
        for (const spec of caches)
            this.caches.set(spec.alias, new FakeCache(spec, clock));
        for (const spec of counters)
            this.counters.set(spec.alias, new Map());
    }
}
