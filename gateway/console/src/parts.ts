/** Parts that several views use. */

import { pause } from "./api.js";
import { fill, h, type Child } from "./dom.js";
import { problem } from "./overlay.js";
import { Refused } from "./api.js";
import { go } from "./router.js";

/** Runs something at once and again and again, but not while nobody looks. What goes wrong is shown above the view. */
export async function poll(signal: AbortSignal, everyMs: number, root: HTMLElement, run: () => Promise<void>): Promise<void> {
  const notice = h("div", { class: "notice-slot" });
  root.prepend(notice);
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        await run();
        if (notice.firstChild !== null) fill(notice);
      } catch (error) {
        if (signal.aborted) return;
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

export interface Column<T> {
  name: string;
  /** `num` is set to the right; `wide` may break. */
  kind?: "num" | "wide" | "pic";
  cell(row: T): Child;
}

/** A table; a row with a place to go to is opened by Enter and by a click. */
export function table<T>(columns: readonly Column<T>[], rows: readonly T[], href?: (row: T) => string | null): HTMLElement {
  return h(
    "div",
    { class: "table-box" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { class: column.kind ?? "", scope: "col" }, column.name)))),
      h("tbody", {}, rows.map((row) => tableRow(columns, row, href?.(row) ?? null))),
    ),
  );
}

function tableRow<T>(columns: readonly Column<T>[], row: T, href: string | null): HTMLElement {
  const open = (event: Event) => {
    if (href === null || (event.target instanceof Element && event.target.closest("a,button,input") !== null)) return;
    go(href);
  };
  return h(
    "tr",
    href === null
      ? {}
      : {
          tabindex: 0,
          class: "open",
          "data-row": href,
          onclick: open,
          onkeydown: (event: KeyboardEvent) => {
            if (event.key === "Enter") open(event);
          },
        },
    columns.map((column) => h("td", { class: column.kind ?? "", "data-label": column.name }, column.cell(row))),
  );
}

export function card(title: Child, ...content: Child[]): HTMLElement {
  return h("section", { class: "card" }, h("h2", { class: "card-title" }, title), content);
}

export function stat(name: string, value: Child, note?: Child): HTMLElement {
  return h("div", { class: "stat" }, h("div", { class: "stat-name" }, name), h("div", { class: "stat-value" }, value), note === undefined ? null : h("div", { class: "stat-note" }, note));
}

export function badge(text: string, tone = ""): HTMLElement {
  return h("span", { class: `badge ${tone}` }, text);
}

export function heading(kind: string, name: string, ...badges: Child[]): HTMLElement {
  return h("header", { class: "heading" }, h("div", { class: "kind" }, kind), h("h1", {}, name, " ", badges));
}

export function tabs(list: readonly { id: string; name: string; href: string }[], current: string): HTMLElement {
  return h(
    "nav",
    { class: "tabs", "aria-label": "Views" },
    list.map((tab) => h("a", { href: tab.href, class: tab.id === current ? "tab current" : "tab", "aria-current": tab.id === current ? "page" : null }, tab.name)),
  );
}

export function field(label: string, input: HTMLElement, note?: Child): HTMLElement {
  return h("label", { class: "field" }, h("span", {}, label), input, note === undefined ? null : h("small", { class: "muted" }, note));
}

export function select(options: readonly (readonly [string, string])[], value: string, change: (value: string) => void, label: string): HTMLSelectElement {
  const box = h(
    "select",
    { "aria-label": label, onchange: () => change(box.value) },
    options.map(([id, name]) => h("option", { value: id, selected: id === value }, name)),
  );
  return box;
}

/** A part that is loaded; grey lines until it is there. */
export function skeleton(lines = 4): HTMLElement {
  return h("div", { class: "skeleton", "aria-busy": "true", "aria-label": "loading" }, Array.from({ length: lines }, () => h("div", { class: "skeleton-line" })));
}

/** Name and value pairs. */
export function facts(rows: readonly (readonly [string, Child])[]): HTMLElement {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
