/** Fingers, pens, mice and wheels: what they mean depends on the tool, and moving the paper is always possible. */
import { FLAT, IDS_MAX } from "./edits.js";
import type { Draw, Form, Intent, Stroke } from "./edits.js";
import { boxOf, overlaps, shift } from "./geometry.js";
import type { Box, Point } from "./geometry.js";
import type { Room } from "./room.js";
import { randomId } from "./room.js";
import type { Scene } from "./scene.js";
import { placed } from "./scene.js";
import type { Surface } from "./surface.js";

export type ToolName = "select" | "hand" | "pen" | "marker" | "eraser" | "text" | Form;

export interface Brush {
  tool: ToolName;
  color: number;
  /** World pixels. */
  size: number;
}

export interface PointerHost {
  readonly brush: Brush;
  room(): Room | null;
  scene(): Scene;
  /** Whether edits may be made now. */
  canEdit(): boolean;
  point(at: Point, sketch: Draw | null): void;
  write(at: Point): void;
  selected(ids: ReadonlySet<string>): void;
}

/** A longer line becomes several edits: each stays under 64 KiB, wherever on the paper it is. */
const STROKE_POINTS = 2_000;

const NOBODY = { by: "", n: 0 } as const;

function tenths(value: number): number {
  return Math.round(value * 10);
}

type Gesture =
  | { readonly kind: "pan"; last: Point }
  | { readonly kind: "stroke"; edit: Stroke; readonly points: number[] }
  | { readonly kind: "shape"; edit: Draw; readonly from: Point }
  | { readonly kind: "erase"; readonly ids: Set<string>; last: Point }
  | { readonly kind: "marquee"; readonly from: Point; to: Point }
  | { readonly kind: "move"; readonly from: Point; to: Point };

export class Pointers {
  readonly selection = new Set<string>();
  #gesture: Gesture | null = null;
  #pointer = -1;
  readonly #touches = new Map<number, Point>();
  #pinch: { distance: number; middle: Point } | null = null;
  space = false;
  #penSeen = false;

