import { initials } from "./people.js";
export function find(selector) {
    const found = document.querySelector(selector);
    if (found === null)
        throw new Error(`the page has no ${selector}`);
    return found;
}
export function all(selector) {
    return [...document.querySelectorAll(selector)];
}
/** Says something for a few seconds. */
export function toast(message, ms = 4_000) {
    const toasts = find("#toasts");
    if ([...toasts.children].some((one) => one.textContent === message))
        return;
    const element = document.createElement("div");
    element.className = "toast";
    element.textContent = message;
    toasts.append(element);
    setTimeout(() => element.remove(), ms);
}
const THEME = "felix.whiteboard.theme";
/** The theme that was chosen, or what the system prefers. */
export function preferredTheme() {
    const chosen = localStorage.getItem(THEME);
    if (chosen === "light" || chosen === "dark")
        return chosen;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}
export function showTheme(theme, chosen) {
    document.documentElement.dataset["theme"] = theme;
    if (chosen)
        localStorage.setItem(THEME, theme);
}
/** What the connection is to a person who draws. */
export function showConnection(state, pending, catchingUp) {
    const words = {
        idle: "Not connected",
        connecting: "Connecting…",
        connected: "Live",
        waiting: "Reconnecting…",
        suspended: "Offline",
        closed: "Signed out",
        unauthorized: "Signed out",
    };
    const busy = state === "connected" && (catchingUp || pending > 0);
    const kept = pending > 0 && state !== "connected" ? ` · ${pending} to send` : "";
    find("#connection").dataset["state"] = busy ? "busy" : state;
    find("#connection-text").textContent = busy ? (catchingUp ? "Catching up…" : "Saving…") : words[state] + kept;
    find("#retry").hidden = state !== "waiting" && state !== "suspended";
    document.documentElement.dataset["connection"] = state;
}
const SVG = "http://www.w3.org/2000/svg";
function avatar(person) {
    const element = document.createElement("div");
    element.className = person.me ? "person me" : "person";
    element.setAttribute("role", "listitem");
    element.title = person.me ? `${person.name} (you)` : person.name;
    element.setAttribute("aria-label", element.title);
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 30 30");
    const circle = (radius, attributes) => {
        const one = document.createElementNS(SVG, "circle");
        for (const [name, value] of Object.entries({ cx: "15", cy: "15", r: radius, ...attributes }))
            one.setAttribute(name, value);
        svg.append(one);
    };
    circle("15", { class: "rim" });
    circle("13", { fill: person.color });
    const letters = document.createElementNS(SVG, "text");
    letters.setAttribute("x", "15");
    letters.setAttribute("y", "19");
    letters.textContent = initials(person.name);
    svg.append(letters);
    element.append(svg);
    return element;
}
const AVATARS_MAX = 6;
export function showPeople(people) {
    const shown = people.slice(0, AVATARS_MAX).map(avatar);
    find("#people").replaceChildren(...shown);
    find("#people").title = people.length > AVATARS_MAX ? `${people.length} people` : "";
    document.documentElement.dataset["people"] = String(people.length);
}
/** The board in the address; a new name when there is none. */
export function boardInAddress() {
    const here = new URL(location.href);
    const given = here.searchParams.get("board") ?? "";
    if (/^[A-Za-z0-9_-]{1,64}$/.test(given))
        return given;
    const words = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbor", "island", "juniper", "lagoon", "maple", "north", "orchid", "pine", "river"];
    const [a = 0, b = 0, c = 0] = crypto.getRandomValues(new Uint8Array(3));
    const name = `${words[a % 16]}-${words[b % 16]}-${c % 90 + 10}`;
    here.searchParams.set("board", name);
    history.replaceState(null, "", here);
    return name;
}
/** Copies the link, or shows it where copying is not allowed. */
export async function share() {
    try {
        await navigator.clipboard.writeText(location.href);
        toast("Link copied. Whoever may open this board can draw on it.");
    }
    catch {
        toast(location.href, 10_000);
    }
}
