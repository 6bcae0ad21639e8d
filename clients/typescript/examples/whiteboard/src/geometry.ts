/** Where things are: boxes, nearness, and an index of boxes so that a look at a corner costs a corner. */
import type { Draw } from "./edits.js";

/** In world pixels; `x1` and `y1` are the far edges. */
export interface Box {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

/** Width of a line of text, by guess: letters differ, an index may be a little too generous. */
const LETTER = 0.62;
export const LINE_HEIGHT = 1.25;

/** The box of something drawn, its line width included, before it was moved. */
export function boxOf(edit: Draw): Box {
  switch (edit.kind) {
    case "stroke": {
      const box = { x0: Infinity, y0: Infinity, x1: -Infinity, y1: -Infinity };
      for (let at = 0; at + 1 < edit.points.length; at += 3) {
        const x = (edit.points[at] ?? 0) / 10;
        const y = (edit.points[at + 1] ?? 0) / 10;
        if (x < box.x0) box.x0 = x;
        if (x > box.x1) box.x1 = x;
        if (y < box.y0) box.y0 = y;
        if (y > box.y1) box.y1 = y;
      }
      return grow(box, (edit.size / 10) * (edit.tool === "marker" ? 2 : 1) + 2);
    }
    case "shape": {
      const [x0, y0, x1, y1] = [edit.x0 / 10, edit.y0 / 10, edit.x1 / 10, edit.y1 / 10];
      const head = edit.form === "arrow" ? 8 + (edit.size / 10) * 3 : 2;
      return grow({ x0: Math.min(x0, x1), y0: Math.min(y0, y1), x1: Math.max(x0, x1), y1: Math.max(y0, y1) }, edit.size / 10 + head);
    }
    case "text": {
      const lines = edit.text.split("\n");
      const size = edit.size / 10;
      const longest = Math.max(...lines.map((line) => line.length));
      return grow({ x0: edit.x / 10, y0: edit.y / 10, x1: edit.x / 10 + longest * size * LETTER, y1: edit.y / 10 + lines.length * size * LINE_HEIGHT }, 4);
    }
  }
}

export function grow(box: Box, by: number): Box {
  return { x0: box.x0 - by, y0: box.y0 - by, x1: box.x1 + by, y1: box.y1 + by };
}

export function shift(box: Box, dx: number, dy: number): Box {
  return { x0: box.x0 + dx, y0: box.y0 + dy, x1: box.x1 + dx, y1: box.y1 + dy };
}

export function overlaps(a: Box, b: Box): boolean {
  return a.x0 <= b.x1 && a.x1 >= b.x0 && a.y0 <= b.y1 && a.y1 >= b.y0;
}

export function union(a: Box, b: Box): Box {
  return { x0: Math.min(a.x0, b.x0), y0: Math.min(a.y0, b.y0), x1: Math.max(a.x1, b.x1), y1: Math.max(a.y1, b.y1) };
}

function toSegment(p: Point, ax: number, ay: number, bx: number, by: number): number {
  const length = (bx - ax) ** 2 + (by - ay) ** 2;
  const t = length === 0 ? 0 : Math.max(0, Math.min(1, ((p.x - ax) * (bx - ax) + (p.y - ay) * (by - ay)) / length));
  return Math.hypot(p.x - ax - t * (bx - ax), p.y - ay - t * (by - ay));
}

/** Whether a circle touches the thing (before it was moved). */
export function touches(edit: Draw, at: Point, radius: number): boolean {
  switch (edit.kind) {
    case "stroke": {
      const reach = radius + edit.size / 20;
      const { points } = edit;
      if (points.length === 3) return Math.hypot(at.x - (points[0] ?? 0) / 10, at.y - (points[1] ?? 0) / 10) <= reach;
      for (let i = 0; i + 4 < points.length; i += 3) {
        const [ax = 0, ay = 0, , bx = 0, by = 0] = points.slice(i, i + 5);
        if (toSegment(at, ax / 10, ay / 10, bx / 10, by / 10) <= reach) return true;
      }
      return false;
    }
    case "shape":
      return outline(edit).some(([ax, ay, bx, by]) => toSegment(at, ax, ay, bx, by) <= radius + edit.size / 20);
    case "text": {
      const box = grow(boxOf(edit), radius);
      return at.x >= box.x0 && at.x <= box.x1 && at.y >= box.y0 && at.y <= box.y1;
    }
  }
}

function outline(edit: Extract<Draw, { kind: "shape" }>): [number, number, number, number][] {
  const [x0, y0, x1, y1] = [edit.x0 / 10, edit.y0 / 10, edit.x1 / 10, edit.y1 / 10];
  if (edit.form === "line" || edit.form === "arrow") return [[x0, y0, x1, y1]];
  if (edit.form === "rect") return [[x0, y0, x1, y0], [x1, y0, x1, y1], [x1, y1, x0, y1], [x0, y1, x0, y0]];
  const corners = Array.from({ length: 33 }, (_, at): [number, number] => {
    const angle = (at / 32) * 2 * Math.PI;
    return [(x0 + x1) / 2 + (Math.cos(angle) * (x1 - x0)) / 2, (y0 + y1) / 2 + (Math.sin(angle) * (y1 - y0)) / 2];
  });
  return corners.slice(1).map(([bx, by], at) => {
    const [ax, ay] = corners[at] ?? [bx, by];
    return [ax, ay, bx, by];
  });
}

/** World pixels of one cell's side. */
const CELL = 256;
/** A thing over more cells than this is in every answer instead. */
const CELLS_MAX = 256;

/** Things by the cells that their boxes touch. */
export class Grid<T> {
  readonly #cells = new Map<string, Set<T>>();
  readonly #large = new Set<T>();
  readonly #boxes = new Map<T, Box>();

  set(thing: T, box: Box): void {
    this.delete(thing);
    this.#boxes.set(thing, box);
    const keys = this.#keys(box);
    if (keys === null) return void this.#large.add(thing);
    for (const key of keys) {
      const cell = this.#cells.get(key) ?? new Set();
      cell.add(thing);
      this.#cells.set(key, cell);
    }
  }

  delete(thing: T): void {
    const box = this.#boxes.get(thing);
    if (box === undefined) return;
    this.#boxes.delete(thing);
    this.#large.delete(thing);
    for (const key of this.#keys(box) ?? []) this.#cells.get(key)?.delete(thing);
  }

  boxOf(thing: T): Box | undefined {
    return this.#boxes.get(thing);
  }

  clear(): void {
    this.#cells.clear();
    this.#large.clear();
    this.#boxes.clear();
  }

  /** Things whose box overlaps, in no order. */
  find(box: Box): Set<T> {
    const found = new Set<T>();
    const keys = this.#keys(box);
    const sets: Iterable<Iterable<T>> = keys === null ? [this.#boxes.keys()] : [this.#large, ...keys.map((key) => this.#cells.get(key) ?? [])];
    for (const things of sets) {
      for (const thing of things) {
        const own = this.#boxes.get(thing);
        if (own !== undefined && overlaps(own, box)) found.add(thing);
      }
    }
    return found;
  }

  #keys(box: Box): string[] | null {
    const [left, right] = [Math.floor(box.x0 / CELL), Math.floor(box.x1 / CELL)];
    const [top, bottom] = [Math.floor(box.y0 / CELL), Math.floor(box.y1 / CELL)];
    if ((right - left + 1) * (bottom - top + 1) > CELLS_MAX) return null;
    const keys: string[] = [];
    for (let x = left; x <= right; x += 1) for (let y = top; y <= bottom; y += 1) keys.push(`${x},${y}`);
    return keys;
  }
}
