const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });
/** The bytes that `payload` is sent as. */
export function encode(payload) {
    if (payload instanceof Uint8Array)
        return payload;
    if (payload instanceof ArrayBuffer)
        return new Uint8Array(payload);
    if (typeof payload === "string")
        return encoder.encode(payload);
    return encoder.encode(JSON.stringify(payload));
}
/** UTF-8 text; throws `TypeError` on bytes that are none. */
export function text(bytes) {
    return decoder.decode(bytes);
}
/** JSON text as a value that nobody checked yet. */
export function json(bytes) {
    return JSON.parse(text(bytes));
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
