/** Records by offset, by time, from either end, and by what they hold. The address always says what is shown. */

import { get } from "../api.js";
import { meter } from "../charts.js";
import { commandLine, copy, felixctl, option, quote } from "../command.js";
import { DECODERS, preview, type Decoder } from "../decode.js";
import { fill, h, type Child } from "../dom.js";
import { bytes, count, plural, time } from "../format.js";
import { empty, guarded } from "../overlay.js";
import { field, select, skeleton } from "../parts.js";
import { detail } from "../record.js";
import { setQuery } from "../router.js";
import type { Bytes, Found, Rec, Records } from "../types.js";
import type { Part } from "./stream.js";

/** How far one search goes before it asks whether to go on. */
const WINDOWS = [1_000, 10_000, 100_000, 1_000_000] as const;

interface Look {
  shard: number;
  /** `earliest`, `newest`, an offset, `-10m`, or a time of RFC 3339. */
  from: string;
  count: number;
  as: Decoder;
  q: string;
  in: string;
  window: number;
  /** Where what is shown begins, once it is there. */
  shown: number | null;
}

function read(query: URLSearchParams): Look {
  const number = (name: string, other: number) => {
    const value = Number(query.get(name) ?? other);
    return Number.isSafeInteger(value) && value >= 0 ? value : other;
  };
  const as = query.get("as") as Decoder | null;
  return {
    shard: number("shard", 0),
    from: query.get("from") ?? "newest",
    count: Math.min(200, Math.max(1, number("count", 50))),
    as: as !== null && DECODERS.includes(as) ? as : "auto",
    q: query.get("q") ?? "",
    in: query.get("in") ?? "key,value,headers",
    window: number("window", 10_000),
    shown: null,
  };
}

export async function browse(part: Part): Promise<void> {
  const { root, space, stream, signal } = part;
  const look = read(part.query);
  const say = h("div", { class: "row center said", role: "status" });
  const list = h("div", {}, skeleton(8));
  const line = commandLine(() => command(space, stream.stream, look));
  const form = controls(part, look, (changes) => reload(changes));
  const reload = (changes: Partial<Look>) => {
    Object.assign(look, changes);
    setQuery({ shard: look.shard === 0 ? null : look.shard, from: look.from === "newest" ? null : look.from, count: look.count === 50 ? null : look.count, as: look.as === "auto" ? null : look.as, q: look.q, in: look.in === "key,value,headers" ? null : look.in, window: look.window === 10_000 ? null : look.window });
    line.refresh();
    return guarded(list, signal, () => (look.q === "" ? page(part, look, { say, list, reload, moved }) : search(part, look, { say, list, reload, moved })));
  };
  // Where the page begins is known when it is there; the command then says so, and the fields if they were not left to choose.
  const moved = (fields: boolean) => {
    if (fields) form.sync();
    line.refresh();
  };
  root.append(form.node, say, list, line);
  await reload({});
}

type Reload = (changes: Partial<Look>) => Promise<void>;

/** Where a page is shown, and who is told. */
interface Place {
  say: HTMLElement;
  list: HTMLElement;
  reload: Reload;
  moved(fields: boolean): void;
}

/** Which of the ways to begin a position is. */
function kindOf(from: string): string {
  if (from === "earliest" || from === "newest") return from;
  return /^\d+$/.test(from) ? "offset" : "time";
}

function command(space: string, stream: string, look: Look): string {
  const from = option("--from", look.from === "newest" ? (look.shown ?? "earliest") : look.from);
  const shard = option("--shard", look.shard);
  if (look.q === "") return felixctl(space, "read", stream, from, shard, option("--count", look.count));
  const places = { key: "%k", value: "%v", headers: "%h" };
  const format = look.in.split(",").map((place) => places[place as keyof typeof places] ?? "").join(" ");
  return `${felixctl(space, "read", stream, from, shard, option("--count", look.window), option("-f", `%o ${format}\\n`))} | grep -i -F -e ${quote(look.q)}`;
}

