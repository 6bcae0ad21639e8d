import { h, icon, ICONS } from "./dom.js";
import { toast } from "./overlay.js";
export function quote(word) {
    if (/^[A-Za-z0-9_./:=@%+,-]+$/.test(word))
        return word;
    return `'${word.replace(/'/g, "'\\''")}'`;
}
export function option(name, value = null) {
    return { option: name, value };
}
function written({ option: name, value }) {
    if (value === null)
        return name;
    const word = quote(String(value));
    return String(value).startsWith("-") ? `${name}=${word}` : `${name} ${word}`;
}
export function felixctl(namespace, ...words) {
    const line = ["felixctl"];
    const last = [];
    for (const word of words) {
        if (word === null)
            continue;
        if (typeof word === "object")
            line.push(written(word));
        else
            (last.length > 0 || String(word).startsWith("-") ? last : line).push(quote(String(word)));
    }
    if (namespace !== null && namespace !== "default")
        line.push(written(option("-n", namespace)));
    if (last.length > 0)
        line.push("--", ...last);
    return line.join(" ");
}
export async function copy(text, what) {
    try {
        await navigator.clipboard.writeText(text);
        toast(`${what} copied`);
    }
    catch {
        toast("the browser does not let this page copy; select the text instead", "bad");
    }
}
export function commandLine(line) {
    const text = h("code", { class: "command-text", tabindex: 0, "aria-label": "equivalent felixctl command" }, line());
    const button = h("button", { class: "ghost small", type: "button", title: "Copy the felixctl command", "aria-label": "Copy the felixctl command", onclick: () => void copy(line(), "command") }, icon(ICONS.copy));
    const box = h("div", { class: "command" }, h("span", { class: "prompt", "aria-hidden": "true" }, "$"), text, button);
    return Object.assign(box, {
        refresh: () => {
            text.textContent = line();
        },
    });
}
