import { get } from "../api.js";
import { bars, chart, spark } from "../charts.js";
import { commandLine, felixctl } from "../command.js";
import { fill, h } from "../dom.js";
import { bytes, count, plural, rate, short } from "../format.js";
import { badge, card, poll, skeleton, stat } from "../parts.js";
import { link, path } from "../router.js";
import { lagSeries, rates } from "../state.js";
const EVERY_MS = 2000;
const SHOWN = 8;
export const overview = (params) => {
    const space = params["ns"] ?? "default";
    return { title: `Overview of ${space}`, show: (context) => show(space, context) };
};
async function show(space, { root, signal }) {
    const numbers = h("div", { class: "stats" }, skeleton(2));
    const throughput = h("div", {}, skeleton());
    const busiest = h("div", {}, skeleton());
    const sizes = h("div", {}, skeleton());
    const lag = h("div", {}, skeleton());
    const brokers = h("div", {}, skeleton(2));
    root.append(h("header", { class: "heading" }, h("div", { class: "kind" }, "Namespace"), h("h1", {}, space)), numbers, h("div", { class: "grid wide-first" }, card("Records a second", throughput), h("div", { class: "view" }, card("Brokers", brokers), card("Lag of groups", lag))), h("div", { class: "grid" }, card("Busiest streams", busiest), card("Bytes by stream", sizes)), commandLine(() => felixctl(space, "stream", "ls")));
    let caches = [];
    let groups = [];
    let turn = 0;
    await poll(signal, EVERY_MS, root, async () => {
        const slow = turn % 3 === 0;
        turn += 1;
        const [streams, more] = await Promise.all([
            get(["ns", space, "streams"], { limit: 200 }, signal),
            slow ? rest(space, signal) : null,
        ]);
        if (more !== null) {
            [caches, groups] = [more.caches, more.groups];
            drawBrokers(brokers, more.brokers);
            drawLag(lag, space, groups);
        }
        rates.take(space, streams.items, Date.now());
        drawNumbers(numbers, space, streams, caches, groups);
        fill(throughput, chart(rates.total(space), `records a second in ${space}`, "records/s"));
        drawBusiest(busiest, space, streams.items);
        drawSizes(sizes, space, streams.items);
    });
}
async function rest(space, signal) {
    const none = { items: [], next: null };
    const [caches, groups, brokers] = await Promise.all([
        get(["ns", space, "caches"], { limit: 200 }, signal).catch(() => none),
        get(["ns", space, "groups"], {}, signal).catch(() => none),
        get(["brokers"], {}, signal),
    ]);
    return { caches: caches.items, groups: groups.items, brokers: brokers.items };
}
function drawNumbers(where, space, streams, caches, groups) {
    const all = streams.items.flatMap((stream) => stream.shards);
    const records = all.reduce((sum, shard) => sum + shard.end - shard.start, 0);
    const size = all.reduce((sum, shard) => sum + shard.bytes, 0);
    const behind = groups.flatMap((group) => group.shards).reduce((sum, shard) => sum + shard.lag, 0);
    const letters = groups.flatMap((group) => group.shards).reduce((sum, shard) => sum + shard.dead_letters, 0);
    const total = rates.total(space);
    fill(where, stat("Streams", h("a", { href: path(space, "streams") }, `${count(streams.items.length)}${streams.next === null ? "" : "+"}`), plural(all.length, "shard")), stat("Throughput", rate(total.last), "records published"), stat("Kept", short(records), `records, ${bytes(size)}`), stat("Caches", h("a", { href: path(space, "caches") }, count(caches.length))), stat("Groups", h("a", { href: path(space, "groups") }, count(groups.length)), `${short(behind)} records behind`), stat("Dead letters", h("span", {}, count(letters)), letters === 0 ? "nothing was set aside" : h("a", { href: path(space, "groups") }, badge("look at them", "warn"))));
}
function drawBusiest(where, space, streams) {
    const ranked = streams
        .map((stream) => ({ stream, series: rates.of(space, stream.stream) }))
        .sort((a, b) => mean(b.series.points) - mean(a.series.points))
        .slice(0, SHOWN);
    fill(where, ranked.length === 0
        ? h("p", { class: "muted" }, "No streams that you may see.")
        : h("table", { class: "plain" }, h("tbody", {}, ranked.map(({ stream, series }) => h("tr", {}, h("td", { class: "wide" }, h("a", { href: path(space, "streams", stream.stream) }, stream.stream)), h("td", { class: "pic" }, spark(series, `rate of ${stream.stream}`)), h("td", { class: "num" }, rate(series.last)))))));
}
function mean(points) {
    const last = points.slice(-10);
    return last.length === 0 ? 0 : last.reduce((sum, point) => sum + point.value, 0) / last.length;
}
function drawSizes(where, space, streams) {
    const rows = streams
        .map((stream) => ({ name: stream.stream, value: stream.shards.reduce((sum, shard) => sum + shard.bytes, 0) }))
        .sort((a, b) => b.value - a.value)
        .slice(0, SHOWN)
        .map((row) => ({ ...row, text: bytes(row.value), href: path(space, "streams", row.name, "settings") }));
    fill(where, rows.length === 0 ? h("p", { class: "muted" }, "Nothing is kept yet.") : bars(rows, "bytes by stream"));
}
function drawLag(where, space, groups) {
    const rows = groups
        .map((group) => {
        const behind = group.shards.reduce((sum, shard) => sum + shard.lag, 0);
        lagSeries(`${space}/${group.stream}/${group.group}`).push(Date.now(), behind);
        return { name: `${group.group} of ${group.stream}`, value: behind, text: short(behind), group };
    })
        .sort((a, b) => b.value - a.value)
        .slice(0, SHOWN)
        .map(({ group, ...row }) => ({ ...row, tone: row.value === 0 ? "good" : row.value > 10_000 ? "bad" : "warn", href: link([space, "groups", group.stream, group.group], {}) }));
    fill(where, rows.length === 0 ? h("p", { class: "muted" }, "No groups. One begins with its first poll: ", h("code", {}, "felixctl group consume STREAM GROUP")) : bars(rows, "lag of groups"));
}
function drawBrokers(where, brokers) {
    fill(where, h("ul", { class: "broker-list" }, brokers.map((broker) => h("li", {}, h("span", { class: broker.ok ? "live-dot live" : "live-dot lost" }), " ", h("code", {}, broker.address), " ", broker.entry ? badge("entry", "accent") : null, broker.ok ? badge("answers", "good") : badge(broker.detail ?? "does not answer", "bad")))));
}
