import { get, put, Refused, remove } from "../api.js";
import { commandLine, felixctl, option } from "../command.js";
import { decode, encodeText, preview } from "../decode.js";
import { fill, h } from "../dom.js";
import { bytes, duration, relative } from "../format.js";
import { confirm, empty, guarded, problem, toast } from "../overlay.js";
import { badge, card, field, skeleton } from "../parts.js";
import { payload } from "../record.js";
import { setQuery } from "../router.js";
import { state } from "../state.js";
export async function keys(part) {
    const { root, space, cache, query, signal } = part;
    let prefix = query.get("prefix") ?? "";
    let after = query.get("after");
    const list = h("div", {}, skeleton(5));
    const side = h("div", { class: "view" });
    const line = commandLine(() => felixctl(space, "cache", "ls-keys", cache.cache, prefix === "" ? null : prefix, after === null ? null : option("--after", after)));
    const open = (key) => {
        setQuery({ key });
        void entry(part, side, key, load);
    };
    const load = () => guarded(list, signal, async () => {
        const page = await get(["ns", space, "caches", cache.cache, "keys"], { prefix, after, limit: 100 }, signal);
        const next = page.next;
        fill(list, page.items.length === 0 ? empty("No keys", prefix === "" ? "Nothing is in this cache, or it has expired." : `No key begins with “${prefix}”.`) : keyTable(page.items, open), h("div", { class: "row end" }, after === null ? null : h("button", { type: "button", class: "small", "data-page": "back", onclick: () => turn(null) }, "From the first key"), next === null ? null : h("button", { type: "button", class: "small", "data-page": "next", onclick: () => turn(next) }, "More keys")));
    });
    const turn = (to) => {
        after = to;
        setQuery({ after });
        line.refresh();
        void load();
    };
    const search = h("input", { type: "search", value: prefix, placeholder: "Keys that begin with…  ( / )", "data-search": true, "aria-label": "Prefix" });
    root.append(h("form", { class: "row center", onsubmit: (event) => {
            event.preventDefault();
            [prefix, after] = [search.value, null];
            setQuery({ prefix, after });
            line.refresh();
            void load();
        } }, h("div", { class: "grow" }, search), h("button", { type: "submit" }, "List"), h("button", { type: "button", onclick: () => {
            if (search.value !== "")
                open(search.value);
        }, title: "Open exactly this key" }, "Open key")), h("div", { class: "grid" }, list, side), line);
    const key = query.get("key");
    if (key === null)
        fill(side, h("p", { class: "muted" }, "Choose a key to see its value, its version and its history."));
    else
        void entry(part, side, key, load);
    await load();
}
function keyTable(rows, open) {
    return h("div", { class: "table-box" }, h("table", { class: "records" }, h("thead", {}, h("tr", {}, ["Key", "Value", "Version", "Expires"].map((name, index) => h("th", { scope: "col", class: index > 1 ? "num" : "" }, name)))), h("tbody", {}, rows.map((row) => {
        const choose = (event) => {
            if (event instanceof KeyboardEvent && event.key !== "Enter")
                return;
            open(row.key);
        };
        return h("tr", { class: "open", tabindex: 0, onclick: choose, onkeydown: choose }, h("td", { class: "key" }, row.key), h("td", { class: "preview" }, preview(row.value, "auto")), h("td", { class: "num offset" }, row.version ?? "–"), h("td", { class: "num" }, row.expires_at_ms === null ? "never" : relative(row.expires_at_ms)));
    }))));
}
async function entry(part, side, key, changed) {
    const { space, cache, signal } = part;
    fill(side, skeleton(6));
    await guarded(side, signal, async () => {
        const found = await get(["ns", space, "caches", cache.cache, "entry"], { key }, signal);
        const past = h("div", {}, skeleton(3));
        fill(side, card([h("code", { class: "entry-key" }, key), found.version === null ? badge("holds nothing", "warn") : badge(`version ${found.version}`, "accent"), found.expires_at_ms === null ? null : badge(`expires ${relative(found.expires_at_ms)}`)], found.value === null ? h("p", { class: "muted" }, "This key holds nothing.") : payload(found.value, "auto"), editor(part, side, found, changed), commandLine(() => felixctl(space, "cache", "get", cache.cache, key))), card("History", past));
        void guarded(past, signal, () => history(part, past, key, found.version));
    });
}
async function history(part, where, key, current) {
    const { space, cache, signal } = part;
    const past = await get(["ns", space, "caches", cache.cache, "history"], { key }, signal);
    const rows = [...past.changes].reverse().map((change) => h("tr", {}, h("td", { class: "num offset" }, change.version), h("td", { class: "preview" }, change.value === null ? h("i", { class: "muted" }, "deleted or expired") : preview(change.value, "auto")), h("td", { class: "num muted" }, change.value === null ? "" : bytes(change.value.bytes)), h("td", {}, change.version === current ? badge("now", "accent") : null)));
    fill(where, past.changes.length === 0 ? h("p", { class: "muted" }, "The log holds no version of this key.") : h("div", { class: "table-box" }, h("table", { class: "records" }, h("tbody", {}, rows))), past.compacted ? h("p", { class: "muted" }, "Older versions were compacted away.") : null, commandLine(() => felixctl(space, "cache", "watch", cache.cache, option("--key", key), option("--from-offset", past.changes[0]?.version ?? 0), option("--count", Math.max(1, past.changes.length)))));
}
function editor(part, side, found, changed) {
    const { space, cache, signal } = part;
    const text = found.value === null || found.value.cut ? "" : decode(found.value, "text").text;
    const value = h("textarea", { rows: 5, value: text, spellcheck: "false" });
    const ttl = h("input", { type: "number", min: 0, placeholder: "for ever", size: 8 });
    const said = h("div", {});
    const condition = found.version === null ? option("--if-absent") : option("--if-version", found.version);
    const putLine = () => felixctl(space, "cache", "put", cache.cache, found.key, value.value, condition, ttl.value === "" ? null : option("--ttl", `${ttl.value}s`));
    const rmLine = () => felixctl(space, "cache", "rm", cache.cache, found.key, found.version === null ? null : condition, option("--yes"));
    const line = commandLine(putLine);
    for (const input of [value, ttl])
        input.addEventListener("input", () => line.refresh());
    const run = async (what, done) => {
        try {
            await what();
            toast(done);
            await Promise.all([entry(part, side, found.key, changed), changed()]);
        }
        catch (error) {
            const conflict = error instanceof Refused && error.code === "version_mismatch";
            fill(said, problem(error), conflict ? h("button", { type: "button", onclick: () => void entry(part, side, found.key, changed) }, "Load what stands there now") : null);
        }
    };
    const save = async (event) => {
        event.preventDefault();
        const life = ttl.value === "" ? null : Number(ttl.value) * 1000;
        const what = h("p", {}, "Key ", h("b", {}, found.key), " of cache ", h("b", {}, cache.cache), found.version === null ? " is set, if it still holds nothing" : ` is set, if it is still at version ${found.version}`, life === null ? "." : `, for ${duration(life)}.`);
        if (!(await confirm({ title: "Set a key", what, button: "Set", command: commandLine(putLine) })))
            return;
        const body = { key: found.key, value: encodeText(value.value), ttl_ms: life, if_version: found.version, if_absent: found.version === null };
        await run(() => put(["ns", space, "caches", cache.cache, "entry"], body), "set");
    };
    const drop = async () => {
        const what = h("p", {}, "Key ", h("b", {}, found.key), " of cache ", h("b", {}, cache.cache), " is removed, if it is still at this version.");
        if (!(await confirm({ title: "Remove a key", what, button: "Remove", command: commandLine(rmLine), danger: true })))
            return;
        await run(() => remove(["ns", space, "caches", cache.cache, "entry"], { key: found.key, if_version: found.version }), "removed");
    };
    const form = h("form", { class: "view", onsubmit: (event) => void save(event) }, field(found.value?.cut === true ? "New value (the present one is too long to edit here)" : "New value", value), h("div", { class: "row" }, field("Seconds to live", ttl), h("span", { class: "grow" }), found.version === null ? null : h("button", { type: "button", class: "danger", onclick: () => void drop() }, "Remove"), h("button", { type: "submit", class: "primary" }, found.version === null ? "Set if absent" : `Set if version ${found.version}`)), line, said);
    const able = () => form.classList.toggle("hidden", !state.mayWrite || !cache.may_write);
    state.onEditing(able, signal);
    able();
    return form;
}
