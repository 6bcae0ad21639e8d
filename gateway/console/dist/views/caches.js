import { get } from "../api.js";
import { commandLine, felixctl } from "../command.js";
import { fill, h } from "../dom.js";
import { empty } from "../overlay.js";
import { badge, heading, poll, skeleton, table } from "../parts.js";
import { go, path, setQuery } from "../router.js";
export const caches = (params) => {
    const space = params["ns"] ?? "default";
    return { title: `Caches of ${space}`, show: (context) => show(space, context) };
};
async function show(space, { root, query, signal }) {
    const list = h("div", {}, skeleton(5));
    let filter = query.get("q") ?? "";
    let all = [];
    const draw = () => {
        const shown = all.filter((cache) => cache.cache.includes(filter));
        fill(list, shown.length === 0 ? nothing(space, all.length > 0) : cacheTable(space, shown));
    };
    const search = h("input", { type: "search", value: filter, placeholder: "Filter by name  ( / )", "data-search": true, "aria-label": "Filter by name", oninput: () => {
            filter = search.value;
            setQuery({ q: filter });
            draw();
        } });
    const name = h("input", { type: "text", placeholder: "name of a cache", "aria-label": "Name of a cache", spellcheck: "false" });
    root.append(h("div", { class: "row center" }, heading(`Namespace ${space}`, "Caches"), h("span", { class: "grow" }), search), list, h("form", { class: "row center", onsubmit: (event) => {
            event.preventDefault();
            if (name.value !== "")
                go(path(space, "caches", name.value));
        } }, h("span", { class: "muted" }, "Listed are caches that you manage or that your roles name. Another one can be opened by its name:"), name, h("button", { type: "submit" }, "Open")), commandLine(() => felixctl(space, "cache", "ls")));
    await poll(signal, 10_000, root, async () => {
        all = (await get(["ns", space, "caches"], { limit: 200 }, signal)).items;
        draw();
    });
}
function nothing(space, filtered) {
    if (filtered)
        return empty("No cache has such a name", "Change the filter above.");
    return empty("No caches yet", "A cache holds the newest value of each key, with a version, and tells whoever watches it of changes.", commandLine(() => felixctl(space, "cache", "create", "sessions")));
}
function cacheTable(space, rows) {
    const setting = (cache, name) => String(cache.settings?.[name] ?? "–");
    return table([
        { name: "Cache", kind: "wide", cell: (cache) => [h("a", { href: path(space, "caches", cache.cache) }, cache.cache), " ", cache.settings?.["durable"] === false ? badge("in memory", "warn") : null] },
        { name: "You may", cell: (cache) => [cache.may_read ? badge("read", "good") : null, " ", cache.may_write ? badge("write", "good") : null, " ", cache.may_add ? badge("count", "good") : null] },
        { name: "Shards", kind: "num", cell: (cache) => setting(cache, "shards") },
        { name: "Sync", cell: (cache) => setting(cache, "sync") },
    ], rows, (cache) => path(space, "caches", cache.cache));
}
