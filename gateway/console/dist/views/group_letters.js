import { get, post } from "../api.js";
import { commandLine, felixctl, option } from "../command.js";
import { preview } from "../decode.js";
import { fill, h } from "../dom.js";
import { plural, relative, time } from "../format.js";
import { confirm, empty, guarded, toast } from "../overlay.js";
import { badge, field, select, skeleton } from "../parts.js";
import { detail } from "../record.js";
import { setQuery } from "../router.js";
import { state } from "../state.js";
export async function letters(part) {
    const { root, space, stream, group, query, signal } = part;
    const standing = await get(["ns", space, "groups", stream, group], {}, signal);
    const fullest = [...standing.shards].sort((a, b) => b.dead_letters - a.dead_letters)[0]?.shard ?? 0;
    let shard = query.get("shard") === null ? fullest : Number(query.get("shard"));
    let after = query.get("after");
    const chosen = new Set();
    const list = h("div", { class: "view" }, skeleton(4));
    const actions = h("div", { class: "row center" });
    const words = (verb) => ["group", "dead-letters", verb, stream, group, option("--shard", shard), ...[...chosen].sort((a, b) => a - b).map((offset) => option("--offset", offset))];
    const line = commandLine(() => felixctl(space, "group", "dead-letters", "ls", stream, group, option("--shard", shard)));
    const load = () => guarded(list, signal, async () => {
        const page = await get(["ns", space, "groups", stream, group, "letters"], { shard, after, limit: 50 }, signal);
        const next = page.next;
        fill(list, page.items.length === 0 ? empty("Nothing was set aside", "Records that workers gave up on, or that were handed out too often, come here with their reason.") : page.items.map((letter) => row(letter, chosen, draw)), next === null ? null : h("div", { class: "row end" }, h("button", { type: "button", "data-page": "next", onclick: () => {
                after = next;
                setQuery({ after });
                void load();
            } }, "More")));
        draw();
    });
    const act = async (verb) => {
        const offsets = [...chosen].sort((a, b) => a - b);
        const what = h("p", {}, h("b", {}, plural(offsets.length, "record")), ` of shard ${shard} `, verb === "redrive" ? "are handed out again by group " : "are dropped for good for group ", h("b", {}, group), `: ${offsets.slice(0, 20).join(", ")}${offsets.length > 20 ? ", …" : ""}`);
        const command = commandLine(() => felixctl(space, ...words(verb), verb === "discard" ? option("--yes") : null));
        const sure = verb === "discard" ? { title: "Discard dead letters", what, button: "Discard", command, danger: true, typed: group } : { title: "Redrive dead letters", what, button: "Hand out again", command };
        if (!(await confirm(sure)))
            return;
        await guarded(list, signal, async () => {
            const done = await post(["ns", space, "groups", stream, group, "letters", verb], { shard, offsets });
            toast(`${plural(done.count, "record")} ${verb === "redrive" ? "handed out again" : "dropped"}`);
            chosen.clear();
            after = null;
            setQuery({ after });
            await load();
        });
    };
    const draw = () => {
        const able = state.mayWrite && chosen.size > 0;
        fill(actions, h("span", { class: "muted" }, `${chosen.size} chosen`), h("button", { type: "button", class: "primary", disabled: !able, onclick: () => void act("redrive") }, "Redrive"), h("button", { type: "button", class: "danger", disabled: !able, onclick: () => void act("discard") }, "Discard"), state.mayWrite ? null : h("span", { class: "muted" }, "Switch editing on to move them."));
        line.refresh();
    };
    state.onEditing(draw, signal);
    const shards = standing.shards.map((one) => [String(one.shard), `shard ${one.shard} (${one.dead_letters})`]);
    root.append(h("div", { class: "row center" }, shards.length > 1 ? field("Shard", select(shards, String(shard), (next) => {
        [shard, after] = [Number(next), null];
        chosen.clear();
        setQuery({ shard, after });
        void load();
    }, "Shard")) : null, h("span", { class: "grow" }), actions), list, line);
    draw();
    await load();
}
function row(letter, chosen, changed) {
    const box = h("input", { type: "checkbox", checked: chosen.has(letter.offset), "aria-label": `Choose ${letter.offset}`, onchange: () => {
            if (box.checked)
                chosen.add(letter.offset);
            else
                chosen.delete(letter.offset);
            changed();
        } });
    const body = h("div", { class: "hidden" });
    const toggle = () => {
        body.classList.toggle("hidden");
        if (body.firstChild === null) {
            body.append(detail({ shard: letter.shard, offset: letter.offset, timestamp_ms: letter.timestamp_ms, key: letter.key, value: letter.value, headers: letter.headers, publisher: null }, "auto"));
        }
    };
    return h("section", { class: "card letter", "data-offset": letter.offset }, h("div", { class: "row center" }, box, h("span", { class: "offset" }, `offset ${letter.offset}`), badge(letter.attempts === 1 ? "1 attempt" : `${letter.attempts} attempts`), h("span", { class: "muted", title: time(letter.set_aside_at_ms) }, `set aside ${relative(letter.set_aside_at_ms)}`), h("span", { class: "grow" }), h("button", { type: "button", class: "ghost small", onclick: toggle }, "Bytes")), h("p", { class: "reason" }, letter.reason === "" ? h("i", { class: "muted" }, "no reason was given") : letter.reason), h("p", { class: "muted mono cut" }, preview(letter.value, "auto")), body);
}
