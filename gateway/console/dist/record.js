import { decode, DECODERS, preview, toBytes } from "./decode.js";
import { fill, h } from "./dom.js";
import { bytes, time } from "./format.js";
import { badge, select } from "./parts.js";
import { copy } from "./command.js";
export function text(value) {
    return value === null ? "" : decode(value, "text").text;
}
export function payload(value, how, load) {
    if (value === null)
        return h("p", { class: "muted" }, "nothing: a tombstone, which says that the key is deleted");
    const box = h("div", { class: "payload" });
    let shown = value;
    const draw = (decoder) => {
        const decoded = decode(shown, decoder);
        fill(box, h("div", { class: "payload-head" }, select(DECODERS.map((one) => [one, one === "auto" ? `auto (${decode(shown, "auto").as})` : one]), decoder, (next) => draw(next), "Decoder"), h("span", { class: "muted" }, bytes(shown.bytes)), decoded.note === null ? null : badge(decoded.note, "warn"), h("span", { class: "grow" }), h("button", { class: "ghost small", type: "button", onclick: () => void copy(decoded.text, "payload") }, "Copy"), h("button", { class: "ghost small", type: "button", onclick: () => save(shown) }, "Save")), h("pre", { class: `payload-text ${decoded.as}` }, decoded.text), shown.cut
            ? h("p", { class: "muted" }, `The first ${bytes(toBytes(shown.base64).length)} of ${bytes(shown.bytes)}. `, load === undefined ? null : h("button", { class: "ghost small", type: "button", onclick: () => void whole(decoder) }, "Load all"))
            : null);
    };
    const whole = async (decoder) => {
        const full = await load?.();
        if (full !== undefined && full !== null)
            shown = full;
        draw(decoder);
    };
    draw(how);
    return box;
}
function save(value) {
    const data = toBytes(value.base64);
    const url = URL.createObjectURL(new Blob([data.slice().buffer], { type: "application/octet-stream" }));
    h("a", { href: url, download: "payload.bin" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
}
export function headersTable(headers) {
    if (headers.length === 0)
        return null;
    return h("table", { class: "headers" }, h("tbody", {}, headers.map((header) => h("tr", {}, h("th", { scope: "row" }, header.name), h("td", {}, header.value === null ? h("i", { class: "muted" }, "null") : preview(header.value, "auto"))))));
}
export function detail(record, how, load) {
    return h("div", { class: "record-detail" }, h("div", { class: "record-facts" }, record.offset === null ? null : h("span", {}, "offset ", h("b", {}, record.offset)), h("span", {}, "shard ", h("b", {}, record.shard)), h("span", {}, time(record.timestamp_ms)), record.key === null ? h("span", { class: "muted" }, "no key") : h("span", {}, "key ", h("code", {}, preview(record.key, "auto"))), record.publisher === null ? null : h("span", {}, "by ", h("code", {}, record.publisher))), headersTable(record.headers), payload(record.value, how, load));
}
export function contains(record, needle, places) {
    const wanted = needle.toLowerCase();
    const has = (value) => value !== null && text(value).toLowerCase().includes(wanted);
    if (places.has("key") && has(record.key))
        return true;
    if (places.has("value") && has(record.value))
        return true;
    return places.has("headers") && record.headers.some((header) => header.name.toLowerCase().includes(wanted) || has(header.value));
}
