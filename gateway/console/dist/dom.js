const SVG = "http://www.w3.org/2000/svg";
const FORBIDDEN = new Set(["style", "srcdoc", "formaction"]);
function apply(element, props) {
    for (const [name, value] of Object.entries(props)) {
        if (value === null || value === undefined || value === false)
            continue;
        if (typeof value === "function") {
            if (!name.startsWith("on"))
                throw new TypeError(`${name} is no event`);
            element.addEventListener(name.slice(2), value);
        }
        else if (name.startsWith("on") || FORBIDDEN.has(name)) {
            throw new TypeError(`${name} cannot be set from a string`);
        }
        else if (name === "value" && (element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement)) {
            element.value = String(value);
        }
        else if (name === "href" && !isLocal(String(value))) {
            throw new TypeError("links stay on this origin");
        }
        else {
            element.setAttribute(name, value === true ? "" : String(value));
        }
    }
}
function isLocal(href) {
    return (href.startsWith("/") && !href.startsWith("//")) || href.startsWith("#") || href.startsWith("blob:");
}
function append(parent, children) {
    for (const child of children) {
        if (child === null || child === undefined || child === false)
            continue;
        if (child instanceof Node)
            parent.append(child);
        else if (typeof child === "string" || typeof child === "number")
            parent.append(String(child));
        else
            append(parent, child);
    }
}
export function h(tag, props = {}, ...children) {
    const element = document.createElement(tag);
    apply(element, props);
    append(element, children);
    return element;
}
export function s(tag, props = {}, ...children) {
    const element = document.createElementNS(SVG, tag);
    apply(element, props);
    append(element, children);
    return element;
}
function focused(element) {
    const { activeElement: active } = document;
    if (active === null || active === element || !element.contains(active))
        return null;
    const name = ["data-row", "href"].find((one) => active.hasAttribute(one));
    return name === undefined ? null : `[${name}="${CSS.escape(active.getAttribute(name) ?? "")}"]`;
}
export function fill(element, ...children) {
    const focus = focused(element);
    const scrolled = [...element.querySelectorAll(".table-box")].map((box) => box.scrollLeft);
    element.replaceChildren();
    append(element, children);
    if (focus !== null)
        element.querySelector(focus)?.focus({ preventScroll: true });
    if (scrolled.some((left) => left > 0))
        for (const [at, box] of element.querySelectorAll(".table-box").entries())
            box.scrollLeft = scrolled[at] ?? 0;
}
export function icon(path) {
    return s("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" }, s("path", { d: path }));
}
export const ICONS = {
    overview: "M3 17V9m5 8V4m5 13v-6m4 6V7",
    streams: "M3 5h14M3 10h10M3 15h12",
    caches: "M4 5c0-1.7 12-1.7 12 0v10c0 1.7-12 1.7-12 0zM4 5c0 1.7 12 1.7 12 0M4 10c0 1.7 12 1.7 12 0",
    groups: "M7 9a3 3 0 1 0 0-6 3 3 0 0 0 0 6zm-5 8c0-3 2-5 5-5s5 2 5 5m1-14a3 3 0 0 1 0 6m2 3c2 .7 3 2.5 3 5",
    kafka: "M6 10a2.5 2.5 0 1 0 0-.1zm8-5a2 2 0 1 0 .1 0zm0 8a2 2 0 1 0 .1 0zM8.3 8.8l3.8-1.6M8.3 11.2l3.9 2.1",
    access: "M10 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zm-7 7c.5-3.5 3.5-5 7-5s6.5 1.5 7 5",
    copy: "M7 7V3h10v10h-4M3 7h10v10H3z",
    sun: "M10 14a4 4 0 1 0 0-8 4 4 0 0 0 0 8zm0-13v2m0 14v2M1 10h2m14 0h2M3.6 3.6l1.5 1.5m9.8 9.8 1.5 1.5m0-12.8-1.5 1.5M5.1 14.9l-1.5 1.5",
    menu: "M3 5h14M3 10h14M3 15h14",
    pen: "M4 16l1-4 8.5-8.5 3 3L8 15z",
};