function controls(part: Part, look: Look, reload: Reload): { node: HTMLElement; sync(): void } {
  const kind = kindOf(look.from);
  const at = h("input", { type: "text", value: kind === "offset" || kind === "time" ? look.from : "", placeholder: placeholder(kind), "aria-label": "Start", size: 24, spellcheck: "false" });
  at.classList.toggle("hidden", kind === "earliest" || kind === "newest");
  const start = select([["newest", "Newest records"], ["earliest", "Oldest records"], ["offset", "Offset"], ["time", "Time"]], kind, (next) => {
    at.classList.toggle("hidden", next === "earliest" || next === "newest");
    at.placeholder = placeholder(next);
    if (next === "earliest" || next === "newest") void reload({ from: next });
    else at.focus();
  }, "Begin with");
  const shards = part.stream.shards.map((shard) => [String(shard.shard), `${shard.shard}`] as const);
  const find = h("input", { type: "search", value: look.q, placeholder: "Search key, value and headers  ( / )", "data-search": true, "aria-label": "Search" });
  const places = new Set(look.in.split(","));
  const place = (id: string, name: string) => {
    const box = h("input", { type: "checkbox", checked: places.has(id), onchange: () => {
      if (box.checked) places.add(id);
      else places.delete(id);
    } });
    return h("label", { class: "check" }, box, name);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    const begin = start.value === "offset" || start.value === "time" ? at.value.trim() : start.value;
    void reload({ from: begin === "" ? "newest" : begin, q: find.value.trim(), in: ["key", "value", "headers"].filter((one) => places.has(one)).join(",") || "value" });
  };
  const sync = () => {
    start.value = kindOf(look.from);
    at.value = start.value === "offset" || start.value === "time" ? look.from : "";
    at.classList.toggle("hidden", at.value === "");
  };
  const node = h(
    "form",
    { class: "card", onsubmit: submit },
    h(
      "div",
      { class: "row" },
      shards.length > 1 ? field("Shard", select(shards, String(look.shard), (next) => void reload({ shard: Number(next) }), "Shard")) : null,
      field("Begin with", start),
      at,
      field("Rows", select([25, 50, 100, 200].map((one) => [String(one), String(one)] as const), String(look.count), (next) => void reload({ count: Number(next) }), "Rows")),
      field("Show as", select(DECODERS.map((one) => [one, one] as const), look.as, (next) => void reload({ as: next as Decoder }), "Show as")),
      h("button", { class: "primary", type: "submit" }, "Show"),
      h("span", { class: "grow" }),
      h("button", { class: "ghost", type: "button", title: "The address holds every filter of this view", onclick: () => void copy(location.href, "link") }, "Copy link"),
    ),
    h("div", { class: "row center" }, h("div", { class: "grow search-field" }, find), place("key", "key"), place("value", "value"), place("headers", "headers"), select(WINDOWS.map((one) => [String(one), `within ${count(one)} records`] as const), String(look.window), (next) => void reload({ window: Number(next) }), "Search within")),
  );
  return { node, sync };
}

function placeholder(kind: string): string {
  return kind === "time" ? "-10m or 2026-11-30T09:15:00Z" : "57";
}

function request(look: Look): Record<string, string | number> {
  return look.from === "newest" ? { shard: look.shard, before: "end", count: look.count } : { shard: look.shard, from: look.from, count: look.count };
}

async function page(part: Part, look: Look, place: Place, query = request(look)): Promise<void> {
  const { space, stream, signal } = part;
  const { say, list, reload } = place;
  const found = await get<Records>(["ns", space, "streams", stream.stream, "records"], query, signal);
  const back = async () => {
    if (found.previous === null) return;
    await guarded(list, signal, () => page(part, look, place, { shard: look.shard, before: found.previous ?? 0, count: look.count }));
  };
  const next = () => (found.next === null ? undefined : void reload({ from: String(found.next) }));
  look.shown = found.from;
  const chosen = look.from !== "newest" || "from" in query || query["before"] !== "end";
  if (chosen) {
    look.from = String(found.from);
    setQuery({ from: found.from });
  }
  place.moved(chosen);
  const last = found.records.at(-1)?.offset;
  fill(
    say,
    h("b", { "data-from": found.from }, `From offset ${count(found.from)}`),
    h("span", { class: "muted" }, `${plural(found.records.length, "record")}${last === undefined || last === null ? "" : `, to ${count(last)}`} · the shard holds ${count(found.start)} to ${found.end === found.start ? "nothing" : count(found.end - 1)}`),
    h("span", { class: "grow" }),
    h("button", { type: "button", class: "small", "data-page": "back", disabled: found.previous === null, onclick: () => void back() }, "← Older"),
    h("button", { type: "button", class: "small", "data-page": "next", disabled: found.next === null, onclick: next }, "Newer →"),
  );
  fill(list, found.records.length === 0 ? none(space, stream.stream, found) : records(part, found.records, look.as));
}

function none(space: string, stream: string, found: Records): HTMLElement {
  if (found.end > found.start) return empty("No records from here on", `The newest record is ${found.end - 1}. What is published next has offset ${found.end}.`);
  return empty("This shard holds no records", "Publish one under Publish, or from the command line:", commandLine(() => felixctl(space, "pub", stream, "hello")));
}

