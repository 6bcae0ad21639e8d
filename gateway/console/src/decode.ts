/** Payloads as text, in the ways a person may want to see them. Nothing here makes markup. */

import type { Bytes } from "./types.js";

export type Decoder = "auto" | "text" | "json" | "hex" | "base64";
export const DECODERS: readonly Decoder[] = ["auto", "text", "json", "hex", "base64"];

export interface Decoded {
  text: string;
  /** What it was shown as. */
  as: Exclude<Decoder, "auto">;
  /** What is wrong with showing it so. */
  note: string | null;
}

export function toBytes(base64: string): Uint8Array {
  const binary = atob(base64);
  const out = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) out[index] = binary.charCodeAt(index);
  return out;
}

export function toBase64(data: Uint8Array): string {
  let binary = "";
  for (const byte of data) binary += String.fromCharCode(byte);
  return btoa(binary);
}

export function encodeText(text: string): string {
  return toBase64(new TextEncoder().encode(text));
}

/** Text if every byte of it is; a sequence cut off at the end of a preview does not count. */
function utf8(data: Uint8Array, cut: boolean): string | null {
  for (let spare = 0; spare <= (cut ? 3 : 0); spare += 1) {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(data.subarray(0, data.length - spare));
    } catch {
      continue;
    }
  }
  return null;
}

function looksLikeText(text: string): boolean {
  // eslint-disable-next-line no-control-regex
  return !/[\u0000-\u0008\u000e-\u001f\u007f]/.test(text);
}

export function hex(data: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = data.subarray(at, at + 16);
    const numbers = Array.from(row, (byte) => byte.toString(16).padStart(2, "0"));
    const left = numbers.slice(0, 8).join(" ").padEnd(23);
    const right = numbers.slice(8).join(" ").padEnd(23);
    const text = Array.from(row, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${left}  ${right}  ${text}`);
  }
  return lines.join("\n");
}

function pretty(text: string): string | null {
  const first = text.trimStart()[0];
  if (first === undefined || !"{[\"-0123456789tfn".includes(first)) return null;
  try {
    const value: unknown = JSON.parse(text);
    const again = JSON.stringify(value, null, 2);
    // Numbers that this browser cannot hold would be shown as others; then the text itself is the truth.
    return JSON.stringify(value).replace(/\s/g, "") === text.replace(/\s/g, "") ? again : text;
  } catch {
    return null;
  }
}

export function decode(value: Bytes, how: Decoder): Decoded {
  const data = toBytes(value.base64);
  const text = utf8(data, value.cut);
  if (how === "base64") return { text: value.base64, as: "base64", note: null };
  if (how === "hex") return { text: hex(data), as: "hex", note: null };
  if (how === "text") {
    const lossy = text ?? new TextDecoder().decode(data);
    return { text: lossy, as: "text", note: text === null ? "not UTF-8: some bytes are shown as \ufffd" : null };
  }
  const structured = text === null ? null : pretty(text);
  if (how === "json") {
    if (structured !== null) return { text: structured, as: "json", note: null };
    return { text: text ?? hex(data), as: text === null ? "hex" : "text", note: value.cut ? "cut off, so not JSON" : "not JSON" };
  }
  if (text === null || !looksLikeText(text)) return { text: hex(data), as: "hex", note: null };
  const first = text.trimStart()[0];
  if (structured !== null && (first === "{" || first === "[")) return { text: structured, as: "json", note: null };
  return { text, as: "text", note: null };
}

/** One line, for a table. */
export function preview(value: Bytes | null, how: Decoder): string {
  if (value === null) return "";
  if (value.bytes === 0) return "";
  const data = toBytes(value.base64).subarray(0, 320);
  if (how === "hex") return Array.from(data.subarray(0, 64), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  if (how === "base64") return value.base64.slice(0, 240);
  const text = utf8(data, true);
  if (text === null || !looksLikeText(text)) return Array.from(data.subarray(0, 64), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  return text.slice(0, 240).replace(/\s+/g, " ");
}
