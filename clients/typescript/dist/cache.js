/** Caches of the scope: values, conditional writes, and a watch that many may share. */
import { encode, sameBytes, toBase64 } from "./bytes.js";
import { ClosedError, FelixError, UsageError, abortReason, guarded, onAbort } from "./errors.js";
const KEY = /^[A-Za-z0-9_-]{1,64}$/;
/** Keys of caches and counters, and values of scopes, as the gateway takes them. */
export function checkName(name, what) {
    if (!KEY.test(name))
        throw new UsageError(`${what} \`${name.slice(0, 80)}\` is not 1 to 64 of A-Z, a-z, 0-9, _ and -`);
    return name;
}
/** The answer of the type that was asked for; anything else breaks the protocol. */
export function expect(answer, type) {
    if (answer?.type !== type)
        throw new FelixError("protocol", `a request was answered by \`${answer?.type ?? "nothing"}\`, not \`${type}\``, "later");
    return answer;
}
export class Cache {
    alias;
    upstream;
    #entries = new Map();
    #watchers = new Set();
    #complete = false;
    #completed = [];
    constructor(alias, upstream) {
        this.alias = alias;
        this.upstream = upstream;
    }
    /** The value of `key`, or `null`. */
    async get(key, options = {}) {
        return (await this.getVersioned(key, options)).bytes;
    }
    async getVersioned(key, options = {}) {
        checkName(key, "key");
        return this.upstream.requests.ask({
            name: `cache_get ${this.alias}/${key}`, bytes: 64, read: true, answered: true,
            frame: (id) => JSON.stringify({ type: "cache_get", cache: this.alias, key, id }),
            take: (answer) => {
                const value = expect(answer, "cache_value");
                return { bytes: value.payload, version: value.version };
            },
        }, options.signal);
    }
    /** Writes without a condition. Resolves when it is handed over: the protocol answers only refusals, as the event `writeFailed`. */
    async put(key, value, options = {}) {
        checkName(key, "key");
        const payload = toBase64(encode(value));
        return this.#write("cache_put", key, { payload }, payload.length, options.signal);
    }
    /** Deletes. Resolves when it is handed over, like `put`. */
    async delete(key, options = {}) {
        checkName(key, "key");
        return this.#write("cache_delete", key, {}, 0, options.signal);
    }
    /** Writes if the key is `"absent"` or still has that version. */
    async putIf(key, value, condition, options = {}) {
        checkName(key, "key");
        const payload = toBase64(encode(value));
        return this.#conditional("cache_put_if", "cache_put_result", key, { payload, if: condition }, payload.length, options.signal);
    }
    /** Deletes if the key still has that version. */
    async deleteIf(key, version, options = {}) {
        checkName(key, "key");
        return this.#conditional("cache_delete_if", "cache_delete_result", key, { version }, 0, options.signal);
    }
    /** The entries as they are known by the watch: complete once `watch` has begun. */
    get entries() {
        return this.#entries;
    }
    /** Whether the entries have been read since there was a connection. */
    get complete() {
        return this.#complete;
    }
    /** Calls back with each entry that is there, then with each change, until the signal aborts or the answer is called. */
    onChange(callback, options = {}) {
        return this.#watch({ change: callback, end: () => undefined }, options.signal);
    }
    /** Resolves once the entries are complete, which they become while somebody watches; rejects when the client is closed. */
    async loaded() {
        if (!this.#complete)
            await new Promise((resolve, reject) => this.#completed.push({ resolve, reject }));
    }
    /** Each entry that is there, then each change. Of changes that a slow reader left waiting the newest of each key stays. */
    async *watch(options = {}) {
        let waiting = new Map();
        // Keys that the reader was given: only of those it has to hear that they are gone, so what waits is bounded by the cache.
        const given = new Set();
        let wake = null;
        let ended = null;
        const stop = this.#watch({
            change: (change) => {
                waiting.delete(change.key);
                if (change.bytes !== null || given.has(change.key))
                    waiting.set(change.key, change);
                wake?.();
            },
            end: (error) => {
                ended = { error };
                wake?.();
            },
        }, options.signal);
        try {
            for (;;) {
                const batch = waiting;
                waiting = new Map();
                for (const change of batch.values()) {
                    if (change.bytes === null)
                        given.delete(change.key);
                    else
                        given.add(change.key);
                }
                yield* batch.values();
                if (waiting.size > 0)
                    continue;
                const end = ended;
                if (end !== null) {
                    if (end.error === undefined)
                        return;
                    throw end.error;
                }
                await new Promise((resolve) => { wake = resolve; });
                wake = null;
            }
        }
        finally {
            stop();
        }
    }
    // ---- what the client tells
    /** Whether anybody watches, so that a new connection watches again. */
    get watched() {
        return this.#watchers.size > 0;
    }
    message(message) {
        if (!this.watched)
            return;
        if (message.type === "cache_change")
            return this.#set(message.key, message.payload);
        this.#replace(message.entries);
    }
    forget() {
        this.#unload();
        for (const watcher of [...this.#watchers])
            watcher.end(undefined);
        this.#watchers.clear();
        for (const { reject } of this.#completed.splice(0))
            reject(new ClosedError());
    }
    // ---- inside
    #write(type, key, fields, bytes, signal) {
        return this.upstream.requests.ask({
            name: `${type} ${this.alias}/${key}`, bytes: 64 + bytes, read: false, answered: false,
            frame: () => JSON.stringify({ type, cache: this.alias, key, ...fields }),
            take: () => undefined,
        }, signal);
    }
    #conditional(type, answered, key, fields, bytes, signal) {
        return this.upstream.requests.ask({
            name: `${type} ${this.alias}/${key}`, bytes: 64 + bytes, read: false, answered: true,
            frame: (id) => {
                if (!this.upstream.has("cache_versions"))
                    throw new FelixError("unsupported", "this gateway has no conditional cache writes");
                return JSON.stringify({ type, cache: this.alias, key, ...fields, id });
            },
            take: (answer) => {
                const { applied, version } = expect(answer, answered);
                return { applied, version };
            },
        }, signal);
    }
    #watch(watcher, signal) {
        if (signal?.aborted === true) {
            watcher.end(abortReason(signal));
            return () => undefined;
        }
        const forget = onAbort(signal, (reason) => {
            stop();
            watcher.end(reason);
        });
        const stop = () => {
            forget();
            // What nobody watches is not kept up to date, and old entries are worse than none.
            if (this.#watchers.delete(watcher) && !this.watched)
                this.#unload();
        };
        const first = !this.watched;
        this.#watchers.add(watcher);
        if (first)
            this.upstream.watch(this.alias);
        else
            for (const [key, bytes] of [...this.#entries])
                guarded(() => watcher.change({ cache: this.alias, key, bytes, known: false }));
        return stop;
    }
    #set(key, bytes) {
        const known = this.#entries.has(key);
        if (bytes === null)
            this.#entries.delete(key);
        else
            this.#entries.set(key, bytes);
        if (bytes === null && !known)
            return;
        for (const watcher of [...this.#watchers])
            guarded(() => watcher.change({ cache: this.alias, key, bytes, known }));
    }
    #unload() {
        this.#entries.clear();
        this.#complete = false;
    }
    /** After a reconnect the whole is read again; what differs is told as changes. */
    #replace(entries) {
        const now = new Set(entries.map((entry) => entry.key));
        for (const key of [...this.#entries.keys()])
            if (!now.has(key))
                this.#set(key, null);
        for (const entry of entries) {
            const held = this.#entries.get(entry.key);
            if (held === undefined || !sameBytes(held, entry.payload))
                this.#set(entry.key, entry.payload);
        }
        this.#complete = true;
        for (const { resolve } of this.#completed.splice(0))
            resolve();
    }
}
