import { pause } from "./api.js";
import { fill, h } from "./dom.js";
import { problem } from "./overlay.js";
import { Refused } from "./api.js";
import { go } from "./router.js";
export async function poll(signal, everyMs, root, run) {
    const notice = h("div", { class: "notice-slot" });
    root.prepend(notice);
    while (!signal.aborted) {
        if (!document.hidden) {
            try {
                await run();
                if (notice.firstChild !== null)
                    fill(notice);
            }
            catch (error) {
                if (signal.aborted)
                    return;
                if (error instanceof Refused && (error.code === "signed_out" || error.code === "unauthenticated")) {
                    dispatchEvent(new CustomEvent("felix:signed-out"));
                    return;
                }
                fill(notice, problem(error));
            }
        }
        await pause(everyMs, signal);
    }
}
export function table(columns, rows, href) {
    return h("div", { class: "table-box" }, h("table", {}, h("thead", {}, h("tr", {}, columns.map((column) => h("th", { class: column.kind ?? "", scope: "col" }, column.name)))), h("tbody", {}, rows.map((row) => tableRow(columns, row, href?.(row) ?? null)))));
}
function tableRow(columns, row, href) {
    const open = (event) => {
        if (href === null || (event.target instanceof Element && event.target.closest("a,button,input") !== null))
            return;
        go(href);
    };
    return h("tr", href === null
        ? {}
        : {
            tabindex: 0,
            class: "open",
            "data-row": href,
            onclick: open,
            onkeydown: (event) => {
                if (event.key === "Enter")
                    open(event);
            },
        }, columns.map((column) => h("td", { class: column.kind ?? "", "data-label": column.name }, column.cell(row))));
}
export function card(title, ...content) {
    return h("section", { class: "card" }, h("h2", { class: "card-title" }, title), content);
}
export function stat(name, value, note) {
    return h("div", { class: "stat" }, h("div", { class: "stat-name" }, name), h("div", { class: "stat-value" }, value), note === undefined ? null : h("div", { class: "stat-note" }, note));
}
export function badge(text, tone = "") {
    return h("span", { class: `badge ${tone}` }, text);
}
export function heading(kind, name, ...badges) {
    return h("header", { class: "heading" }, h("div", { class: "kind" }, kind), h("h1", {}, name, " ", badges));
}
export function tabs(list, current) {
    return h("nav", { class: "tabs", "aria-label": "Views" }, list.map((tab) => h("a", { href: tab.href, class: tab.id === current ? "tab current" : "tab", "aria-current": tab.id === current ? "page" : null }, tab.name)));
}
export function field(label, input, note) {
    return h("label", { class: "field" }, h("span", {}, label), input, note === undefined ? null : h("small", { class: "muted" }, note));
}
export function select(options, value, change, label) {
    const box = h("select", { "aria-label": label, onchange: () => change(box.value) }, options.map(([id, name]) => h("option", { value: id, selected: id === value }, name)));
    return box;
}
export function skeleton(lines = 4) {
    return h("div", { class: "skeleton", "aria-busy": "true", "aria-label": "loading" }, Array.from({ length: lines }, () => h("div", { class: "skeleton-line" })));
}
export function facts(rows) {
    return h("dl", { class: "facts" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
