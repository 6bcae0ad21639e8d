/** Messages of the gateway's protocol, version 1 and its features: what is sent, and a reader that trusts nothing. */
import { fromBase64 } from "./bytes.js";
import { ProtocolError } from "./errors.js";
/** The version spoken here. */
export const PROTOCOL = 1;
/** Features asked for when the application names none. A gateway grants the ones it has. */
export const FEATURES = [
    "rate_limited", "binary", "resume", "refresh", "drain", "cache_versions", "state", "read", "time", "past_end", "principal",
];
/** Close codes of the gateway. */
export const CLOSE = { goingAway: 1001, policy: 1008, tooLarge: 1009, signedOut: 4001, deadPeer: 4002 };
function fail(field, type) {
    throw new ProtocolError(`\`${field}\` of a message \`${type.slice(0, 40)}\` is missing or of the wrong kind`);
}
/** Takes fields out of one message; every failure names the field and the message. */
class Reader {
    fields;
    type;
    constructor(fields, type) {
        this.fields = fields;
        this.type = type;
    }
    string(field) {
        const value = this.fields[field];
        return typeof value === "string" ? value : fail(field, this.type);
    }
    int(field) {
        return this.intOrNull(field) ?? fail(field, this.type);
    }
    intOrNull(field) {
        const value = this.fields[field];
        if (value === null || value === undefined)
            return null;
        return Number.isSafeInteger(value) ? value : fail(field, this.type);
    }
    /** Offsets and durations: whole and not negative. */
    countOrNull(field) {
        const value = this.intOrNull(field);
        return value !== null && value < 0 ? fail(field, this.type) : value;
    }
    count(field) {
        return this.countOrNull(field) ?? fail(field, this.type);
    }
    bool(field) {
        const value = this.fields[field];
        return typeof value === "boolean" ? value : fail(field, this.type);
    }
    stringOrNull(field) {
        const value = this.fields[field];
        if (value === null || value === undefined)
            return null;
        return typeof value === "string" ? value : fail(field, this.type);
    }
    bytes(field) {
        return fromBase64(this.string(field)) ?? fail(field, this.type);
    }
    bytesOrNull(field) {
        return this.fields[field] === null || this.fields[field] === undefined ? null : this.bytes(field);
    }
    strings(field) {
        const value = this.fields[field] ?? [];
        if (!Array.isArray(value) || value.some((one) => typeof one !== "string"))
            fail(field, this.type);
        return value;
    }
    readers(field) {
        const value = this.fields[field];
        if (!Array.isArray(value) || !value.every(isFields))
            fail(field, this.type);
        return value.map((one) => new Reader(one, this.type));
    }
    counts(field) {
        const value = this.fields[field] ?? {};
        if (!isFields(value) || Object.values(value).some((one) => !Number.isSafeInteger(one)))
            fail(field, this.type);
        return value;
    }
}
function isFields(value) {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
/** Reads one text frame. Throws `ProtocolError` on what is no message; an unknown type is no error. */
export function readMessage(frame) {
    let value;
    try {
        value = JSON.parse(frame);
    }
    catch {
        throw new ProtocolError(`a text frame of ${frame.length} characters is not JSON`);
    }
    if (!isFields(value) || typeof value["type"] !== "string")
        throw new ProtocolError("a message without a type");
    return messageOf(value["type"], new Reader(value, value["type"]));
}
function messageOf(type, from) {
    switch (type) {
        case "event":
            return {
                type, stream: from.string("stream"), offset: from.countOrNull("offset"),
                skippedBefore: from.countOrNull("skipped_before") ?? 0, payload: from.bytes("payload"),
            };
        case "subscribed":
            return {
                type, stream: from.string("stream"), startOffset: from.countOrNull("start_offset"),
                liveOffset: from.countOrNull("live_offset"), sub: from.countOrNull("sub"),
            };
        case "hello":
            return hello(from);
        case "error":
            return refusal(from);
        case "cache_entries":
            return { type, cache: from.string("cache"), entries: from.readers("entries").map(entry) };
        case "cache_change":
            return {
                type, cache: from.string("cache"), key: from.string("key"),
                payload: from.bytesOrNull("payload"), expiresInMs: from.countOrNull("expires_in_ms"),
            };
        case "refreshed":
            return { type, expiresInMs: from.countOrNull("expires_in_ms") };
        case "going_away":
            return { type, reconnectAfterMs: from.countOrNull("reconnect_after_ms") ?? 0 };
        default:
            return answer(type, from) ?? { type: "unknown" };
    }
}
function answer(type, from) {
    switch (type) {
        case "ack":
        case "offset":
            return { type, id: from.count("id"), offset: from.countOrNull("offset") };
        case "counter":
            return { type, id: from.count("id"), value: from.int("value") };
        case "cache_value":
            return { type, id: from.count("id"), payload: from.bytesOrNull("payload"), version: from.countOrNull("version") };
        case "cache_put_result":
        case "cache_delete_result":
            return { type, id: from.count("id"), applied: from.bool("applied"), version: from.countOrNull("version") };
        case "state_value":
            return {
                type, id: from.count("id"), payload: from.bytesOrNull("payload"),
                version: from.countOrNull("version"), asOf: from.countOrNull("as_of"),
            };
        case "records":
            return {
                type, id: from.count("id"), nextOffset: from.count("next_offset"),
                records: from.readers("records").map((one) => ({ offset: one.count("offset"), payload: one.bytes("payload") })),
            };
        default:
            return null;
    }
}
function entry(from) {
    return { key: from.string("key"), payload: from.bytes("payload"), expiresInMs: from.countOrNull("expires_in_ms") };
}
function hello(from) {
    const protocol = from.int("protocol");
    if (protocol !== PROTOCOL)
        throw new ProtocolError(`the gateway speaks version ${protocol}, this client ${PROTOCOL}`);
    return {
        type: "hello", features: from.strings("features"), namespace: from.string("namespace"),
        cacheTtlMs: from.counts("cache_ttl_ms"), missing: from.strings("missing"),
        principal: from.stringOrNull("principal"), streams: from.strings("streams"), expiresInMs: from.countOrNull("expires_in_ms"),
    };
}
function refusal(from) {
    return {
        type: "error", code: from.string("code"), message: from.string("message"), id: from.countOrNull("id"),
        stream: from.stringOrNull("stream"), cache: from.stringOrNull("cache"), oldest: from.countOrNull("oldest"),
        tail: from.countOrNull("tail"), retryAfterMs: from.countOrNull("retry_after_ms"),
    };
}
