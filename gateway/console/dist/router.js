export const ROOT = "/console";
export function path(...parts) {
    return `${ROOT}/${parts.map((part) => encodeURIComponent(String(part))).join("/")}`;
}
export function link(parts, query) {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
        if (value !== null && value !== undefined && value !== "")
            search.set(name, String(value));
    }
    const text = search.toString();
    return path(...parts) + (text === "" ? "" : `?${text}`);
}
export function match(pattern, pathname) {
    const wanted = pattern.split("/").filter((part) => part !== "");
    const given = pathname.slice(ROOT.length).split("/").filter((part) => part !== "");
    const params = {};
    if (given.length > wanted.length)
        return null;
    for (const [index, part] of wanted.entries()) {
        const value = given[index];
        if (part.startsWith(":")) {
            const name = part.replace(/[:?]/g, "");
            if (value === undefined) {
                if (!part.endsWith("?"))
                    return null;
                params[name] = "";
                continue;
            }
            try {
                params[name] = decodeURIComponent(value);
            }
            catch {
                return null;
            }
        }
        else if (part !== value)
            return null;
    }
    return params;
}
export function go(href) {
    if (href === location.pathname + location.search)
        return;
    history.pushState(null, "", href);
    dispatchEvent(new Event("felix:navigate"));
}
export function setQuery(changes, keep = "replace") {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === "")
            query.delete(name);
        else
            query.set(name, String(value));
    }
    const text = query.toString();
    const href = location.pathname + (text === "" ? "" : `?${text}`);
    if (keep === "push")
        history.pushState(null, "", href);
    else
        history.replaceState(null, "", href);
}
export function catchLinks() {
    document.addEventListener("click", (event) => {
        if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
            return;
        const target = event.target instanceof Element ? event.target.closest("a[href]") : null;
        if (!(target instanceof HTMLAnchorElement) || target.hasAttribute("download"))
            return;
        const href = target.getAttribute("href") ?? "";
        if (!href.startsWith(`${ROOT}/`) || href.startsWith(`${ROOT}/api`))
            return;
        event.preventDefault();
        go(href);
    });
}
