import { h, icon, ICONS } from "./dom.js";
import { toast } from "./overlay.js";
export function quote(word) {
    if (word !== "" && /^[A-Za-z0-9_./:=@%+,-]+$/.test(word))
        return word;
    return `'${word.replace(/'/g, "'\\''")}'`;
}
export function felixctl(namespace, ...words) {
    const line = ["felixctl", ...words.filter((word) => word !== null).map((word) => quote(String(word)))];
    if (namespace !== null && namespace !== "default")
        line.push("-n", quote(namespace));
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
