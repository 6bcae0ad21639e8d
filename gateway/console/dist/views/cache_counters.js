import { get, post } from "../api.js";
import { commandLine, felixctl } from "../command.js";
import { fill, h } from "../dom.js";
import { confirm, guarded, toast } from "../overlay.js";
import { field, stat } from "../parts.js";
import { setQuery } from "../router.js";
import { state } from "../state.js";
export function counters({ root, space, cache, query, signal }) {
    const key = h("input", { type: "text", value: query.get("key") ?? "", placeholder: "page-views", "data-search": true, spellcheck: "false", "aria-label": "Key" });
    const delta = h("input", { type: "number", value: 1, step: 1, "aria-label": "Add" });
    const shown = h("div", {});
    const line = commandLine(() => felixctl(space, "counter", "get", cache.cache, key.value));
    const draw = (value) => fill(shown, stat(key.value, value === null ? "–" : String(value), value === null ? "nothing was ever added" : "the sum"));
    const look = () => guarded(shown, signal, async () => {
        setQuery({ key: key.value });
        line.refresh();
        draw((await get(["ns", space, "caches", cache.cache, "counter"], { key: key.value }, signal)).value);
    });
    const add = async () => {
        const command = commandLine(() => felixctl(space, "counter", "add", cache.cache, key.value, delta.value));
        const what = h("p", {}, h("b", {}, delta.value), " is added to counter ", h("b", {}, key.value), " of cache ", h("b", {}, cache.cache), ".");
        if (key.value === "" || !(await confirm({ title: "Add to a counter", what, button: "Add", command })))
            return;
        await guarded(shown, signal, async () => {
            draw((await post(["ns", space, "caches", cache.cache, "counter"], { key: key.value, delta: Number(delta.value) })).value);
            toast("added");
        });
    };
    const edit = h("div", { class: "row" }, field("Add", delta), h("button", { type: "button", class: "primary", onclick: () => void add() }, "Add"));
    const able = () => edit.classList.toggle("hidden", !state.mayWrite || !cache.may_add);
    state.onEditing(able, signal);
    able();
    root.append(h("form", { class: "card", onsubmit: (event) => {
            event.preventDefault();
            void look();
        } }, h("p", { class: "muted" }, "A counter is a sum under a key, beside the entries of the cache. Counters are not listed; name one."), h("div", { class: "row" }, h("div", { class: "grow" }, field("Key", key)), h("button", { type: "submit" }, "Look")), edit), shown, line);
    if (key.value !== "")
        void look();
}
