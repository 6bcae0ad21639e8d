/** Who is here: one key of an expiring cache for each member, written again before it expires, deleted when the page goes. */
import { encode, sameBytes, text } from "./bytes.js";
import { checkName } from "./cache.js";
import { asyncDispose } from "./dispose.js";
import { Emitter } from "./emitter.js";
import { onAbort } from "./errors.js";
/** How long a good-bye may wait for room in the connection; after it the entry is left to expire. */
const LEAVE_MAX_MS = 1_000;
/** Without an expiry in `hello`, how often presence is written again. */
const AGAIN_MS = 5_000;
function member(key, bytes) {
    return {
        key, bytes,
        json() {
            try {
                return JSON.parse(text(bytes));
            }
            catch {
                return null;
            }
        },
    };
}
export class Presence extends Emitter {
    cache;
    options;
    upstream;
    #members = new Map();
    #bytes;
    #cancel = null;
    #stopWatching;
    #unlisten;
    #ended = false;
    /** The page is going, and has taken its key back. */
    #away = false;
    constructor(cache, options, upstream) {
        super();
        this.cache = cache;
        this.options = options;
        this.upstream = upstream;
        checkName(options.key, "key");
        this.#bytes = encode(options.data);
        this.#stopWatching = cache.onChange((change) => {
            if (change.bytes === null)
                this.#left(change.key);
            else
                this.#seen(change.key, change.bytes);
        });
        this.#unlisten = onAbort(options.signal, () => void this.leave());
        if (options.signal?.aborted === true)
            this.end();
        else
            this.enter();
    }
    /** Everybody here, this member too, in the order of their keys. */
    get members() {
        return [...this.#members.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
    }
    /** Changes this member's data. */
    update(data) {
        this.#bytes = encode(data);
        this.enter();
    }
    /** Says that we are here: now, and again before the entry expires. Called by the client at each new connection. */
    enter() {
        this.#cancel?.();
        this.#cancel = null;
        this.#away = false;
        if (this.#ended || !this.upstream.connected())
            return;
        this.cache.put(this.options.key, this.#bytes).catch(() => undefined);
        const ttl = this.upstream.ttlMs();
        this.#cancel = this.upstream.host.after(ttl === null ? AGAIN_MS : Math.max(500, Math.floor(ttl / 3)), () => this.enter());
    }
    /** Says good-bye over the connection and ends this object. */
    async leave() {
        if (this.#ended)
            return;
        const connected = this.upstream.connected();
        this.end();
        if (!connected)
            return;
        const late = new AbortController();
        const cancel = this.upstream.host.after(LEAVE_MAX_MS, () => late.abort());
        await this.cache.delete(this.options.key, { signal: late.signal }).catch(() => undefined);
        cancel();
    }
    async [asyncDispose]() {
        await this.leave();
    }
    /** The page goes: whatever comes of the connection, the beacon deletes the key. It may come back, so nothing ends here. */
    leaving() {
        if (this.#ended || !this.upstream.connected())
            return;
        this.#away = true;
        this.upstream.beacon(this.options.key);
    }
    end() {
        this.#ended = true;
        this.#cancel?.();
        this.#unlisten();
        this.#stopWatching();
        this.#members.clear();
        this.upstream.ended(this);
    }
    #seen(key, bytes) {
        const before = this.#members.get(key);
        // Written again so that it does not expire: nothing that anybody has to hear.
        if (before !== undefined && sameBytes(before.bytes, bytes))
            return;
        const now = member(key, bytes);
        this.#members.set(key, now);
        this.emit(before === undefined ? "join" : "update", now);
        this.emit("change", this.members);
    }
    #left(key) {
        if (!this.#members.delete(key))
            return;
        this.emit("leave", { key });
        this.emit("change", this.members);
        // Timers of a hidden page may run once a minute, too late for a short expiry; its messages arrive all the same.
        if (key === this.options.key && !this.#ended && !this.#away)
            this.enter();
    }
}
