export const DECODERS = ["auto", "text", "json", "hex", "base64"];
export function toBytes(base64) {
    const binary = atob(base64);
    const out = new Uint8Array(binary.length);
    for (let index = 0; index < binary.length; index += 1)
        out[index] = binary.charCodeAt(index);
    return out;
}
export function toBase64(data) {
    let binary = "";
    for (const byte of data)
        binary += String.fromCharCode(byte);
    return btoa(binary);
}
export function encodeText(text) {
    return toBase64(new TextEncoder().encode(text));
}
function utf8(data, cut) {
    for (let spare = 0; spare <= (cut ? 3 : 0); spare += 1) {
        try {
            return new TextDecoder("utf-8", { fatal: true }).decode(data.subarray(0, data.length - spare));
        }
        catch {
            continue;
        }
    }
    return null;
}
function looksLikeText(text) {
    return !/[\u0000-\u0008\u000e-\u001f\u007f]/.test(text);
}
export function hex(data) {
    const lines = [];
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
function pretty(text) {
    const first = text.trimStart()[0];
    if (first === undefined || !"{[\"-0123456789tfn".includes(first))
        return null;
    try {
        const value = JSON.parse(text);
        const again = JSON.stringify(value, null, 2);
        return JSON.stringify(value).replace(/\s/g, "") === text.replace(/\s/g, "") ? again : text;
    }
    catch {
        return null;
    }
}
export function decode(value, how) {
    const data = toBytes(value.base64);
    const text = utf8(data, value.cut);
    if (how === "base64")
        return { text: value.base64, as: "base64", note: null };
    if (how === "hex")
        return { text: hex(data), as: "hex", note: null };
    if (how === "text") {
        const lossy = text ?? new TextDecoder().decode(data);
        return { text: lossy, as: "text", note: text === null ? "not UTF-8: some bytes are shown as \ufffd" : null };
    }
    const structured = text === null ? null : pretty(text);
    if (how === "json") {
        if (structured !== null)
            return { text: structured, as: "json", note: null };
        return { text: text ?? hex(data), as: text === null ? "hex" : "text", note: value.cut ? "cut off, so not JSON" : "not JSON" };
    }
    if (text === null || !looksLikeText(text))
        return { text: hex(data), as: "hex", note: null };
    const first = text.trimStart()[0];
    if (structured !== null && (first === "{" || first === "["))
        return { text: structured, as: "json", note: null };
    return { text, as: "text", note: null };
}
export function preview(value, how) {
    if (value === null)
        return "";
    if (value.bytes === 0)
        return "";
    const data = toBytes(value.base64).subarray(0, 320);
    if (how === "hex")
        return Array.from(data.subarray(0, 64), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    if (how === "base64")
        return value.base64.slice(0, 240);
    const text = utf8(data, true);
    if (text === null || !looksLikeText(text))
        return Array.from(data.subarray(0, 64), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    return text.slice(0, 240).replace(/\s+/g, " ");
}
