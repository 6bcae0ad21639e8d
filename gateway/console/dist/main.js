import { get, Refused, useToken } from "./api.js";
import { fill, h, icon, ICONS } from "./dom.js";
import { help, listen } from "./keys.js";
import { badge, field, select } from "./parts.js";
import { problem } from "./overlay.js";
import { catchLinks, go, match, path, ROOT } from "./router.js";
import { forgetAll, state } from "./state.js";
const ROUTES = [
    { pattern: "/access", section: "access", load: async () => (await import("./views/access.js")).access },
    { pattern: "/:ns/overview", section: "overview", load: async () => (await import("./views/overview.js")).overview },
    { pattern: "/:ns/streams", section: "streams", load: async () => (await import("./views/streams.js")).streams },
    { pattern: "/:ns/streams/:stream/:tab?", section: "streams", load: async () => (await import("./views/stream.js")).stream },
    { pattern: "/:ns/caches", section: "caches", load: async () => (await import("./views/caches.js")).caches },
    { pattern: "/:ns/caches/:cache/:tab?", section: "caches", load: async () => (await import("./views/cache.js")).cache },
    { pattern: "/:ns/groups", section: "groups", load: async () => (await import("./views/groups.js")).groups },
    { pattern: "/:ns/groups/:stream/:group/:tab?", section: "groups", load: async () => (await import("./views/group.js")).group },
    { pattern: "/:ns/kafka/:group?", section: "kafka", load: async () => (await import("./views/kafka.js")).kafka },
];
const MENU = [
    ["overview", "Overview", ICONS.overview],
    ["streams", "Streams", ICONS.streams],
    ["caches", "Caches", ICONS.caches],
    ["groups", "Groups", ICONS.groups],
    ["kafka", "Kafka groups", ICONS.kafka],
];
const main = h("main", { id: "main", tabindex: -1 });
const menu = h("nav", { class: "menu", "aria-label": "Main" });
const top = h("div", { class: "topbar" });
let current = null;
let lastNamespace = "default";
function namespace() {
    const first = location.pathname.slice(ROOT.length + 1).split("/")[0] ?? "";
    if (first !== "" && first !== "access")
        lastNamespace = decodeURIComponent(first);
    return lastNamespace;
}
function drawMenu(section) {
    const space = namespace();
    const entry = (id, name, drawing, href) => h("a", { href, class: id === section ? "menu-item current" : "menu-item", "aria-current": id === section ? "page" : null }, icon(drawing), h("span", {}, name));
    fill(menu, h("a", { class: "brand", href: path(space, "overview") }, h("img", { src: `${ROOT}/icon.svg`, alt: "", width: 26, height: 26 }), h("span", {}, "Felix")), h("div", { class: "menu-space" }, spacePicker(space)), MENU.map(([id, name, drawing]) => entry(id, name, drawing, path(space, id))), h("div", { class: "menu-rest" }), entry("access", "Access", ICONS.access, path("access")), h("button", { class: "menu-item", type: "button", onclick: help }, h("kbd", {}, "?"), h("span", {}, "Keyboard")));
}
function spacePicker(space) {
    const names = new Set([...(state.me?.namespaces ?? []), space]);
    const options = [...names].sort().map((name) => [name, name]);
    return field("Namespace", select(options, space, (next) => {
        const section = location.pathname.slice(ROOT.length + 1).split("/")[1] ?? "overview";
        go(path(next, section === "" ? "overview" : section));
    }, "Namespace"));
}
function drawTop() {
    const me = state.me;
    const edit = h("button", {
        class: state.editing ? "switch on" : "switch",
        type: "button",
        role: "switch",
        "aria-checked": String(state.editing),
        disabled: me?.writable !== true,
        title: me?.writable === true ? "Let this page change things (e)" : "The gateway runs this console read-only",
        onclick: toggleEditing,
    }, h("span", { class: "knob" }), state.editing ? "Editing" : me?.writable === true ? "Read only" : "Read only (by the gateway)");
    fill(top, h("button", { class: "ghost menu-button", type: "button", "aria-label": "Menu", onclick: () => document.body.classList.toggle("menu-open") }, icon(ICONS.menu)), h("div", { class: "grow" }), edit, h("button", { class: "ghost", type: "button", title: "Light or dark", "aria-label": "Light or dark", onclick: toggleTheme }, icon(ICONS.sun)), me === null ? null : h("a", { class: "who", href: path("access"), title: me.principal }, icon(ICONS.access), h("span", {}, me.name ?? shortName(me.principal)), badge(me.tenant)));
    document.body.classList.toggle("editing", state.editing);
}
export function shortName(principal) {
    return /^[0-9a-f]{64}$/.test(principal) ? `${principal.slice(0, 8)}…` : principal;
}
function toggleEditing() {
    state.setEditing(!state.editing);
    drawTop();
    if (state.me?.writable === true)
        dispatchEvent(new Event("felix:navigate-again"));
}
function toggleTheme() {
    const dark = document.documentElement.dataset["theme"] === "dark" || (document.documentElement.dataset["theme"] === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
    setTheme(dark ? "light" : "dark");
}
function setTheme(theme) {
    if (theme === "dark" || theme === "light") {
        document.documentElement.dataset["theme"] = theme;
        localStorage.setItem("felix.console.theme", theme);
    }
}
async function show() {
    current?.abort();
    const controller = new AbortController();
    current = controller;
    document.body.classList.remove("menu-open");
    if (state.me === null && !(await arrive(controller.signal)))
        return;
    if (controller.signal.aborted)
        return;
    if (location.pathname === ROOT || location.pathname === `${ROOT}/`) {
        history.replaceState(null, "", path(state.me?.namespaces[0] ?? "default", "overview"));
    }
    for (const route of ROUTES) {
        const params = match(route.pattern, location.pathname);
        if (params === null)
            continue;
        drawMenu(route.section);
        drawTop();
        await draw(route, params, controller.signal);
        return;
    }
    drawMenu("");
    drawTop();
    fill(main, h("div", { class: "empty" }, h("h1", {}, "Nothing is here"), h("p", {}, "This address belongs to no view of the console."), h("a", { class: "button", href: path(namespace(), "overview") }, "Overview")));
}
async function draw(route, params, signal) {
    const root = h("div", { class: "view" });
    fill(main, root);
    try {
        const view = (await route.load())(params);
        if (signal.aborted)
            return;
        document.title = `${view.title} · Felix`;
        await view.show({ root, params, query: new URLSearchParams(location.search), signal });
    }
    catch (error) {
        if (signal.aborted)
            return;
        if (error instanceof Refused && (error.code === "signed_out" || error.code === "unauthenticated"))
            return signIn();
        fill(root, problem(error, () => void show()));
    }
}
async function arrive(signal) {
    try {
        state.me = await get(["me"], {}, signal);
        return true;
    }
    catch (error) {
        if (signal.aborted)
            return false;
        if (error instanceof Refused && (error.code === "signed_out" || error.code === "unauthenticated"))
            signIn();
        else {
            drawMenu("");
            drawTop();
            fill(main, problem(error, () => void show()));
        }
        return false;
    }
}
function signIn(onPurpose = false) {
    current?.abort();
    forgetAll();
    fill(menu);
    drawTop();
    const back = encodeURIComponent(location.pathname + location.search);
    const token = h("textarea", { rows: 3, spellcheck: "false", autocomplete: "off", "aria-label": "Felix token", placeholder: "eyJ…" });
    fill(main, h("div", { class: "sign-in" }, h("img", { src: `${ROOT}/icon.svg`, alt: "", width: 56, height: 56 }), h("h1", {}, "Felix console"), h("p", {}, "You see and change here exactly what your own roles allow."), h("a", { class: "button primary wide", href: `/auth/login?return_to=${back}${onPurpose ? "&prompt=login" : ""}` }, "Sign in"), h("details", {}, h("summary", {}, "Use a token instead"), h("p", { class: "muted" }, "A Felix token, for example of ", h("code", {}, "felixctl token show"), ". It stays in this page's memory until the page is closed, and is never stored."), token, h("div", { class: "row end" }, h("button", { class: "primary", type: "button", onclick: () => {
            useToken(token.value.trim());
            token.value = "";
            void show();
        } }, "Use this token")))));
}
export function start() {
    setTheme(localStorage.getItem("felix.console.theme"));
    fill(document.body, h("a", { class: "skip", href: "#main" }, "Skip to the view"), menu, h("div", { class: "stage" }, top, main));
    catchLinks();
    listen(namespace, toggleEditing);
    for (const event of ["popstate", "felix:navigate", "felix:navigate-again"])
        addEventListener(event, () => void show());
    addEventListener("felix:signed-out", (event) => signIn(event.detail === "on purpose"));
    void show();
}
start();
