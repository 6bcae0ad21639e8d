import { FEATURES } from "../protocol.js";
import { FakeHost } from "./clock.js";
import { Session } from "./session.js";
import { FakeRoom } from "./store.js";
const SEEN_MAX = 10_000;
class FakeSocket {
    gateway;
    binaryType = "arraybuffer";
    bufferedAmount = 0;
    onopen = null;
    onmessage = null;
    onclose = null;
    onerror = null;
    #session = null;
    #closed = false;
    constructor(gateway) {
        this.gateway = gateway;
        queueMicrotask(() => this.#open());
    }
    send(data) {
        const copy = typeof data === "string" ? data : data.slice();
        queueMicrotask(() => {
            if (!this.#closed && !this.gateway.silent)
                this.#session?.receive(copy);
        });
    }
    close(code = 1000, reason = "") {
        if (this.gateway.silent)
            return this.lose(1006, "");
        // In the order of what was sent before.
        queueMicrotask(() => {
            this.#session?.end(code, reason);
            this.lose(code, reason);
        });
    }
    /** The connection is gone, whoever ended it. */
    lose(code, reason) {
        if (this.#closed)
            return;
        this.#closed = true;
        this.gateway.forgetSocket(this);
        queueMicrotask(() => this.onclose?.({ code, reason }));
    }
    get session() {
        return this.#session;
    }
    /** Something arrives that no gateway would say. */
    inject(data) {
        if (!this.#closed)
            this.onmessage?.({ data });
    }
    #open() {
        if (this.gateway.silent || this.#closed)
            return;
        if (this.gateway.stopped) {
            this.onerror?.({});
            return this.lose(1006, "");
        }
        this.#session = new Session(this.gateway.forSessions, {
            send: (data) => queueMicrotask(() => {
                if (this.#closed || this.gateway.silent)
                    return;
                this.onmessage?.({ data: typeof data === "string" ? data : data.buffer });
            }),
            close: (code, reason) => queueMicrotask(() => this.lose(code, reason)),
        });
        this.gateway.opened(this.#session);
        this.onopen?.({});
    }
}
export class FakeGateway {
    options;
    /** Every message that arrived, oldest first; at most 10,000. */
    seen = [];
    /** No connection is taken. Set by `stop`. */
    stopped = false;
    /** Nothing passes in either direction and nothing closes: a cut cable. */
    silent = false;
    #rooms = new Map();
    #sockets = new Set();
    #numbers = new Map();
    #expiries = new Map();
    #spent = new Map();
    #connections = 0;
    #clock;
    /** What sessions see of this gateway. */
    forSessions;
    constructor(options) {
        this.options = options;
        const { clock } = options;
        this.#clock = clock === undefined
            ? { now: () => performance.now(), wallClock: () => Date.now(), after: realTimer }
            : { now: () => clock.now(), wallClock: () => new FakeHost(clock, this.#peer()).wallClock(), after: (ms, callback) => clock.after(ms, callback) };
        const signIn = options.signIn ?? ((token) => (token === undefined ? "signed_out" : { principal: token }));
        this.forSessions = {
            field: options.field,
            features: options.features ?? FEATURES,
            maxPayloadBytes: options.maxPayloadBytes ?? 65_536,
            cacheTtlMs: Object.fromEntries((options.caches ?? []).flatMap((one) => (one.ttlS === undefined ? [] : [[one.alias, one.ttlS * 1000]]))),
            signIn: async (token, scope) => signIn(token, scope),
            room: (scope) => this.room(scope),
            admit: (principal) => this.#admit(principal),
            expireIn: (session, ms) => this.#expireIn(session, ms),
            seen: (session, message) => this.#see(session, message),
        };
    }
    /** Pass this as `webSocket`. */
    get WebSocket() {
        const gateway = this;
        return class extends FakeSocket {
            constructor(_url) {
                super(gateway);
                gateway.#sockets.add(this);
            }
        };
    }
    /** A world for one client, with this gateway's clock: pass it as `host`. */
    host(seed = 1) {
        if (this.options.clock === undefined)
            throw new TypeError("give the gateway a `clock` first");
        return new FakeHost(this.options.clock, this.#peer(), seed);
    }
    /** The streams, caches and counters of one scope value. */
    room(scope) {
        let room = this.#rooms.get(scope);
        if (room === undefined) {
            room = new FakeRoom(this.options.streams ?? [], this.options.caches ?? [], this.options.counters ?? [], this.#clock);
            this.#rooms.set(scope, room);
        }
        return room;
    }
    /** Connections that stand. */
    get connections() {
        return this.#sockets.size;
    }
    /** How many connections there were. */
    get accepted() {
        return this.#connections;
    }
    /** Cuts every connection and takes none until `start`; streams and caches stay. */
    stop(code = 1006, reason = "") {
        this.stopped = true;
        this.cut(code, reason);
    }
    start() {
        this.stopped = false;
    }
    /** Cuts every connection, or those of one principal. */
    cut(code = 1006, reason = "", principal) {
        for (const socket of [...this.#sockets]) {
            if (principal !== undefined && socket.session?.principal !== principal)
                continue;
            socket.session?.end(code, reason);
            socket.lose(code, reason);
        }
    }
    /** Says `going_away` to whoever asked for the feature `drain`. */
    goAway(reconnectAfterMs) {
        for (const socket of this.#sockets) {
            if (socket.session?.has("drain") === true)
                socket.session.say({ type: "going_away", reconnect_after_ms: reconnectAfterMs });
        }
    }
    /** Puts a frame before every client that no gateway would send. */
    inject(data) {
        for (const socket of [...this.#sockets])
            socket.inject(data);
    }
    /** What `POST /members/leave` does: the answer's status. */
    async leave(body) {
        let fields;
        try {
            fields = JSON.parse(body);
        }
        catch {
            return 400;
        }
        if (typeof fields !== "object" || fields === null)
            return 400;
        const { token, cache, key, [this.options.field]: scope } = fields;
        if (typeof scope !== "string" || typeof cache !== "string" || typeof key !== "string")
            return 400;
        const identity = await this.forSessions.signIn(typeof token === "string" ? token : undefined, scope);
        if (typeof identity === "string")
            return 403;
        const held = this.room(scope).caches.get(cache);
        if (held === undefined)
            return 400;
        held.delete(key);
        return 204;
    }
    // ---- for its sockets
    opened(session) {
        this.#connections += 1;
        this.#numbers.set(session, this.#connections);
    }
    forgetSocket(socket) {
        this.#sockets.delete(socket);
        const { session } = socket;
        if (session === null)
            return;
        session.end(1006, "");
        this.#expiries.get(session)?.();
        this.#expiries.delete(session);
        this.#numbers.delete(session);
    }
    #peer() {
        return {
            open: (url) => new this.WebSocket(url),
            beacon: (body) => {
                void this.leave(body);
                return true;
            },
        };
    }
    #see(session, message) {
        if (this.seen.length >= SEEN_MAX)
            this.seen.shift();
        this.seen.push({ connection: this.#numbers.get(session) ?? 0, principal: session.principal, message });
    }
    #expireIn(session, ms) {
        this.#expiries.get(session)?.();
        if (ms === null)
            return;
        this.#expiries.set(session, this.#clock.after(ms, () => session.end(4001, "the session is over")));
    }
    #admit(principal) {
        const { writes } = this.options;
        if (writes === undefined)
            return null;
        const now = this.#clock.now();
        const bucket = this.#spent.get(principal) ?? { left: writes.burst, at: now };
        const left = Math.min(writes.burst, bucket.left + ((now - bucket.at) * writes.perS) / 1000);
        const admitted = left >= 1;
        this.#spent.set(principal, { left: admitted ? left - 1 : left, at: now });
        return admitted ? null : Math.ceil(((1 - left) * 1000) / writes.perS);
    }
}
function realTimer(ms, callback) {
    const timer = setTimeout(callback, ms);
    // In Node a waiting expiry alone should not keep a test process alive.
    timer.unref?.();
    return () => clearTimeout(timer);
}
