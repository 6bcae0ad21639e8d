import { get } from "../api.js";
import { meter, spark } from "../charts.js";
import { commandLine, felixctl } from "../command.js";
import { fill, h } from "../dom.js";
import { bytes, count, duration, rate } from "../format.js";
import { empty } from "../overlay.js";
import { badge, heading, poll, skeleton, table } from "../parts.js";
import { path, setQuery } from "../router.js";
import { rates } from "../state.js";
export const streams = (params) => {
    const space = params["ns"] ?? "default";
    return { title: `Streams of ${space}`, show: (context) => show(space, context) };
};
async function show(space, { root, query, signal }) {
    const list = h("div", {}, skeleton(8));
    const more = h("div", { class: "row end" });
    let filter = query.get("q") ?? "";
    let after = query.get("after");
    let page = null;
    const draw = () => {
        if (page === null)
            return;
        const shown = page.items.filter((stream) => stream.stream.includes(filter));
        fill(list, shown.length === 0 ? nothing(space, page.items.length > 0) : streamTable(space, shown));
        const next = page.next;
        fill(more, after === null ? null : h("button", { type: "button", "data-page": "back", onclick: () => turn(null) }, "First page"), next === null ? null : h("button", { type: "button", "data-page": "next", onclick: () => turn(next) }, "Next page"));
    };
    const load = async () => {
        page = await get(["ns", space, "streams"], { limit: 200, after }, signal);
        rates.take(space, page.items, Date.now());
        draw();
    };
    const turn = (to) => {
        after = to;
        setQuery({ after: to });
        void load();
    };
    const search = h("input", {
        type: "search", value: filter, placeholder: "Filter by name  ( / )", "data-search": true, "aria-label": "Filter by name",
        oninput: () => {
            filter = search.value;
            setQuery({ q: filter });
            draw();
        },
    });
    root.append(h("div", { class: "row center" }, heading(`Namespace ${space}`, "Streams"), h("span", { class: "grow" }), search), list, more, commandLine(() => felixctl(space, "stream", "ls")));
    await poll(signal, 2000, root, load);
}
function nothing(space, filtered) {
    if (filtered)
        return empty("No stream has such a name", "Change the filter above.");
    return empty("No streams yet", "A stream is a log of records. Create one, publish a record, and it is here a moment later. You see the streams that you may publish or subscribe to.", commandLine(() => felixctl(space, "stream", "create", "orders")));
}
function streamTable(space, rows) {
    const size = (stream) => stream.shards.reduce((sum, shard) => sum + shard.bytes, 0);
    const top = Math.max(1, ...rows.map(size));
    return table([
        { name: "Stream", kind: "wide", cell: (stream) => [h("a", { href: path(space, "streams", stream.stream) }, stream.stream), " ", kinds(stream)] },
        { name: "Shards", kind: "num", cell: (stream) => [String(stream.shards.length), stream.shards.some((shard) => shard.error !== null) ? [" ", badge("damaged", "bad")] : null] },
        { name: "Records", kind: "num", cell: (stream) => count(stream.shards.reduce((sum, shard) => sum + shard.end - shard.start, 0)) },
        { name: "Size", kind: "num", cell: (stream) => bytes(size(stream)) },
        { name: "", kind: "pic", cell: (stream) => meter(size(stream) / top, undefined, `size of ${stream.stream}`) },
        { name: "Kept for", kind: "num", cell: kept },
        { name: "Last two minutes", kind: "pic", cell: (stream) => spark(rates.of(space, stream.stream), `rate of ${stream.stream}`) },
        { name: "Rate", kind: "num", cell: (stream) => rate(rates.of(space, stream.stream).last) },
    ], rows, (stream) => path(space, "streams", stream.stream));
}
export function kinds(stream) {
    const all = [];
    if (!stream.durable)
        all.push(badge("in memory", "warn"));
    if (stream.compacted)
        all.push(badge("compacted"));
    if (!stream.may_subscribe)
        all.push(badge("no right to read"));
    return all;
}
export function kept(stream) {
    if (stream.compacted)
        return "newest of each key";
    const bounds = [stream.retention_ms === null ? null : duration(stream.retention_ms), stream.retention_bytes === null ? null : bytes(stream.retention_bytes)];
    const said = bounds.filter((bound) => bound !== null);
    return said.length === 0 ? "ever" : said.join(", ");
}
