/**
 * Binary frames of the feature `binary`, little endian:
 *
 *     0      kind: 1 event (gateway to browser), 2 publish (browser to gateway)
 *     1      length of this header (32); a reader skips by this byte
 *     2..4   flags; bit 0 of a publish: an ack is wanted
 *     4..8   event: number from `subscribed.sub`; publish: index in `hello.streams`
 *     8..16  event: offset, all ones without a log; publish: id
 *     16..24 event: offsets skipped before this one
 *     24..32 event: time of the record in Unix microseconds, 0 when unknown
 *     32..   payload
 */
import { ProtocolError } from "./errors.js";
const HEADER = 32;
const EVENT = 1;
const PUBLISH = 2;
const NO_OFFSET = 0xffffffffffffffffn;
function safe(value, what) {
    if (value > BigInt(Number.MAX_SAFE_INTEGER))
        throw new ProtocolError(`${what} ${value} is over 2^53`);
    return Number(value);
}
function header(bytes, kind) {
    if (bytes.length < HEADER)
        throw new ProtocolError(`a binary frame of ${bytes.length} bytes has no header`);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const length = view.getUint8(1);
    if (view.getUint8(0) !== kind || length < HEADER || length > bytes.length) {
        throw new ProtocolError(`a binary frame of kind ${view.getUint8(0)} with a header of ${length} bytes`);
    }
    return { view, payload: bytes.subarray(length) };
}
/** Reads an event. Throws `ProtocolError` on anything else; the payload shares the frame's memory. */
export function readEvent(bytes) {
    const { view, payload } = header(bytes, EVENT);
    const offset = view.getBigUint64(8, true);
    const micros = view.getBigUint64(24, true);
    return {
        sub: view.getUint32(4, true),
        offset: offset === NO_OFFSET ? null : safe(offset, "offset"),
        skippedBefore: safe(view.getBigUint64(16, true), "skipped_before"),
        timeMs: micros === 0n ? null : Number(micros / 1000n),
        payload,
    };
}
/** Reads a publish; the fake gateway's side. */
export function readPublish(bytes) {
    const { view, payload } = header(bytes, PUBLISH);
    return {
        stream: view.getUint32(4, true),
        id: safe(view.getBigUint64(8, true), "id"),
        ack: (view.getUint16(2, true) & 1) === 1,
        payload,
    };
}
function frame(kind, payload) {
    const bytes = new Uint8Array(HEADER + payload.length);
    bytes.set(payload, HEADER);
    const view = new DataView(bytes.buffer);
    view.setUint8(0, kind);
    view.setUint8(1, HEADER);
    return { bytes, view };
}
/** Writes an event; the fake gateway's side. */
export function writeEvent(event) {
    const { bytes, view } = frame(EVENT, event.payload);
    view.setUint32(4, event.sub, true);
    view.setBigUint64(8, event.offset === null ? NO_OFFSET : BigInt(event.offset), true);
    view.setBigUint64(16, BigInt(event.skippedBefore), true);
    view.setBigUint64(24, event.timeMs === null ? 0n : BigInt(event.timeMs) * 1000n, true);
    return bytes;
}
/** Writes a publish. */
export function writePublish(publish) {
    const { bytes, view } = frame(PUBLISH, publish.payload);
    view.setUint16(2, publish.ack ? 1 : 0, true);
    view.setUint32(4, publish.stream, true);
    view.setBigUint64(8, BigInt(publish.id), true);
    return bytes;
}
