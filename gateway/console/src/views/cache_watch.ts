/** Changes of a cache as they are committed. */

import { follow } from "../api.js";
import { commandLine, felixctl, option } from "../command.js";
import { preview } from "../decode.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { guarded } from "../overlay.js";
import { link, setQuery } from "../router.js";
import type { Change } from "../types.js";
import type { CachePart } from "./cache.js";

const LINES_MAX = 500;

export async function watch({ root, space, cache, query, signal }: CachePart): Promise<void> {
  const prefix = query.get("prefix") ?? "";
  let paused = false;
  let [seen, dropped] = [0, 0];
  const lines = h("div", { class: "tail", role: "log", tabindex: 0 });
  const dot = h("span", { class: "live-dot" });
  const numbers = h("span", { class: "muted" }, "waiting for the first change");
  const pauseButton = h("button", { type: "button", class: "primary", "data-pause": true, onclick: () => {
    paused = !paused;
    pauseButton.textContent = paused ? "Resume" : "Pause";
  } }, "Pause");
  const take = (event: string, data: string) => {
    if (event === "dropped") dropped += (JSON.parse(data) as { count: number }).count;
    if (event === "changes") {
      for (const change of JSON.parse(data) as Change[]) {
        seen += 1;
        if (paused) dropped += 1;
        else lines.append(changeLine(space, cache.cache, change));
      }
      while (lines.childElementCount > LINES_MAX) lines.firstElementChild?.remove();
      lines.scrollTop = lines.scrollHeight;
    }
    numbers.textContent = `${count(seen)} changes · ${count(dropped)} not shown`;
  };
  const search = h("input", { type: "search", value: prefix, placeholder: "Only keys that begin with…  ( / )", "data-search": true, "aria-label": "Prefix", onchange: () => {
    setQuery({ prefix: search.value }, "push");
    dispatchEvent(new Event("felix:navigate-again"));
  } });
  root.append(
    h("div", { class: "row center" }, dot, pauseButton, numbers, h("span", { class: "grow" }), search),
    lines,
    commandLine(() => felixctl(space, "cache", "watch", cache.cache, prefix === "" ? null : option("--prefix", prefix))),
  );
  await guarded(lines, signal, () =>
    follow(["ns", space, "caches", cache.cache, "watch"], { prefix }, signal, (told) => take(told.event, told.data), (now) => {
      dot.className = `live-dot ${now}`;
    }),
  );
}

function changeLine(space: string, cache: string, change: Change): HTMLElement {
  return h(
    "div",
    { class: "tail-line" },
    h("span", { class: "offset" }, `${change.shard}:${change.version}`),
    h("span", { class: "muted" }, change.retained ? "held" : change.value === null ? "gone" : "set"),
    h("span", {}, h("a", { href: link([space, "caches", cache], { key: change.key }) }, change.key)),
    h("span", {}, change.value === null ? h("i", { class: "muted" }, "deleted or expired") : preview(change.value, "auto")),
  );
}
