/**
 * Edits: what goes over the durable stream. Each has an id of its own, so that one that was published twice counts once.
 * Coordinates and sizes are whole tenths of a world pixel: every browser folds them to the same state.
 */

/** Pressure of a device that has none; 0 to 255. */
export const FLAT = 128;

export type Tool = "pen" | "marker";
export type Form = "line" | "arrow" | "rect" | "ellipse";

interface Base {
  /** Letters, digits, `_` and `-`; at most 24. */
  readonly id: string;
  /** Principal of the author. */
  readonly by: string;
  /** Number of the edit, from the board's counter; 0 when the counter was out of reach. */
  readonly n: number;
}

export interface Stroke extends Base {
  readonly kind: "stroke";
  readonly tool: Tool;
  readonly color: number;
  readonly size: number;
  /** x, y, pressure; x, y, pressure; … */
  readonly points: readonly number[];
}

export interface Shape extends Base {
  readonly kind: "shape";
  readonly form: Form;
  readonly color: number;
  readonly size: number;
  readonly x0: number;
  readonly y0: number;
  readonly x1: number;
  readonly y1: number;
}

export interface Text extends Base {
  readonly kind: "text";
  readonly color: number;
  readonly size: number;
  readonly x: number;
  readonly y: number;
  readonly text: string;
}

export interface Erase extends Base {
  readonly kind: "erase";
  readonly ids: readonly string[];
}

export interface Move extends Base {
  readonly kind: "move";
  readonly ids: readonly string[];
  readonly dx: number;
  readonly dy: number;
}

/** Takes an edit of the same author back, or brings it back. */
export interface Undo extends Base {
  readonly kind: "undo" | "redo";
  readonly target: string;
}

export type Draw = Stroke | Shape | Text;
export type Edit = Draw | Erase | Move | Undo;
/** An edit before it has author and number. */
export type Intent = Edit extends infer E ? (E extends Edit ? Omit<E, "by" | "n"> : never) : never;

export const POINTS_MAX = 4_000;
export const TEXT_MAX = 2_000;
export const IDS_MAX = 500;
const PLACE_MAX = 100_000_000;
const COLORS = 10;
const FORMS: readonly string[] = ["line", "arrow", "rect", "ellipse"];

function int(value: unknown, low: number, high: number): number | null {
  return typeof value === "number" && Number.isInteger(value) && value >= low && value <= high ? value : null;
}

function place(value: unknown): number | null {
  return int(value, -PLACE_MAX, PLACE_MAX);
}

function id(value: unknown): string | null {
  return typeof value === "string" && /^[A-Za-z0-9_-]{1,24}$/.test(value) ? value : null;
}

function ids(value: unknown): string[] | null {
  // None is possible: an erasure of what was not there is written down without it.
  if (!Array.isArray(value) || value.length > IDS_MAX) return null;
  return value.every((one) => id(one) !== null) ? (value as string[]) : null;
}

function points(value: unknown): number[] | null {
  if (!Array.isArray(value) || value.length < 3 || value.length % 3 !== 0 || value.length > POINTS_MAX * 3) return null;
  return value.every((one, at) => (at % 3 === 2 ? int(one, 0, 255) : place(one)) !== null) ? (value as number[]) : null;
}

/** An edit that somebody else may have written by hand; `null` when it is none, and then it counts for nothing everywhere. */
export function readEdit(value: unknown): Edit | null {
  if (!Array.isArray(value) || value.length > 12) return null;
  const [kind, ownId, by, n, ...rest] = value as unknown[];
  const base = { id: id(ownId), by, n: int(n, 0, Number.MAX_SAFE_INTEGER) };
  if (base.id === null || base.n === null || typeof by !== "string" || by.length > 256) return null;
  const checked = { id: base.id, by, n: base.n };
  switch (kind) {
    case "stroke": {
      const [tool, color, size, path] = [rest[0], int(rest[1], 0, COLORS - 1), int(rest[2], 1, 1_000), points(rest[3])];
      if ((tool !== "pen" && tool !== "marker") || color === null || size === null || path === null) return null;
      return { kind, ...checked, tool, color, size, points: path };
    }
    case "shape": {
      const [form, color, size, ...corners] = [rest[0], int(rest[1], 0, COLORS - 1), int(rest[2], 1, 1_000), ...rest.slice(3, 7).map(place)];
      const [x0 = null, y0 = null, x1 = null, y1 = null] = corners as (number | null)[];
      if (typeof form !== "string" || !FORMS.includes(form) || color === null || size === null) return null;
      if (x0 === null || y0 === null || x1 === null || y1 === null) return null;
      return { kind, ...checked, form: form as Form, color: color as number, size: size as number, x0, y0, x1, y1 };
    }
    case "text": {
      const [color, size, x, y, text] = [int(rest[0], 0, COLORS - 1), int(rest[1], 1, 10_000), place(rest[2]), place(rest[3]), rest[4]];
      if (color === null || size === null || x === null || y === null || typeof text !== "string") return null;
      return text === "" || text.length > TEXT_MAX ? null : { kind, ...checked, color, size, x, y, text };
    }
    case "erase": {
      const which = ids(rest[0]);
      return which === null ? null : { kind, ...checked, ids: which };
    }
    case "move": {
      const [which, dx, dy] = [ids(rest[0]), place(rest[1]), place(rest[2])];
      return which === null || dx === null || dy === null ? null : { kind, ...checked, ids: which, dx, dy };
    }
    case "undo":
    case "redo": {
      const target = id(rest[0]);
      return target === null ? null : { kind, ...checked, target };
    }
    default:
      return null;
  }
}

/** The one way to write an edit down: an array in a fixed order, so that equal edits are equal bytes. */
export function writeEdit(edit: Edit): unknown[] {
  const base = [edit.kind, edit.id, edit.by, edit.n];
  switch (edit.kind) {
    case "stroke":
      return [...base, edit.tool, edit.color, edit.size, edit.points];
    case "shape":
      return [...base, edit.form, edit.color, edit.size, edit.x0, edit.y0, edit.x1, edit.y1];
    case "text":
      return [...base, edit.color, edit.size, edit.x, edit.y, edit.text];
    case "erase":
      return [...base, edit.ids];
    case "move":
      return [...base, edit.ids, edit.dx, edit.dy];
    case "undo":
    case "redo":
      return [...base, edit.target];
  }
}

export function isDraw(edit: Edit): edit is Draw {
  return edit.kind === "stroke" || edit.kind === "shape" || edit.kind === "text";
}
