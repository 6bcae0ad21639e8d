import { advice, Refused } from "./api.js";
import { fill, h } from "./dom.js";
let toasts = null;
export function toast(text, tone = "good") {
    toasts ??= document.body.appendChild(h("div", { class: "toasts", role: "status", "aria-live": "polite" }));
    const one = h("div", { class: `toast ${tone}` }, text);
    toasts.append(one);
    setTimeout(() => one.remove(), tone === "bad" ? 7000 : 2600);
}
export function dialog(title, ...content) {
    const box = h("dialog", { class: "dialog", "aria-label": title }, h("header", { class: "dialog-head" }, h("h2", {}, title), h("button", { class: "ghost small", type: "button", "aria-label": "Close", onclick: () => box.close() }, "✕")), h("div", { class: "dialog-body" }, content));
    box.addEventListener("close", () => box.remove());
    box.addEventListener("click", (event) => {
        if (event.target === box)
            box.close();
    });
    document.body.append(box);
    box.showModal();
    return box;
}
export function confirm(question) {
    return new Promise((resolve) => {
        let answer = false;
        const yes = h("button", { class: question.danger === true ? "danger" : "primary", type: "submit" }, question.button);
        const input = question.typed === undefined ? null : h("input", { type: "text", autocomplete: "off", spellcheck: "false", "aria-label": `Type ${question.typed} to go on` });
        if (input !== null) {
            yes.disabled = true;
            input.addEventListener("input", () => {
                yes.disabled = input.value !== question.typed;
            });
        }
        const form = h("form", {
            onsubmit: (event) => {
                event.preventDefault();
                if (yes.disabled)
                    return;
                answer = true;
                box.close();
            },
        }, h("div", { class: "confirm-what" }, question.what), input === null ? null : h("label", { class: "field" }, h("span", {}, "Type ", h("b", {}, question.typed ?? ""), " to go on"), input), h("p", { class: "muted" }, "The same on the command line:"), question.command, h("div", { class: "row end" }, h("button", { class: "ghost", type: "button", onclick: () => box.close() }, "Cancel"), yes));
        const box = dialog(question.title, form);
        box.addEventListener("close", () => resolve(answer));
        (input ?? yes).focus();
    });
}
export function problem(error, again) {
    if (error instanceof Refused) {
        return h("div", { class: "problem", role: "alert" }, h("p", { class: "problem-what" }, h("code", { class: "code" }, error.code), " ", error.body.message), h("p", {}, advice(error.body)), h("p", { class: "muted small-text" }, "Request ", h("code", {}, error.body.request_id), error.body.number === undefined ? null : [" · stands at ", h("code", {}, error.body.number)]), again === undefined || error.body.retry === "never" ? null : h("button", { class: "ghost", type: "button", onclick: again }, "Try again"));
    }
    const message = error instanceof Error ? error.message : String(error);
    return h("div", { class: "problem", role: "alert" }, h("p", { class: "problem-what" }, h("code", { class: "code" }, "page_error"), " ", message), h("p", {}, "This is a fault of the page itself. Loading it again may help."), again === undefined ? null : h("button", { class: "ghost", type: "button", onclick: again }, "Try again"));
}
export async function guarded(where, signal, run) {
    try {
        await run();
    }
    catch (error) {
        if (signal.aborted)
            return;
        if (error instanceof Refused && (error.code === "signed_out" || error.code === "unauthenticated")) {
            dispatchEvent(new CustomEvent("felix:signed-out"));
            return;
        }
        fill(where, problem(error, () => void guarded(where, signal, run)));
    }
}
export function empty(title, text, ...actions) {
    return h("div", { class: "empty" }, h("h3", {}, title), h("p", {}, text), actions);
}
