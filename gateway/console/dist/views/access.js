import { get } from "../api.js";
import { commandLine, felixctl } from "../command.js";
import { fill, h } from "../dom.js";
import { relative, time } from "../format.js";
import { guarded } from "../overlay.js";
import { badge, card, facts, field, heading, select, table } from "../parts.js";
import { setQuery } from "../router.js";
import { state } from "../state.js";
export const access = () => ({ title: "Access", show });
async function show({ root, query, signal }) {
    const me = await get(["me"], {}, signal);
    state.me = me;
    root.append(heading("Signed in", me.name ?? "Access"), h("div", { class: "grid" }, card("Who you are", who(me)), explainer(me, query, signal)), card(["What your roles give", badge(String(me.grants.length))], me.grants.length === 0 ? h("p", { class: "muted" }, "Nothing.") : grants(me.grants)), commandLine(() => felixctl(null, "whoami")));
}
function who(me) {
    return h("div", { class: "view" }, facts([
        ["principal", h("code", {}, me.principal)],
        ["tenant", me.tenant],
        ["roles", me.roles.length === 0 ? "–" : me.roles.map((role) => [badge(role, "accent"), " "])],
        ["acts for you", me.actor ?? "nobody"],
        ["session", me.session === null ? "–" : h("code", {}, me.session)],
        ["rights are good until", me.expires_at_ms === null ? "–" : `${time(me.expires_at_ms).slice(0, 19)}, ${relative(me.expires_at_ms)}`],
        ["this console", me.writable ? "may write, when you switch editing on" : "is read-only by the gateway's configuration"],
        ["gateway", me.version],
    ]), me.via === "session" ? h("div", {}, h("button", { type: "button", onclick: () => void signOut() }, "Sign out")) : h("p", { class: "muted" }, "You use a token that you pasted; closing the page forgets it."));
}
async function signOut() {
    await fetch("/auth/logout", { method: "POST", headers: { "x-felix-sign-out": "1" }, credentials: "same-origin" });
    dispatchEvent(new CustomEvent("felix:signed-out", { detail: "on purpose" }));
}
function explainer(me, query, signal) {
    const object = h("input", { type: "text", value: query.get("object") ?? `stream:${me.tenant}/default/orders`, spellcheck: "false", "data-search": true });
    const answer = h("div", { role: "status" });
    const action = select(me.actions.map((one) => [one, one]), query.get("action") ?? "stream.publish", () => line.refresh(), "Action");
    const line = commandLine(() => felixctl(null, "auth", "explain", action.value, object.value));
    object.addEventListener("input", () => line.refresh());
    const ask = () => guarded(answer, signal, async () => {
        setQuery({ action: action.value, object: object.value });
        const said = await get(["explain"], { action: action.value, object: object.value }, signal);
        fill(answer, h("p", { class: said.allowed ? "notice good" : "notice" }, h("b", {}, said.allowed ? "Yes. " : "No. "), said.because), said.near.length === 0 ? null : h("div", {}, h("p", { class: "muted" }, "What comes close:"), h("ul", {}, said.near.map((near) => h("li", {}, h("code", {}, near.grant), " ", h("span", { class: "muted" }, near.lacks))))));
    });
    if (query.get("action") !== null)
        void ask();
    return card("May I, and why?", h("form", { class: "view", onsubmit: (event) => {
            event.preventDefault();
            void ask();
        } }, h("div", { class: "row" }, field("Action", action), h("div", { class: "grow" }, field("On", object)), h("button", { type: "submit", class: "primary" }, "Explain"))), answer, line);
}
function grants(rows) {
    return table([{ name: "Action", cell: (grant) => h("code", {}, grant.action) }, { name: "On", kind: "wide", cell: (grant) => h("code", {}, grant.object) }], rows);
}