/** A table of records; a row opens to show everything. */
export function records(part: Pick<Part, "space" | "stream" | "signal">, rows: readonly Rec[], as: Decoder): HTMLElement {
  const body = h("tbody", {});
  for (const record of rows) {
    let open: HTMLElement | null = null;
    const toggle = (event: Event) => {
      if (event instanceof KeyboardEvent && event.key !== "Enter") return;
      event.preventDefault();
      row.classList.toggle("selected", open === null);
      row.setAttribute("aria-expanded", String(open === null));
      if (open !== null) {
        open.remove();
        open = null;
        return;
      }
      open = h("tr", { class: "detail-row" }, h("td", { colspan: 5 }, detail(record, as, () => whole(part, record))));
      row.after(open);
    };
    const row = h(
      "tr",
      { class: "open", tabindex: 0, "aria-expanded": "false", "data-offset": record.offset, onclick: toggle, onkeydown: toggle },
      h("td", { class: "num offset" }, record.offset ?? "–"),
      h("td", { class: "hide-small" }, time(record.timestamp_ms)),
      h("td", { class: "key", title: preview(record.key, as) }, record.key === null ? h("span", { class: "muted" }, "–") : preview(record.key, as)),
      h("td", { class: "preview" }, value(record, as)),
      h("td", { class: "num hide-small muted" }, record.value === null ? "" : bytes(record.value.bytes)),
    );
    body.append(row);
  }
  const names = [["Offset", "num"], ["Time", "hide-small"], ["Key", ""], ["Value", ""], ["Size", "num hide-small"]] as const;
  return h("div", { class: "table-box" }, h("table", { class: "records" }, h("thead", {}, h("tr", {}, names.map(([name, kind]) => h("th", { class: kind, scope: "col" }, name)))), body));
}

function value(record: Rec, as: Decoder): Child {
  if (record.value === null) return h("i", { class: "muted" }, "tombstone");
  if (record.value.bytes === 0) return h("i", { class: "muted" }, "empty");
  return preview(record.value, as);
}

/** A record with all its bytes. */
async function whole(part: Pick<Part, "space" | "stream" | "signal">, record: Rec): Promise<Bytes | null> {
  if (record.offset === null) return record.value;
  const found = await get<Rec>(["ns", part.space, "streams", part.stream.stream, "records", record.offset], { shard: record.shard }, part.signal);
  return found.value;
}

/** Goes through a window of the shard piece by piece, shows what was found so far, and can be stopped. */
async function search(part: Part, look: Look, { say, list, moved }: Place): Promise<void> {
  const { space, stream, signal } = part;
  const shard = stream.shards.find((one) => one.shard === look.shard);
  const stop = new AbortController();
  signal.addEventListener("abort", () => stop.abort(), { once: true });
  const matches: Rec[] = [];
  let from: string | number = look.from === "newest" ? Math.max(shard?.start ?? 0, (shard?.end ?? 0) - look.window) : look.from;
  look.shown = typeof from === "number" ? from : null;
  moved(false);
  let scanned = 0;
  let finished = false;
  const draw = () => {
    fill(
      say,
      h("b", {}, plural(matches.length, "match"), matches.length === 1 ? "" : "es"),
      h("span", { class: "muted" }, `in ${count(scanned)} of ${count(look.window)} records`),
      h("div", { class: "search-progress" }, meter(finished ? 1 : scanned / look.window, finished ? "good" : undefined, "progress of the search")),
      finished ? null : h("button", { type: "button", class: "small", onclick: () => stop.abort() }, "Stop"),
    );
  };
  fill(list, skeleton(3));
  while (!stop.signal.aborted && scanned < look.window && matches.length < 500) {
    draw();
    const found: Found = await get<Found>(["ns", space, "streams", stream.stream, "search"], { shard: look.shard, from, q: look.q, in: look.in, most: Math.min(5_000, look.window - scanned) }, stop.signal).catch((error: unknown) => {
      if (stop.signal.aborted) return { matches: [], scanned: 0, next: null, end: 0 };
      throw error;
    });
    scanned += found.scanned;
    if (found.matches.length > 0 || matches.length === 0) {
      matches.push(...found.matches);
      fill(list, matches.length === 0 ? skeleton(3) : records(part, matches, look.as));
    }
    if (found.next === null) break;
    from = found.next;
  }
  finished = true;
  if (signal.aborted) return;
  draw();
  if (matches.length === 0) fill(list, empty("Nothing found", `No ${look.in.split(",").join(", ")} of these ${count(scanned)} records holds “${look.q}”. Search within more records, or begin elsewhere.`));
}
