/** Addresses: what a view is about stands in the path, how it is looked at in the query. */

export const ROOT = "/console";

export interface Context {
  /** Where the view draws. */
  root: HTMLElement;
  params: Readonly<Record<string, string>>;
  query: URLSearchParams;
  /** Aborts when the person goes elsewhere. */
  signal: AbortSignal;
}

export interface View {
  title: string;
  show(context: Context): void | Promise<void>;
}

export interface Route {
  pattern: string;
  /** Which part of the menu it belongs to. */
  section: string;
  load(): Promise<(params: Readonly<Record<string, string>>) => View>;
}

/** A path under the console's root, each part encoded. */
export function path(...parts: (string | number)[]): string {
  return `${ROOT}/${parts.map((part) => encodeURIComponent(String(part))).join("/")}`;
}

/** A path with a query. What is empty is left out. */
export function link(parts: (string | number)[], query: Record<string, string | number | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return path(...parts) + (text === "" ? "" : `?${text}`);
}

export function match(pattern: string, pathname: string): Record<string, string> | null {
  const wanted = pattern.split("/").filter((part) => part !== "");
  const given = pathname.slice(ROOT.length).split("/").filter((part) => part !== "");
  const params: Record<string, string> = {};
  if (given.length > wanted.length) return null;
  for (const [index, part] of wanted.entries()) {
    const value = given[index];
    if (part.startsWith(":")) {
      const name = part.replace(/[:?]/g, "");
      if (value === undefined) {
        if (!part.endsWith("?")) return null;
        params[name] = "";
        continue;
      }
      try {
        params[name] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return params;
}

/** Goes to a place of the console. */
export function go(href: string): void {
  if (href === location.pathname + location.search) return;
  history.pushState(null, "", href);
  dispatchEvent(new Event("felix:navigate"));
}

/** Changes the query in place, without a new view: the address always says what is shown. */
export function setQuery(changes: Record<string, string | number | null>, keep: "replace" | "push" = "replace"): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  const href = location.pathname + (text === "" ? "" : `?${text}`);
  if (keep === "push") history.pushState(null, "", href);
  else history.replaceState(null, "", href);
}

/** Links of the console are followed without loading the page again. */
export function catchLinks(): void {
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const target = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(target instanceof HTMLAnchorElement) || target.hasAttribute("download")) return;
    const href = target.getAttribute("href") ?? "";
    if (!href.startsWith(`${ROOT}/`) || href.startsWith(`${ROOT}/api`)) return;
    event.preventDefault();
    go(href);
  });
}
