import { UsageError } from "./errors.js";
const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });
/** The bytes that `payload` is sent as, a copy: what waits does not change when the caller uses a buffer again. */
export function encode(payload) {
    if (typeof payload === "string")
        return encoder.encode(payload);
    if (ArrayBuffer.isView(payload))
        return new Uint8Array(payload.buffer, payload.byteOffset, payload.byteLength).slice();
    if (payload instanceof ArrayBuffer)
        return new Uint8Array(payload.slice(0));
    // Their JSON is `{}`: their bytes are only to be had by waiting.
    if (typeof Blob !== "undefined" && payload instanceof Blob)
        throw new UsageError("a Blob is no payload; pass `await blob.arrayBuffer()`");
    const written = JSON.stringify(payload);
    if (written === undefined)
        throw new UsageError(`\`${typeof payload}\` has no JSON`);
    return encoder.encode(written);
}
/** UTF-8 text; throws `TypeError` on bytes that are none. */
export function text(bytes) {
    return decoder.decode(bytes);
}
/** JSON text as a value that nobody checked yet. */
export function json(bytes) {
    return JSON.parse(text(bytes));
}
export function sameBytes(a, b) {
    return a.length === b.length && a.every((byte, at) => byte === b[at]);
}
/** Standard base64 with padding (RFC 4648, section 4). */
export function toBase64(bytes) {
    // Characters are handed over in slices: a spread of all of them overflows the stack.
    let characters = "";
    for (let start = 0; start < bytes.length; start += 0x8000) {
        characters += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
    }
    return btoa(characters);
}
/** The bytes of standard base64; `null` when it is none. */
export function fromBase64(encoded) {
    if (encoded.length % 4 !== 0)
        return null;
    try {
        const characters = atob(encoded);
        const bytes = new Uint8Array(characters.length);
        for (let at = 0; at < characters.length; at += 1)
            bytes[at] = characters.charCodeAt(at);
        return bytes;
    }
    catch {
        return null;
    }
}
/** Splits sender and payload; `null` when the bytes carry no stamp. */
export function unstamp(bytes) {
    if (bytes.length < 2)
        return null;
    const length = ((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0);
    if (bytes.length < 2 + length)
        return null;
    try {
        return { sender: text(bytes.subarray(2, 2 + length)), payload: bytes.subarray(2 + length) };
    }
    catch {
        return null;
    }
}
