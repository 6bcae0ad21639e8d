/** One record, shown. Everything of it is text. */

import { decode, DECODERS, preview, toBytes, type Decoder } from "./decode.js";
import { fill, h, type Child } from "./dom.js";
import { bytes, time } from "./format.js";
import { badge, select } from "./parts.js";
import type { Bytes, Header, Rec } from "./types.js";
import { copy } from "./command.js";

export function text(value: Bytes | null): string {
  return value === null ? "" : decode(value, "text").text;
}

/** Bytes with a choice of decoders, and ways to take them along. */
export function payload(value: Bytes | null, how: Decoder, load?: () => Promise<Bytes | null>): HTMLElement {
  if (value === null) return h("p", { class: "muted" }, "nothing: a tombstone, which says that the key is deleted");
  const box = h("div", { class: "payload" });
  let shown = value;
  const draw = (decoder: Decoder) => {
    const decoded = decode(shown, decoder);
    fill(
      box,
      h(
        "div",
        { class: "payload-head" },
        select(DECODERS.map((one) => [one, one === "auto" ? `auto (${decode(shown, "auto").as})` : one] as const), decoder, (next) => draw(next as Decoder), "Decoder"),
        h("span", { class: "muted" }, bytes(shown.bytes)),
        decoded.note === null ? null : badge(decoded.note, "warn"),
        h("span", { class: "grow" }),
        h("button", { class: "ghost small", type: "button", onclick: () => void copy(decoded.text, "payload") }, "Copy"),
        h("button", { class: "ghost small", type: "button", onclick: () => save(shown) }, "Save"),
      ),
      h("pre", { class: `payload-text ${decoded.as}` }, decoded.text),
      shown.cut
        ? h("p", { class: "muted" }, `The first ${bytes(toBytes(shown.base64).length)} of ${bytes(shown.bytes)}. `, load === undefined ? null : h("button", { class: "ghost small", type: "button", onclick: () => void whole(decoder) }, "Load all"))
        : null,
    );
  };
  const whole = async (decoder: Decoder) => {
    const full = await load?.();
    if (full !== undefined && full !== null) shown = full;
    draw(decoder);
  };
  draw(how);
  return box;
}

function save(value: Bytes): void {
  const data = toBytes(value.base64);
  const url = URL.createObjectURL(new Blob([data.slice().buffer], { type: "application/octet-stream" }));
  h("a", { href: url, download: "payload.bin" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export function headersTable(headers: readonly Header[]): Child {
  if (headers.length === 0) return null;
  return h(
    "table",
    { class: "headers" },
    h("tbody", {}, headers.map((header) => h("tr", {}, h("th", { scope: "row" }, header.name), h("td", {}, header.value === null ? h("i", { class: "muted" }, "null") : preview(header.value, "auto"))))),
  );
}

/** Everything about a record. */
export function detail(record: Rec, how: Decoder, load?: () => Promise<Bytes | null>): HTMLElement {
  return h(
    "div",
    { class: "record-detail" },
    h(
      "div",
      { class: "record-facts" },
      record.offset === null ? null : h("span", {}, "offset ", h("b", {}, record.offset)),
      h("span", {}, "shard ", h("b", {}, record.shard)),
      h("span", {}, time(record.timestamp_ms)),
      record.key === null ? h("span", { class: "muted" }, "no key") : h("span", {}, "key ", h("code", {}, preview(record.key, "auto"))),
      record.publisher === null ? null : h("span", {}, "by ", h("code", {}, record.publisher)),
    ),
    headersTable(record.headers),
    payload(record.value, how, load),
  );
}

/** Whether what a person looks for is in a record: in its key, value, or headers. */
export function contains(record: Rec, needle: string, places: ReadonlySet<string>): boolean {
  const wanted = needle.toLowerCase();
  const has = (value: Bytes | null) => value !== null && text(value).toLowerCase().includes(wanted);
  if (places.has("key") && has(record.key)) return true;
  if (places.has("value") && has(record.value)) return true;
  return places.has("headers") && record.headers.some((header) => header.name.toLowerCase().includes(wanted) || has(header.value));
}
