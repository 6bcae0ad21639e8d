/** The keyboard: one list, from which help is made. */

import { h } from "./dom.js";
import { dialog } from "./overlay.js";
import { go, path } from "./router.js";

const PLACES: Readonly<Record<string, [string, string]>> = {
  o: ["overview", "Overview"],
  s: ["streams", "Streams"],
  c: ["caches", "Caches"],
  g: ["groups", "Groups"],
  k: ["kafka", "Kafka groups"],
};

export const HELP: readonly [string, string][] = [
  ["/", "search or filter what is shown"],
  ["g o", "overview"],
  ["g s", "streams"],
  ["g c", "caches"],
  ["g g", "groups"],
  ["g k", "Kafka groups"],
  ["g a", "access: who am I, what may I"],
  ["↑ ↓ or k j", "move in a table"],
  ["Enter", "open the row"],
  ["← →", "page back and on"],
  ["space", "pause or resume a live tail"],
  ["e", "switch editing on or off"],
  ["Esc", "close, or leave a field"],
  ["?", "this list"],
];

export function help(): void {
  dialog(
    "Keyboard",
    h(
      "dl",
      { class: "keys" },
      HELP.map(([key, what]) => [h("dt", {}, key.split(" or ").map((part, index) => [index > 0 ? " or " : null, part.split(" ").map((one) => h("kbd", {}, one))])), h("dd", {}, what)]),
    ),
  );
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function listen(namespace: () => string, edit: () => void): void {
  let waiting = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]") !== null) return;
    if (event.key === "Escape") {
      if (event.target instanceof HTMLElement) event.target.blur();
      document.dispatchEvent(new CustomEvent("felix:escape"));
      return;
    }
    if (typing(event.target)) return;
    if (waiting) {
      waiting = false;
      if (event.key === "a") go(path("access"));
      const place = PLACES[event.key];
      if (place !== undefined) go(path(namespace(), place[0]));
      return;
    }
    press(event, edit, () => {
      waiting = true;
      setTimeout(() => (waiting = false), 1200);
    });
  });
}

function press(event: KeyboardEvent, edit: () => void, wait: () => void): void {
  const move: Record<string, number> = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };
  const step = move[event.key];
  if (event.key === "/") click(event, "[data-search]", (field) => field.focus());
  else if (event.key === "?") help();
  else if (event.key === "g") wait();
  else if (event.key === "e") edit();
  else if (step !== undefined) moveRow(event, step);
  else if (event.key === "ArrowLeft") click(event, "[data-page=back]:not(:disabled)", (button) => button.click());
  else if (event.key === "ArrowRight") click(event, "[data-page=next]:not(:disabled)", (button) => button.click());
  else if (event.key === " " && !(event.target instanceof HTMLButtonElement)) click(event, "[data-pause]", (button) => button.click());
}

function click(event: Event, selector: string, act: (element: HTMLElement) => void): void {
  const found = document.querySelector<HTMLElement>(selector);
  if (found === null) return;
  event.preventDefault();
  act(found);
}

/** Rows that can be opened take the focus one after the other. */
function moveRow(event: Event, step: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("tr[tabindex]")];
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row === document.activeElement);
  const next = rows[at === -1 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  event.preventDefault();
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
