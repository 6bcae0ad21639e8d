import { get, post } from "../api.js";
import { bars, track } from "../charts.js";
import { commandLine, felixctl, option } from "../command.js";
import { fill, h } from "../dom.js";
import { count, short } from "../format.js";
import { confirm, guarded, toast } from "../overlay.js";
import { badge, card, field, heading, poll, select, skeleton, stat, table, tabs } from "../parts.js";
import { path, setQuery } from "../router.js";
import { state } from "../state.js";
import { total } from "./groups.js";
const TABS = [
    ["offsets", "Progress and offsets"],
    ["letters", "Dead letters"],
];
export const group = (params) => {
    const name = params["group"] ?? "";
    return { title: `${name} · group`, show: (context) => show(context) };
};
async function show(context) {
    const { root, params } = context;
    const [space, stream, name] = [params["ns"] ?? "default", params["stream"] ?? "", params["group"] ?? ""];
    const wanted = params["tab"] ?? "";
    const tab = wanted === "letters" ? "letters" : "offsets";
    const body = h("div", { class: "view" });
    const head = heading("Group", name);
    head.append(h("div", {}, "of stream ", h("a", { href: path(space, "streams", stream) }, stream)));
    root.append(head, tabs(TABS.map(([id, title]) => ({ id, name: title, href: id === "offsets" ? path(space, "groups", stream, name) : path(space, "groups", stream, name, id) })), tab), body);
    const part = { ...context, root: body, space, stream, group: name };
    if (tab === "letters")
        await (await import("./group_letters.js")).letters(part);
    else
        await offsets(part);
}
async function offsets(part) {
    const { root, space, stream, group: name, signal } = part;
    const numbers = h("div", { class: "stats" }, skeleton(2));
    const behind = h("div", {});
    const shards = h("div", {});
    const first = await get(["ns", space, "groups", stream, name], {}, signal);
    root.append(numbers, h("div", { class: "grid wide-second" }, card("Lag by shard", behind), mover(part, first)), shards, commandLine(() => felixctl(space, "group", "describe", stream, name)));
    await poll(signal, 2000, root, async () => {
        const [now, log] = await Promise.all([get(["ns", space, "groups", stream, name], {}, signal), get(["ns", space, "streams", stream], {}, signal).catch(() => null)]);
        fill(numbers, stat("Behind", short(total(now, "lag")), "records never handed out"), stat("Being worked on", count(total(now, "in_flight"))), stat("To be repeated", count(total(now, "owed"))), stat("Dead letters", h("a", { href: path(space, "groups", stream, name, "letters") }, count(total(now, "dead_letters")))));
        fill(behind, bars(now.shards.map((shard) => ({ name: `shard ${shard.shard}`, value: shard.lag, text: count(shard.lag), tone: shard.lag === 0 ? "good" : "warn" })), "lag by shard"));
        fill(shards, standings(now.shards, log));
    });
}
function standings(rows, log) {
    const start = (shard) => log?.shards.find((one) => one.shard === shard.shard)?.start ?? 0;
    return table([
        { name: "Shard", cell: (shard) => String(shard.shard) },
        { name: "Oldest", kind: "num", cell: (shard) => count(start(shard)) },
        { name: "Finished below", kind: "num", cell: (shard) => (shard.committed === null ? "–" : count(shard.committed)) },
        { name: "Next", kind: "num", cell: (shard) => count(shard.tail) },
        { name: "Progress", cell: (shard) => track(start(shard), shard.tail, shard.committed, null, `progress on shard ${shard.shard}`) },
        { name: "Behind", kind: "num", cell: (shard) => count(shard.lag) },
        { name: "Being worked on", kind: "num", cell: (shard) => count(shard.in_flight) },
        { name: "To be repeated", kind: "num", cell: (shard) => count(shard.owed) },
        { name: "Dead letters", kind: "num", cell: (shard) => count(shard.dead_letters) },
    ], rows);
}
function mover(part, first) {
    const { space, stream, group: name, signal, query } = part;
    const plan = h("div", { role: "status" });
    const at = h("input", { type: "text", value: query.get("at") ?? "", placeholder: "57", size: 22, spellcheck: "false", "aria-label": "Where to" });
    const kind = select([["earliest", "oldest record"], ["latest", "end: skip everything"], ["offset", "offset"], ["time", "time"]], query.get("to") ?? "earliest", () => changed(), "Move to");
    const shard = select([["all", "all shards"], ...first.shards.map((one) => [String(one.shard), `shard ${one.shard}`])], "all", () => changed(), "Shards");
    const target = () => (kind.value === "offset" || kind.value === "time" ? at.value.trim() : kind.value);
    const line = () => felixctl(space, "group", "seek", stream, name, option("--to", target() || "earliest"), shard.value === "all" ? null : option("--shard", shard.value));
    const shown = commandLine(line);
    const changed = () => {
        at.classList.toggle("hidden", kind.value !== "offset" && kind.value !== "time");
        at.placeholder = kind.value === "time" ? "-10m or 2026-11-30T09:15:00Z" : "57";
        setQuery({ to: kind.value === "earliest" ? null : kind.value, at: at.classList.contains("hidden") ? null : at.value });
        shown.refresh();
        fill(plan);
    };
    at.addEventListener("input", changed);
    const dry = (event) => {
        event.preventDefault();
        void guarded(plan, signal, async () => {
            const moves = (await get(["ns", space, "groups", stream, name, "plan"], { to: target(), shard: shard.value === "all" ? null : shard.value }, signal)).moves;
            const apply = h("button", { type: "button", class: "danger", disabled: !state.mayWrite, title: state.mayWrite ? "" : "Switch editing on at the top", onclick: () => void run(moves) }, "Apply this");
            state.onEditing(() => (apply.disabled = !state.mayWrite), signal);
            fill(plan, h("p", {}, badge("dry run", "accent"), " Nothing has been changed. This would happen:"), moved(moves), h("div", { class: "row end" }, apply));
        });
    };
    const run = async (moves) => {
        const what = h("div", {}, h("p", {}, "Group ", h("b", {}, name), " of stream ", h("b", {}, stream), " is moved, and claims that workers hold are void."), moved(moves));
        if (!(await confirm({ title: "Move a group", what, button: "Move it", command: commandLine(line), typed: name, danger: true })))
            return;
        await guarded(plan, signal, async () => {
            const offsets = moves.map((move) => ({ shard: move.shard, offset: move.target }));
            const done = (await post(["ns", space, "groups", stream, name, "seek"], { offsets })).moves;
            fill(plan, h("p", { class: "notice good" }, "The group was moved."), moved(done));
            toast("moved");
        });
    };
    const box = card("Set or reset offsets", h("form", { class: "view", onsubmit: dry }, h("div", { class: "row" }, field("Move to", kind), at, first.shards.length > 1 ? field("On", shard) : null, h("button", { type: "submit", class: "primary" }, "Dry run"))), plan, shown);
    changed();
    return box;
}
function moved(rows) {
    const step = (move) => move.target - (move.current ?? move.start);
    const shown = table([
        { name: "Shard", cell: (move) => String(move.shard) },
        { name: "Now at", kind: "num", cell: (move) => (move.current === null ? "–" : count(move.current)) },
        { name: "Then at", kind: "num", cell: (move) => h("b", {}, count(move.target)) },
        { name: "End", kind: "num", cell: (move) => count(move.end) },
        { name: "", cell: (move) => track(move.start, move.end, move.current, move.target, "from and to") },
        { name: "", cell: (move) => (step(move) === 0 ? badge("stays") : step(move) > 0 ? badge(`skips ${count(step(move))}`, "warn") : badge(`repeats ${count(-step(move))}`, "warn")) },
    ], rows);
    shown.classList.add("moves");
    return shown;
}
