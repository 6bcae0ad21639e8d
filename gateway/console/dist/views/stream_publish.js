import { post } from "../api.js";
import { commandLine, felixctl, option } from "../command.js";
import { encodeText } from "../decode.js";
import { fill, h } from "../dom.js";
import { bytes } from "../format.js";
import { confirm, guarded, toast } from "../overlay.js";
import { field } from "../parts.js";
import { link } from "../router.js";
import { state } from "../state.js";
export function publish({ root, space, stream, signal, query }) {
    const key = h("input", { name: "key", type: "text", value: query.get("key") ?? "", placeholder: "none", autocomplete: "off", spellcheck: "false" });
    const headers = h("textarea", { name: "headers", rows: 2, placeholder: "source=web\ntrace=42", spellcheck: "false" });
    const value = h("textarea", { name: "value", rows: 9, placeholder: "{\"id\": 1}", spellcheck: "false" });
    const said = h("div", {});
    const button = h("button", { type: "submit", class: "primary" }, "Publish");
    const size = h("span", { class: "muted" });
    const pairs = () => headers.value.split("\n").filter((line) => line.trim() !== "").map((line) => {
        const at = line.indexOf("=");
        return at === -1 ? { name: line.trim(), value: "" } : { name: line.slice(0, at).trim(), value: line.slice(at + 1) };
    });
    const words = () => ["pub", stream.stream, value.value, key.value === "" ? null : option("--key", key.value), ...pairs().map((pair) => option("-H", `${pair.name}=${pair.value}`))];
    const line = commandLine(() => felixctl(space, ...words()));
    const changed = () => {
        line.refresh();
        const length = new TextEncoder().encode(value.value).length;
        size.textContent = `${bytes(length)} of at most ${bytes(stream.max_record_bytes)}`;
    };
    for (const input of [key, headers, value])
        input.addEventListener("input", changed);
    const able = () => {
        button.disabled = !state.mayWrite || !stream.may_publish;
        const why = !stream.may_publish ? "Your roles do not let you publish here." : state.me?.writable !== true ? "The gateway runs this console read-only." : !state.editing ? "Switch editing on at the top to publish." : "";
        fill(note, why);
        note.classList.toggle("hidden", why === "");
    };
    const note = h("p", { class: "notice" });
    const submit = async (event) => {
        event.preventDefault();
        const what = h("p", {}, "One record goes to stream ", h("b", {}, stream.stream), key.value === "" ? " without a key." : [" under key ", h("b", {}, key.value), "."]);
        const command = commandLine(() => felixctl(space, ...words()));
        if (!(await confirm({ title: `Publish to ${stream.stream}`, what, button: "Publish", command })))
            return;
        button.disabled = true;
        await guarded(said, signal, async () => {
            const body = {
                key: key.value === "" ? null : encodeText(key.value),
                headers: pairs().map((pair) => ({ name: pair.name, value: encodeText(pair.value) })),
                value: encodeText(value.value),
            };
            const done = await post(["ns", space, "streams", stream.stream, "records"], body);
            const where = done.offset === null ? null : h("a", { href: link([space, "streams", stream.stream], { shard: done.shard, from: done.offset }) }, `offset ${done.offset} of shard ${done.shard}`);
            fill(said, h("p", { class: "notice good", role: "status" }, "Published", where === null ? "." : [" at ", where, "."], " ", stream.acknowledged_means));
            toast("published");
        });
        able();
    };
    root.append(h("form", { class: "card", onsubmit: (event) => void submit(event) }, note, h("div", { class: "row" }, field("Key", key, "records of one key keep their order")), field("Headers, one NAME=VALUE a line", headers), field("Value", value), h("p", { class: "sentence" }, "An acknowledgement means: ", stream.acknowledged_means, "."), h("div", { class: "row center" }, size, h("span", { class: "grow" }), button)), said, line);
    state.onEditing(able, signal);
    able();
    changed();
}
