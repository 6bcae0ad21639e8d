import { get } from "../api.js";
import { meter, spark } from "../charts.js";
import { commandLine, felixctl } from "../command.js";
import { fill, h } from "../dom.js";
import { count, short } from "../format.js";
import { empty } from "../overlay.js";
import { badge, heading, poll, skeleton, table } from "../parts.js";
import { path, setQuery } from "../router.js";
import { lagSeries } from "../state.js";
export const groups = (params) => {
    const space = params["ns"] ?? "default";
    return { title: `Groups of ${space}`, show: (context) => show(space, context) };
};
async function show(space, { root, query, signal }) {
    const list = h("div", {}, skeleton(5));
    let filter = query.get("q") ?? "";
    let page = { items: [], next: null };
    const draw = () => {
        const shown = page.items.filter((group) => group.group.includes(filter) || group.stream.includes(filter));
        fill(list, shown.length === 0 ? nothing(space, page.items.length > 0) : groupTable(space, shown), page.next === null ? null : h("p", { class: "muted" }, `Streams after “${page.next}” were not looked at; their groups stand at each stream.`));
    };
    const search = h("input", { type: "search", value: filter, placeholder: "Filter by name  ( / )", "data-search": true, "aria-label": "Filter by name", oninput: () => {
            filter = search.value;
            setQuery({ q: filter });
            draw();
        } });
    const line = commandLine(() => [...new Set(page.items.map((group) => group.stream))].slice(0, 8).map((stream) => felixctl(space, "group", "ls", stream)).join("; "));
    root.append(h("div", { class: "row center" }, heading(`Namespace ${space}`, "Groups"), h("span", { class: "grow" }), search), list, line);
    await poll(signal, 4000, root, async () => {
        page = await get(["ns", space, "groups"], {}, signal);
        remember(space, page.items);
        line.classList.toggle("hidden", page.items.length === 0);
        line.refresh();
        draw();
    });
}
export async function groupsOf({ root, space, stream, signal }) {
    const list = h("div", {}, skeleton(3));
    root.append(list, commandLine(() => felixctl(space, "group", "ls", stream.stream)));
    await poll(signal, 4000, root, async () => {
        const found = await get(["ns", space, "groups"], { stream: stream.stream }, signal);
        remember(space, found.items);
        fill(list, found.items.length === 0 ? nothing(space, false, stream.stream) : groupTable(space, found.items));
    });
}
function remember(space, all) {
    for (const group of all)
        lagSeries(`${space}/${group.stream}/${group.group}`).push(Date.now(), total(group, "lag"));
}
function nothing(space, filtered, stream = "STREAM") {
    if (filtered)
        return empty("No group has such a name", "Change the filter above.");
    return empty("No groups yet", "A group hands records out to workers and remembers what is finished. It begins with its first poll.", commandLine(() => felixctl(space, "group", "consume", stream, "workers")));
}
export function total(group, of) {
    return group.shards.reduce((sum, shard) => sum + shard[of], 0);
}
function groupTable(space, rows) {
    const top = Math.max(1, ...rows.map((group) => total(group, "lag")));
    return table([
        { name: "Group", kind: "wide", cell: (group) => h("a", { href: path(space, "groups", group.stream, group.group) }, group.group) },
        { name: "Stream", kind: "wide", cell: (group) => h("a", { href: path(space, "streams", group.stream) }, group.stream) },
        { name: "Behind", kind: "num", cell: (group) => short(total(group, "lag")) },
        { name: "", kind: "pic", cell: (group) => meter(total(group, "lag") / top, total(group, "lag") === 0 ? "good" : "warn", `lag of ${group.group}`) },
        { name: "Since this page", kind: "pic", cell: (group) => spark(lagSeries(`${space}/${group.stream}/${group.group}`), `lag of ${group.group}`) },
        { name: "Being worked on", kind: "num", cell: (group) => count(total(group, "in_flight")) },
        { name: "To be repeated", kind: "num", cell: (group) => count(total(group, "owed")) },
        { name: "Dead letters", kind: "num", cell: (group) => (total(group, "dead_letters") === 0 ? "0" : badge(count(total(group, "dead_letters")), "bad")) },
    ], rows, (group) => path(space, "groups", group.stream, group.group));
}
