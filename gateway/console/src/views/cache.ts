/** One cache: keys, a live watch, counters, settings. */

import { get } from "../api.js";
import { commandLine, felixctl } from "../command.js";
import { h } from "../dom.js";
import { facts, card, heading, skeleton, tabs } from "../parts.js";
import { path, type Context, type View } from "../router.js";
import type { Cache } from "../types.js";

/** What a tab of a cache is given. */
export interface CachePart extends Context {
  space: string;
  cache: Cache;
}

const TABS = [
  ["keys", "Keys"],
  ["watch", "Live"],
  ["counters", "Counters"],
  ["settings", "Settings"],
] as const;

export const cache = (params: Readonly<Record<string, string>>): View => {
  const name = params["cache"] ?? "";
  return { title: `${name} · cache`, show: (context) => show(params["ns"] ?? "default", name, context) };
};

async function show(space: string, name: string, context: Context): Promise<void> {
  const wanted = context.params["tab"] ?? "";
  const tab = TABS.some(([id]) => id === wanted) ? wanted : "keys";
  const body = h("div", { class: "view" }, skeleton(6));
  context.root.append(
    heading("Cache", name),
    tabs(TABS.map(([id, title]) => ({ id, name: title, href: id === "keys" ? path(space, "caches", name) : path(space, "caches", name, id) })), tab),
    body,
  );
  const found = await get<Cache>(["ns", space, "caches", name], {}, context.signal);
  body.replaceChildren();
  const part: CachePart = { ...context, root: body, space, cache: found };
  if (tab === "keys") await (await import("./cache_keys.js")).keys(part);
  else if (tab === "watch") await (await import("./cache_watch.js")).watch(part);
  else if (tab === "counters") (await import("./cache_counters.js")).counters(part);
  else settings(part);
}

function settings({ root, space, cache: found }: CachePart): void {
  const rows = found.settings === null ? null : Object.entries(found.settings).map(([name, value]) => [name.replaceAll("_", " "), value === null ? "–" : String(value)] as const);
  root.append(
    card("Settings", rows === null ? h("p", { class: "muted" }, "Settings are shown to those who manage the cache.") : facts(rows)),
    commandLine(() => felixctl(space, "cache", "info", found.cache)),
  );
}
