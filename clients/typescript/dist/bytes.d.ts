/** What may be written: bytes (of any view) as they are, text as UTF-8, everything else as JSON. */
export type Payload = ArrayBufferView | ArrayBuffer | string | number | boolean | null | object;
/** The bytes that `payload` is sent as, a copy: what waits does not change when the caller uses a buffer again. */
export declare function encode(payload: Payload): Uint8Array;
/** UTF-8 text; throws `TypeError` on bytes that are none. */
export declare function text(bytes: Uint8Array): string;
/** JSON text as a value that nobody checked yet. */
export declare function json(bytes: Uint8Array): unknown;
export declare function sameBytes(a: Uint8Array, b: Uint8Array): boolean;
/** Standard base64 with padding (RFC 4648, section 4). */
export declare function toBase64(bytes: Uint8Array): string;
/** The bytes of standard base64; `null` when it is none. */
export declare function fromBase64(encoded: string): Uint8Array | null;
/** A record of a stream whose gateway stamps senders (`stamp_sender`): 2 bytes big endian, the name, the payload. */
export interface Stamped {
    readonly sender: string;
    readonly payload: Uint8Array;
}
/** Splits sender and payload; `null` when the bytes carry no stamp. */
export declare function unstamp(bytes: Uint8Array): Stamped | null;
