import { UsageError } from "./errors.js";

/** What may be written: bytes (of any view) as they are, text as UTF-8, everything else as JSON. */
export type Payload = ArrayBufferView | ArrayBuffer | string | number | boolean | null | object;

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** The bytes that `payload` is sent as, a copy: what waits does not change when the caller uses a buffer again. */
export function encode(payload: Payload): Uint8Array {
  if (typeof payload === "string") return encoder.encode(payload);
  if (ArrayBuffer.isView(payload)) return new Uint8Array(payload.buffer, payload.byteOffset, payload.byteLength).slice();
  if (payload instanceof ArrayBuffer) return new Uint8Array(payload.slice(0));
  // Their JSON is `{}`: their bytes are only to be had by waiting.
  if (typeof Blob !== "undefined" && payload instanceof Blob) throw new UsageError("a Blob is no payload; pass `await blob.arrayBuffer()`");
  const written = JSON.stringify(payload) as string | undefined;
  if (written === undefined) throw new UsageError(`\`${typeof payload}\` has no JSON`);
  return encoder.encode(written);
}

/** UTF-8 text; throws `TypeError` on bytes that are none. */
export function text(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

/** JSON text as a value that nobody checked yet. */
export function json(bytes: Uint8Array): unknown {
  return JSON.parse(text(bytes));
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}

/** Standard base64 with padding (RFC 4648, section 4). */
export function toBase64(bytes: Uint8Array): string {
  // Characters are handed over in slices: a spread of all of them overflows the stack.
  let characters = "";
  for (let start = 0; start < bytes.length; start += 0x8000) {
    characters += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  }
  return btoa(characters);
}

/** The bytes of standard base64; `null` when it is none. */
export function fromBase64(encoded: string): Uint8Array | null {
  if (encoded.length % 4 !== 0) return null;
  try {
    const characters = atob(encoded);
    const bytes = new Uint8Array(characters.length);
    for (let at = 0; at < characters.length; at += 1) bytes[at] = characters.charCodeAt(at);
    return bytes;
  } catch {
    return null;
  }
}

/** A record of a stream whose gateway stamps senders (`stamp_sender`): 2 bytes big endian, the name, the payload. */
export interface Stamped {
  readonly sender: string;
  readonly payload: Uint8Array;
}

/** Splits sender and payload; `null` when the bytes carry no stamp. */
export function unstamp(bytes: Uint8Array): Stamped | null {
  if (bytes.length < 2) return null;
  const length = ((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0);
  if (bytes.length < 2 + length) return null;
  try {
    return { sender: text(bytes.subarray(2, 2 + length)), payload: bytes.subarray(2 + length) };
  } catch {
    return null;
  }
}