  constructor(
    private readonly surface: Surface,
    private readonly host: PointerHost,
  ) {
    const target = surface.host;
    target.addEventListener("pointerdown", (event) => this.#down(event));
    target.addEventListener("pointermove", (event) => this.#move(event));
    target.addEventListener("pointerup", (event) => this.#up(event));
    target.addEventListener("pointercancel", (event) => this.#cancelled(event));
    target.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    target.addEventListener("contextmenu", (event) => event.preventDefault());
    target.addEventListener("dblclick", (event) => {
      if (this.host.brush.tool === "select" && this.host.canEdit()) this.host.write(this.#world(event));
    });
  }

  /** What this person is drawing right now. */
  get sketch(): Draw | null {
    return this.#gesture?.kind === "stroke" || this.#gesture?.kind === "shape" ? this.#gesture.edit : null;
  }

  get marquee(): Box | null {
    if (this.#gesture?.kind !== "marquee") return null;
    const { from, to } = this.#gesture;
    return { x0: Math.min(from.x, to.x), y0: Math.min(from.y, to.y), x1: Math.max(from.x, to.x), y1: Math.max(from.y, to.y) };
  }

  /** How far the selection is being dragged, and what an eraser has touched. */
  get dragged(): Point | null {
    return this.#gesture?.kind === "move" ? { x: this.#gesture.to.x - this.#gesture.from.x, y: this.#gesture.to.y - this.#gesture.from.y } : null;
  }

  get erasing(): ReadonlySet<string> | null {
    return this.#gesture?.kind === "erase" ? this.#gesture.ids : null;
  }

  select(ids: Iterable<string>): void {
    this.selection.clear();
    for (const id of ids) this.selection.add(id);
    this.host.selected(this.selection);
    this.surface.live();
  }

  /** Gives up what is being drawn. */
  cancel(): void {
    this.#gesture = null;
    this.surface.live();
  }

  #screen(event: MouseEvent): Point {
    const { left, top } = this.surface.host.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  #world(event: MouseEvent): Point {
    const { x, y } = this.#screen(event);
    return this.surface.toWorld(x, y);
  }

  #down(event: PointerEvent): void {
    if (event.pointerType === "touch") {
      this.#touches.set(event.pointerId, this.#screen(event));
      if (this.#touches.size === 2) return this.#beginPinch();
      // A palm beside a pen is no finger that draws.
      if (this.#penSeen && this.host.brush.tool !== "hand") return this.#begin(event, { kind: "pan", last: this.#screen(event) });
    }
    if (event.pointerType === "pen") this.#penSeen = true;
    if (this.#gesture !== null || (event.button !== 0 && event.button !== 1)) return;
    const at = this.#world(event);
    const { tool } = this.host.brush;
    if (event.button === 1 || this.space || tool === "hand") return this.#begin(event, { kind: "pan", last: this.#screen(event) });
    if (!this.host.canEdit()) return;
    if (event.buttons === 32) return this.#begin(event, { kind: "erase", ids: new Set(), last: at });
    this.#use(event, tool, at);
  }

  #use(event: PointerEvent, tool: ToolName, at: Point): void {
    const { color, size } = this.host.brush;
    switch (tool) {
      case "pen":
      case "marker": {
        const points = [tenths(at.x), tenths(at.y), this.#pressure(event)];
        const edit: Stroke = { kind: "stroke", id: randomId(), ...NOBODY, tool, color, size: tenths(size), points };
        return this.#begin(event, { kind: "stroke", edit, points });
      }
      case "line":
      case "arrow":
      case "rect":
      case "ellipse":
        return this.#begin(event, { kind: "shape", edit: this.#shape(tool, at, at, false), from: at });
      case "eraser":
        this.#begin(event, { kind: "erase", ids: new Set(), last: at });
        return this.#erase(at);
      case "text":
        event.preventDefault();
        return this.host.write(at);
      case "select":
        return this.#grab(event, at);
      case "hand":
        return;
    }
  }

  #grab(event: PointerEvent, at: Point): void {
    const [top] = this.host.scene().pick(at, 6 / this.surface.camera.scale);
    if (top === undefined) {
      if (!event.shiftKey) this.select([]);
      return this.#begin(event, { kind: "marquee", from: at, to: at });
    }
    if (!this.selection.has(top.edit.id)) this.select(event.shiftKey ? [...this.selection, top.edit.id] : [top.edit.id]);
    this.#begin(event, { kind: "move", from: at, to: at });
  }

  #begin(event: PointerEvent, gesture: Gesture): void {
    this.#gesture = gesture;
    this.#pointer = event.pointerId;
    this.surface.host.setPointerCapture(event.pointerId);
    this.surface.live();
  }

  #move(event: PointerEvent): void {
    if (this.#touches.has(event.pointerId)) this.#touches.set(event.pointerId, this.#screen(event));
    if (this.#pinch !== null) return this.#pinched();
    const at = this.#world(event);
    const gesture = this.#gesture;
    if (gesture !== null && event.pointerId === this.#pointer) {
      const events = event.getCoalescedEvents?.() ?? [];
      for (const one of events.length > 0 ? events : [event]) this.#follow(gesture, one);
      this.surface.live();
    }
    if (event.isPrimary) this.host.point(at, this.sketch);
  }

  #follow(gesture: Gesture, event: PointerEvent): void {
    const at = this.#world(event);
    switch (gesture.kind) {
      case "pan": {
        const now = this.#screen(event);
        const { camera } = this.surface;
        this.surface.look({ ...camera, x: camera.x - (now.x - gesture.last.x) / camera.scale, y: camera.y - (now.y - gesture.last.y) / camera.scale });
        gesture.last = now;
        return;
      }
      case "stroke":
        return this.#extend(gesture, at, this.#pressure(event));
      case "shape":
        gesture.edit = this.#shape((gesture.edit as Extract<Draw, { kind: "shape" }>).form, gesture.from, at, event.shiftKey);
        return;
      case "erase":
        return this.#erase(at);
      case "marquee":
      case "move":
        gesture.to = at;
        return;
    }
  }

  #extend(gesture: Extract<Gesture, { kind: "stroke" }>, at: Point, pressure: number): void {
    const { points } = gesture;
    const [x, y] = [tenths(at.x), tenths(at.y)];
    // Closer than a screen pixel nobody sees a point.
    const near = Math.hypot(x - (points.at(-3) ?? 0), y - (points.at(-2) ?? 0)) < 12 / this.surface.camera.scale;
    if (near) return;
    points.push(x, y, pressure);
    gesture.edit = { ...gesture.edit, points };
    if (points.length < STROKE_POINTS * 3) return;
    this.host.room()?.do(intentOf(gesture.edit));
    const rest = points.slice(-3);
    this.#gesture = { kind: "stroke", edit: { ...gesture.edit, id: randomId(), points: rest }, points: rest };
  }

  #erase(at: Point): void {
    const gesture = this.#gesture;
    if (gesture?.kind !== "erase") return;
    const radius = 9 / this.surface.camera.scale;
    const steps = Math.max(1, Math.ceil(Math.hypot(at.x - gesture.last.x, at.y - gesture.last.y) / radius));
    for (let step = 1; step <= steps && gesture.ids.size < IDS_MAX; step += 1) {
      const t = step / steps;
      const middle = { x: gesture.last.x + (at.x - gesture.last.x) * t, y: gesture.last.y + (at.y - gesture.last.y) * t };
      for (const item of this.host.scene().pick(middle, radius)) gesture.ids.add(item.edit.id);
    }
    gesture.last = at;
  }

  #shape(form: Form, from: Point, to: Point, even: boolean): Draw {
    const { color, size } = this.host.brush;
    const end = even ? evened(form, from, to) : to;
    const id = this.#gesture?.kind === "shape" ? this.#gesture.edit.id : randomId();
    return {
      kind: "shape", id, ...NOBODY, form, color, size: tenths(size),
      x0: tenths(from.x), y0: tenths(from.y), x1: tenths(end.x), y1: tenths(end.y),
    };
  }

  #pressure(event: PointerEvent): number {
    if (event.pointerType !== "pen" || event.pressure === 0) return FLAT;
    return Math.max(1, Math.min(255, Math.round(event.pressure * 255)));
  }

  #up(event: PointerEvent): void {
    this.#touches.delete(event.pointerId);
    if (this.#pinch !== null) {
      if (this.#touches.size === 0) this.#pinch = null;
      return;
    }
    if (event.pointerId !== this.#pointer) return;
    const gesture = this.#gesture;
    this.#gesture = null;
    if (gesture !== null) this.#finish(gesture, event);
    this.host.point(this.#world(event), null);
    this.surface.live();
  }

  #finish(gesture: Gesture, event: PointerEvent): void {
    const room = this.host.room();
    switch (gesture.kind) {
      case "stroke":
        return void room?.do(intentOf(gesture.edit));
      case "shape": {
        const box = gesture.edit.kind === "shape" ? gesture.edit : null;
        const tiny = box === null || Math.hypot(box.x1 - box.x0, box.y1 - box.y0) < 40 / this.surface.camera.scale;
        return tiny ? undefined : void room?.do(intentOf(gesture.edit));
      }
      case "erase":
        return gesture.ids.size === 0 ? undefined : void room?.do({ kind: "erase", id: randomId(), ids: [...gesture.ids] });
      case "move": {
        const [dx, dy] = [tenths(gesture.to.x - gesture.from.x), tenths(gesture.to.y - gesture.from.y)];
        const ids = [...this.selection].slice(0, IDS_MAX);
        return Math.abs(dx) + Math.abs(dy) < 10 ? undefined : void room?.do({ kind: "move", id: randomId(), ids, dx, dy });
      }
      case "marquee": {
        const box: Box = {
          x0: Math.min(gesture.from.x, gesture.to.x), y0: Math.min(gesture.from.y, gesture.to.y),
          x1: Math.max(gesture.from.x, gesture.to.x), y1: Math.max(gesture.from.y, gesture.to.y),
        };
        const inside = this.host.scene().find(box).filter((item) => overlaps(placed(item), box)).slice(0, IDS_MAX);
        return this.select([...(event.shiftKey ? this.selection : []), ...inside.map((item) => item.edit.id)]);
      }
      case "pan":
        return;
    }
  }

  #cancelled(event: PointerEvent): void {
    this.#touches.delete(event.pointerId);
    if (this.#touches.size === 0) this.#pinch = null;
    if (event.pointerId === this.#pointer) this.cancel();
  }

  // ---- two fingers and wheels

  #two(): { distance: number; middle: Point } {
    const [a = { x: 0, y: 0 }, b = a] = [...this.#touches.values()];
    return { distance: Math.max(1, Math.hypot(a.x - b.x, a.y - b.y)), middle: { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 } };
  }

  #beginPinch(): void {
    // A second finger means that the first one was not drawing.
    this.cancel();
    this.#pinch = this.#two();
  }

  #pinched(): void {
    const before = this.#pinch;
    if (before === null || this.#touches.size < 2) return;
    const now = this.#two();
    const { camera } = this.surface;
    this.surface.look({ ...camera, x: camera.x - (now.middle.x - before.middle.x) / camera.scale, y: camera.y - (now.middle.y - before.middle.y) / camera.scale });
    this.surface.zoom(now.distance / before.distance, now.middle.x, now.middle.y);
    this.#pinch = now;
  }

  #wheel(event: WheelEvent): void {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    const { x, y } = this.#screen(event);
    if (event.ctrlKey || event.metaKey) return this.surface.zoom(Math.exp((-event.deltaY * unit) / 300), x, y);
    const { camera } = this.surface;
    const [dx, dy] = event.shiftKey && event.deltaX === 0 ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    this.surface.look({ ...camera, x: camera.x + (dx * unit) / camera.scale, y: camera.y + (dy * unit) / camera.scale });
  }
}

/** With Shift: squares, circles, and lines at multiples of 45 degrees. */
function evened(form: Form, from: Point, to: Point): Point {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  if (form === "rect" || form === "ellipse") {
    const side = Math.max(Math.abs(dx), Math.abs(dy));
    return { x: from.x + Math.sign(dx || 1) * side, y: from.y + Math.sign(dy || 1) * side };
  }
  const angle = Math.round(Math.atan2(dy, dx) / (Math.PI / 4)) * (Math.PI / 4);
  const length = Math.hypot(dx, dy);
  return { x: from.x + Math.cos(angle) * length, y: from.y + Math.sin(angle) * length };
}

function intentOf(edit: Draw): Intent {
  const { by: _by, n: _n, ...intent } = edit;
  return intent as Intent;
}

/** Around what is selected, in world pixels. */
export function selectionBox(scene: Scene, ids: ReadonlySet<string>): Box | null {
  let around: Box | null = null;
  for (const id of ids) {
    const item = scene.item(id);
    if (item === undefined || !scene.isShown(item)) continue;
    const { x, y } = scene.offsetOf(item);
    const box = shift(boxOf(item.edit), x, y);
    around = around === null ? box : { x0: Math.min(around.x0, box.x0), y0: Math.min(around.y0, box.y0), x1: Math.max(around.x1, box.x1), y1: Math.max(around.y1, box.y1) };
  }
  return around;
}
