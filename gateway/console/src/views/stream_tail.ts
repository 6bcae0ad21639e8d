/** Records as they come. What is kept is bounded, and what was not shown is counted. */

import { follow } from "../api.js";
import { commandLine, felixctl, option } from "../command.js";
import { preview } from "../decode.js";
import { fill, h } from "../dom.js";
import { count, time } from "../format.js";
import { dialog, guarded } from "../overlay.js";
import { select } from "../parts.js";
import { contains, detail } from "../record.js";
import { setQuery } from "../router.js";
import type { Rec } from "../types.js";
import type { Part } from "./stream.js";

/** Lines on the page. */
const LINES_MAX = 1000;
/** Records that wait while the tail is paused. */
const HELD_MAX = 2000;
const PLACES: ReadonlySet<string> = new Set(["key", "value", "headers"]);

export async function tail(part: Part): Promise<void> {
  const { root, space, stream, query, signal } = part;
  const shard = query.get("shard") ?? "all";
  const from = query.get("from") ?? "latest";
  let paused = false;
  let filter = query.get("q") ?? "";
  let [seen, dropped, hidden] = [0, 0, 0];
  const held: Rec[] = [];
  const lines = h("div", { class: "tail", role: "log", "aria-live": "off", tabindex: 0 });
  const dot = h("span", { class: "live-dot" });
  const numbers = h("span", { class: "muted", "data-tail": "numbers" });
  const pauseButton = h("button", { type: "button", class: "primary", "data-pause": true, onclick: () => toggle() }, "Pause");
  let waiting: HTMLElement | null = h("div", { class: "chart-empty" }, "Waiting for the next record…");
  lines.append(waiting);

  const draw = () => {
    numbers.textContent = [`${count(seen)} received`, paused ? `${count(held.length)} held` : "", `${count(dropped)} dropped`, hidden > 0 ? `${count(hidden)} filtered out` : ""].filter((text) => text !== "").join(" · ");
  };
  const show = (records: readonly Rec[]) => {
    const end = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 40;
    for (const record of records) {
      if (filter !== "" && !contains(record, filter, PLACES)) {
        hidden += 1;
        continue;
      }
      waiting?.remove();
      waiting = null;
      lines.append(tailLine(record));
    }
    while (lines.childElementCount > LINES_MAX) lines.firstElementChild?.remove();
    if (end) lines.scrollTop = lines.scrollHeight;
    draw();
  };
  const toggle = () => {
    paused = !paused;
    pauseButton.textContent = paused ? "Resume" : "Pause";
    dot.className = `live-dot ${paused ? "paused" : "live"}`;
    if (!paused) show(held.splice(0));
    draw();
  };
  const take = (event: string, data: string) => {
    if (event === "records") {
      const records = JSON.parse(data) as Rec[];
      seen += records.length;
      if (!paused) return show(records);
      held.push(...records);
      if (held.length > HELD_MAX) dropped += held.splice(0, held.length - HELD_MAX).length;
    } else if (event === "dropped") {
      const lost = (JSON.parse(data) as { count: number }).count;
      dropped += lost;
      lines.append(h("div", { class: "tail-gap" }, `${count(lost)} records came faster than this page takes them and are not shown; they are in the log`));
    } else if (event === "end") {
      lines.append(h("div", { class: "tail-gap" }, (JSON.parse(data) as { message: string }).message));
    }
    draw();
  };
  const find = h("input", { type: "search", value: filter, placeholder: "Only records that hold…  ( / )", "data-search": true, "aria-label": "Filter", oninput: () => {
    filter = find.value;
    setQuery({ q: filter });
  } });
  const shards = [["all", "all shards"], ...stream.shards.map((one) => [String(one.shard), `shard ${one.shard}`])] as [string, string][];
  root.append(
    h(
      "div",
      { class: "row center" },
      dot,
      pauseButton,
      h("button", { type: "button", class: "ghost", onclick: () => fill(lines) }, "Clear"),
      shards.length > 2 ? select(shards, shard, (next) => {
        setQuery({ shard: next === "all" ? null : next }, "push");
        dispatchEvent(new Event("felix:navigate-again"));
      }, "Shard") : null,
      numbers,
      h("span", { class: "grow" }),
      find,
    ),
    lines,
    commandLine(() => felixctl(space, "sub", stream.stream, shard === "all" ? null : option("--shard", shard), from === "latest" ? null : option("--from", from))),
  );
  draw();
  await guarded(lines, signal, () =>
    follow(
      ["ns", space, "streams", stream.stream, "tail"],
      { shard, from },
      signal,
      (told) => take(told.event, told.data),
      (now, why) => {
        dot.className = `live-dot ${paused ? "paused" : now}`;
        dot.title = now === "live" ? "live" : `interrupted: ${why}; going on by itself`;
      },
    ),
  );
}

function tailLine(record: Rec): HTMLElement {
  const open = () => dialog(`Record ${record.offset ?? ""} of shard ${record.shard}`, detail(record, "auto"));
  return h(
    "div",
    { class: "tail-line", onclick: open, "data-offset": record.offset },
    h("span", { class: "offset" }, `${record.shard}:${record.offset ?? "–"}`),
    h("span", { class: "muted" }, time(record.timestamp_ms).slice(11, 23)),
    h("span", {}, record.key === null ? "" : preview(record.key, "auto")),
    h("span", {}, record.value === null ? h("i", { class: "muted" }, "tombstone") : preview(record.value, "auto")),
  );
}

