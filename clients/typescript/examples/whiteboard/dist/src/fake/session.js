/** One connection's side of the protocol, as the gateway speaks it: version 1 and the features this package asks for. */
import { fromBase64, toBase64 } from "../bytes.js";
import { readPublish, writeEvent } from "../frame.js";
const NAME = /^[A-Za-z0-9_-]{1,64}$/;
/** A refusal of one request. */
class Refused extends Error {
    code;
    extra;
    constructor(code, message, extra = {}) {
        super(message);
        this.code = code;
        this.extra = extra;
    }
}
function bad(message) {
    throw new Refused("bad_request", message);
}
function isFields(value) {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
export class Session {
    gateway;
    outlet;
    principal = null;
    scope = "";
    #features = [];
    #room = null;
    #joining = false;
    #early = [];
    #stops = new Map();
    #subs = new Map();
    closed = false;
    constructor(gateway, outlet) {
        this.gateway = gateway;
        this.outlet = outlet;
    }
    receive(data) {
        if (this.closed)
            return;
        if (this.#joining)
            return void this.#early.push(data);
        if (typeof data !== "string")
            return this.#binary(data);
        let message;
        try {
            message = JSON.parse(data);
        }
        catch {
            message = null;
        }
        if (!isFields(message) || typeof message["type"] !== "string")
            return this.#error("bad_request", "not a message", {});
        this.gateway.seen(this, message);
        if (this.#room === null)
            return void this.#join(message);
        this.#answer(message, () => this.#take(message, this.#room));
    }
    end(code, reason) {
        if (this.closed)
            return;
        this.closed = true;
        for (const stop of this.#stops.values())
            stop();
        this.#stops.clear();
        this.outlet.close(code, reason);
    }
    has(feature) {
        return this.#features.includes(feature);
    }
    say(message) {
        if (!this.closed)
            this.outlet.send(JSON.stringify(message));
    }
    #error(code, message, extra) {
        this.say({ type: "error", code, message, ...extra });
    }
    #answer(message, work) {
        try {
            work();
        }
        catch (error) {
            if (!(error instanceof Refused))
                throw error;
            const extra = { ...error.extra };
            for (const field of ["id", "stream", "cache"])
                if (message[field] !== undefined)
                    extra[field] = message[field];
            this.#error(error.code, error.message, extra);
        }
    }
    async #join(message) {
        if (message["type"] !== "join")
            return this.#refuseJoin("bad_request", "join first");
        if ((message["protocol"] ?? 1) !== 1)
            return this.#refuseJoin("unsupported", "protocol 1 is spoken here");
        const scope = message[this.gateway.field];
        if (typeof scope !== "string" || !NAME.test(scope))
            return this.#refuseJoin("bad_request", `\`${this.gateway.field}\` is missing or not a name`);
        this.#joining = true;
        const { token } = message;
        const identity = await this.gateway.signIn(typeof token === "string" ? token : undefined, scope);
        this.#joining = false;
        if (this.closed)
            return;
        if (typeof identity === "string")
            return this.#refuseJoin(identity, `the join was refused: ${identity}`);
        this.principal = identity.principal;
        this.scope = scope;
        this.#room = this.gateway.room(scope);
        const asked = Array.isArray(message["features"]) ? message["features"] : [];
        this.#features = asked.filter((one) => typeof one === "string" && this.gateway.features.includes(one));
        const expires = identity.expiresInMs ?? null;
        this.gateway.expireIn(this, expires);
        this.say({
            type: "hello", protocol: 1, features: this.#features, namespace: "default", [this.gateway.field]: scope,
            cache_ttl_ms: this.gateway.cacheTtlMs,
            ...(this.has("binary") ? { streams: [...this.#room.streams.keys()] } : {}),
            ...(this.has("principal") ? { principal: identity.principal } : {}),
            ...(this.has("refresh") && expires !== null ? { expires_in_ms: expires } : {}),
        });
        for (const early of this.#early.splice(0))
            this.receive(early);
    }
    #refuseJoin(code, message) {
        this.#error(code, message, {});
        this.end(1008, code);
    }
    #take(message, room) {
        switch (message["type"]) {
            case "join":
                return bad("joined already");
            case "subscribe":
                return Array.isArray(message["streams"]) && this.has("resume")
                    ? message["streams"].filter(isFields).forEach((one) => this.#answer(one, () => this.#subscribe(one, room)))
                    : this.#subscribe(message, room);
            case "publish":
                return this.#publish(message, room);
            case "counter_add":
                return this.#count(message, room);
            case "cache_get":
            case "cache_put":
            case "cache_delete":
            case "cache_put_if":
            case "cache_delete_if":
            case "cache_watch":
                return this.#cache(message["type"], message, room);
            case "read":
            case "offset_for_time":
                return this.#read(message, room);
            case "refresh":
                return void this.#refresh(message);
            case "sign_out":
                return this.has("refresh") ? this.end(4001, "signed out") : bad("not granted");
            default:
                throw new Refused("unsupported", "this type is not known");
        }
    }
    #stream(message, room, action) {
        const stream = room.streams.get(String(message["stream"]));
        if (stream === undefined)
            bad("no such stream");
        if (stream.spec.actions !== undefined && !stream.spec.actions.includes(action))
            bad(`\`${action}\` is not allowed`);
        return stream;
    }
    #subscribe(message, room) {
        const stream = this.#stream(message, room, "subscribe");
        const { alias } = stream.spec;
        const from = message["from"] === "live" || !stream.durable ? stream.next : Number(message["from"]);
        if (!Number.isSafeInteger(from) || from < 0)
            bad("`from` is no offset");
        if (stream.durable && from < stream.oldest)
            throw new Refused("trimmed", `the oldest is ${stream.oldest}`, { oldest: stream.oldest });
        if (stream.durable && from > stream.next) {
            throw new Refused(this.has("past_end") ? "past_end" : "subscribe_failed", `the end is ${stream.next}`, { tail: stream.next });
        }
        this.#stops.get(`stream ${alias}`)?.();
        const sub = this.#subs.size + 1;
        this.#subs.set(`${alias} ${sub}`, sub);
        this.say({
            type: "subscribed", stream: alias,
            start_offset: stream.durable ? from : null, live_offset: stream.durable ? stream.next : null,
            ...(this.has("binary") ? { sub } : {}),
        });
        const deliver = (record) => this.#deliver(alias, sub, record);
        if (stream.durable)
            for (const record of stream.from(from))
                deliver(record);
        stream.readers.add(deliver);
        this.#stops.set(`stream ${alias}`, () => void stream.readers.delete(deliver));
    }
    #deliver(alias, sub, record) {
        if (this.closed)
            return;
        const { offset, timeMs, payload } = record;
        if (this.has("binary"))
            this.outlet.send(writeEvent({ sub, offset, skippedBefore: 0, timeMs, payload }));
        else
            this.say({ type: "event", stream: alias, offset, payload: toBase64(payload) });
    }
    #binary(data) {
        if (this.#room === null || !this.has("binary"))
            return;
        const room = this.#room;
        const publish = readPublish(data);
        const stream = [...room.streams.keys()][publish.stream];
        this.gateway.seen(this, { type: "publish", stream, id: publish.id, ack: publish.ack, binary: true });
        this.#answer({ id: publish.id }, () => {
            this.#append(this.#stream({ stream }, room, "publish"), publish.payload, publish.id, publish.ack);
        });
    }
    #publish(message, room) {
        const stream = this.#stream(message, room, "publish");
        const id = Number(message["id"]);
        if (!Number.isSafeInteger(id) || typeof message["ack"] !== "boolean")
            bad("`id` and `ack` are needed");
        this.#append(stream, this.#payload(message), id, message["ack"]);
    }
    #payload(message) {
        const payload = typeof message["payload"] === "string" ? fromBase64(message["payload"]) : null;
        return payload ?? bad("`payload` is not base64");
    }
    #append(stream, payload, id, ack) {
        this.#admit(payload.length, "publish_failed");
        const stamp = stream.spec.stampSender === true ? stamped(this.principal ?? "", payload) : payload;
        const offset = stream.append(stamp);
        if (ack)
            this.say({ type: "ack", id, offset });
    }
    /** The limits: too large is always the caller's mistake, too many is a matter of waiting. */
    #admit(bytes, otherwise) {
        if (bytes > this.gateway.maxPayloadBytes)
            bad(`${bytes} bytes are over the limit of ${this.gateway.maxPayloadBytes}`);
        const wait = this.gateway.admit(this.principal ?? "");
        if (wait === null)
            return;
        if (this.has("rate_limited"))
            throw new Refused("rate_limited", "too many writes", { retry_after_ms: wait });
        throw new Refused(otherwise, "too many writes");
    }
    #count(message, room) {
        const counter = room.counters.get(String(message["counter"])) ?? bad("no such counter");
        const delta = message["delta"];
        const key = this.#key(message);
        if (!Number.isSafeInteger(delta))
            bad("`delta` is not a whole number");
        this.#admit(0, "counter_failed");
        const value = (counter.get(key) ?? 0) + delta;
        counter.set(key, value);
        this.say({ type: "counter", id: message["id"], value });
    }
    #key(message) {
        const { key } = message;
        return typeof key === "string" && NAME.test(key) ? key : bad("`key` is not a name");
    }
    #cache(type, message, room) {
        const cache = room.caches.get(String(message["cache"])) ?? bad("no such cache");
        const action = type === "cache_get" ? "read" : type === "cache_watch" ? "watch" : "write";
        if (cache.spec.actions !== undefined && !cache.spec.actions.includes(action))
            bad(`\`${action}\` is not allowed`);
        if (action === "watch")
            return this.#watch(cache);
        const key = this.#key(message);
        const held = cache.entries.get(key);
        if (action === "read") {
            const version = this.has("cache_versions") ? { version: held?.version ?? null } : {};
            return this.say({ type: "cache_value", id: message["id"], payload: held === undefined ? null : toBase64(held.payload), ...version });
        }
        const payload = type === "cache_put" || type === "cache_put_if" ? this.#payload(message) : new Uint8Array();
        this.#admit(payload.length, "cache_failed");
        if (type === "cache_put")
            cache.put(key, payload);
        else if (type === "cache_delete")
            cache.delete(key);
        else
            this.#conditional(type, message, cache, key, held, payload);
    }
    #conditional(type, message, cache, key, held, payload) {
        if (!this.has("cache_versions"))
            throw new Refused("unsupported", "not granted");
        const { id } = message;
        if (type === "cache_delete_if") {
            const applied = held !== undefined && held.version === message["version"];
            if (applied)
                cache.delete(key);
            return this.say({ type: "cache_delete_result", id, applied, version: applied ? null : (held?.version ?? null) });
        }
        const wanted = message["if"];
        const applied = wanted === "absent" ? held === undefined : isFields(wanted) && held !== undefined && wanted["version"] === held.version;
        const version = applied ? cache.put(key, payload) : (held?.version ?? null);
        this.say({ type: "cache_put_result", id, applied, version });
    }
    #watch(cache) {
        const { alias } = cache.spec;
        this.#stops.get(`cache ${alias}`)?.();
        const entries = [...cache.entries].map(([key, stored]) => ({
            key, payload: toBase64(stored.payload), expires_in_ms: cache.expiresInMs(stored),
        }));
        this.say({ type: "cache_entries", cache: alias, entries });
        const tell = (key, stored) => this.say({
            type: "cache_change", cache: alias, key, payload: stored === null ? null : toBase64(stored.payload),
            expires_in_ms: stored === null ? null : cache.expiresInMs(stored),
        });
        cache.watchers.add(tell);
        this.#stops.set(`cache ${alias}`, () => void cache.watchers.delete(tell));
    }
    #read(message, room) {
        const stream = this.#stream(message, room, "subscribe");
        const { id } = message;
        if (message["type"] === "offset_for_time") {
            if (!this.has("time"))
                throw new Refused("unsupported", "not granted");
            const at = Number(message["at_us"]) / 1000;
            return this.say({ type: "offset", id, offset: stream.records.find((record) => record.timeMs >= at)?.offset ?? null });
        }
        if (!this.has("read"))
            throw new Refused("unsupported", "not granted");
        const from = Number(message["from"]);
        if (from < stream.oldest)
            throw new Refused("trimmed", `the oldest is ${stream.oldest}`, { oldest: stream.oldest });
        const end = Math.min(stream.next, Number(message["end"] ?? stream.next), from + (Number(message["max"]) || 1000));
        const records = stream.from(from).filter((record) => (record.offset ?? 0) < end);
        this.say({
            type: "records", id, next_offset: Math.max(from, end),
            records: records.map((record) => ({ offset: record.offset, payload: toBase64(record.payload) })),
        });
    }
    async #refresh(message) {
        if (!this.has("refresh"))
            return this.#error("unsupported", "not granted", {});
        const identity = await this.gateway.signIn(String(message["token"]), this.scope);
        if (typeof identity === "string" || identity.principal !== this.principal)
            return this.#error("signed_out", "this token is not accepted", {});
        const expires = identity.expiresInMs ?? null;
        this.gateway.expireIn(this, expires);
        this.say({ type: "refreshed", expires_in_ms: expires });
    }
}
function stamped(principal, payload) {
    const name = new TextEncoder().encode(principal);
    const bytes = new Uint8Array(2 + name.length + payload.length);
    bytes.set([name.length >> 8, name.length & 255]);
    bytes.set(name, 2);
    bytes.set(payload, 2 + name.length);
    return bytes;
}
