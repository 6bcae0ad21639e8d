/** What keys do. Not while a text is being written or a dialog is open. */
import type { App } from "./app.js";
import { find } from "./page.js";
import type { ToolName } from "./pointer.js";

const TOOLS: Record<string, ToolName> = {
  v: "select", h: "hand", p: "pen", m: "marker", e: "eraser", l: "line", a: "arrow", r: "rect", o: "ellipse", t: "text",
};
const SIZES = [2, 4, 8, 16];

function elsewhere(event: KeyboardEvent): boolean {
  const { target } = event;
  if (document.querySelector("dialog[open]") !== null) return true;
  return target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement;
}

export function listenToKeys(app: App): void {
  const stage = find("#stage");
  document.addEventListener("keydown", (event) => {
    if (elsewhere(event)) return;
    const used = event.ctrlKey || event.metaKey ? withControl(app, event) : plain(app, event);
    if (used) event.preventDefault();
  });
  document.addEventListener("keyup", (event) => {
    if (event.key !== " ") return;
    app.pointers.space = false;
    stage.dataset["pan"] = "false";
  });
}

function withControl(app: App, event: KeyboardEvent): boolean {
  switch (event.key.toLowerCase()) {
    case "z":
      if (event.shiftKey) app.redo();
      else app.undo();
      return true;
    case "y":
      app.redo();
      return true;
    case "a":
      app.selectAll();
      return true;
    case "=":
    case "+":
      app.surface.zoom(1.25);
      return true;
    case "-":
      app.surface.zoom(0.8);
      return true;
    case "0":
      app.surface.zoom(1 / app.surface.camera.scale);
      return true;
    default:
      return false;
  }
}

function plain(app: App, event: KeyboardEvent): boolean {
  const { key } = event;
  const tool = TOOLS[key.toLowerCase()];
  if (tool !== undefined && !event.altKey) {
    app.setTool(tool);
    return true;
  }
  if (event.code === "Digit1" && event.shiftKey) {
    app.fit();
    return true;
  }
  if (/^[0-9]$/.test(key)) {
    app.setColor((Number(key) + 9) % 10);
    return true;
  }
  return special(app, key, event);
}

function special(app: App, key: string, event: KeyboardEvent): boolean {
  const size = SIZES.indexOf(app.brush.size);
  switch (key) {
    case " ":
      if (event.target instanceof HTMLButtonElement) return false;
      app.pointers.space = true;
      find("#stage").dataset["pan"] = "true";
      return true;
    case "[":
      app.setSize(SIZES[Math.max(0, size - 1)] ?? 4);
      return true;
    case "]":
      app.setSize(SIZES[Math.min(SIZES.length - 1, size + 1)] ?? 4);
      return true;
    case "Delete":
    case "Backspace":
      app.eraseSelection();
      return true;
    case "Escape":
      app.pointers.cancel();
      app.pointers.select([]);
      app.timeline.close();
      return true;
    case "?":
      find<HTMLDialogElement>("#help").showModal();
      return true;
    default:
      return pan(app, key);
  }
}

function pan(app: App, key: string): boolean {
  const steps: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const step = steps[key];
  if (step === undefined) return false;
  const { camera } = app.surface;
  app.surface.look({ ...camera, x: camera.x + (step[0] * 60) / camera.scale, y: camera.y + (step[1] * 60) / camera.scale });
  return true;
}
