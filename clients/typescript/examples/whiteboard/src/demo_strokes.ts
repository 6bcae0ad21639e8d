/** Drawings for the demo: a plan of a house by the water, or any number of scribbles. */
import { FLAT } from "./edits.js";
import type { Edit, Form } from "./edits.js";

let next = 0;

function base(): { id: string; by: string; n: number } {
  next += 1;
  return { id: `demo-${next}`, by: next % 2 === 0 ? "ada" : "kofi", n: next };
}

function curve(color: number, size: number, places: readonly (readonly [number, number])[], tool: "pen" | "marker" = "pen", pressed = false): Edit {
  const points = places.flatMap(([x, y], at) => [
    Math.round(x * 10), Math.round(y * 10), pressed ? Math.round(40 + 200 * Math.sin((at / places.length) * Math.PI)) : FLAT,
  ]);
  return { kind: "stroke", ...base(), tool, color, size: size * 10, points };
}

function shape(form: Form, color: number, x0: number, y0: number, x1: number, y1: number, size = 4): Edit {
  return { kind: "shape", ...base(), form, color, size: size * 10, x0: x0 * 10, y0: y0 * 10, x1: x1 * 10, y1: y1 * 10 };
}

function words(color: number, x: number, y: number, text: string, size = 22): Edit {
  return { kind: "text", ...base(), color, size: size * 10, x: x * 10, y: y * 10, text };
}

function wave(y: number, from: number, to: number, height: number, phase: number): [number, number][] {
  return Array.from({ length: 60 }, (_, at) => {
    const x = from + ((to - from) * at) / 59;
    return [x, y + Math.sin(x / 26 + phase) * height];
  });
}

/** Names of drawings, or a number of scribbles. */
export function scribble(which: string): Edit[] {
  if (which === "none") return [];
  if (/^\d+$/.test(which)) return Array.from({ length: Number(which) }, (_, at) => spiral(at));
  return [
    words(0, -420, -300, "Release plan", 40),
    curve(4, 10, wave(-246, -424, -170, 2, 0), "marker"),
    shape("rect", 7, -420, -200, -210, -100), words(7, -388, -166, "gateway"),
    shape("rect", 5, -60, -200, 150, -100), words(5, -16, -166, "broker"),
    shape("rect", 8, 300, -200, 510, -100), words(8, 352, -166, "disks"),
    shape("arrow", 1, -200, -150, -72, -150), shape("arrow", 1, 160, -150, 288, -150),
    words(1, -170, -184, "publish", 16), words(1, 196, -184, "flush", 16),
    shape("ellipse", 3, -70, 10, 160, 130), words(3, -12, 54, "5,000\nbrowsers", 22),
    curve(3, 3, [[40, 8], [30, -20], [46, -50], [44, -92]]),
    curve(2, 4, [[-398, 40], [-386, 56], [-352, 8]], "pen", true), words(0, -325, 20, "resume by offset"),
    curve(2, 4, [[-398, 112], [-386, 128], [-352, 80]], "pen", true), words(0, -325, 92, "sign in"),
    shape("rect", 1, -400, 160, -370, 190, 3), words(0, -325, 164, "dark mode, at last"),
    curve(6, 4, wave(220, -420, 510, 9, 0)), curve(7, 4, wave(244, -420, 510, 9, 1.4)),
    curve(9, 6, Array.from({ length: 40 }, (_, at) => [400 + Math.cos(at / 4) * (8 + at * 1.6), 60 + Math.sin(at / 4) * (8 + at * 1.6)]), "pen", true),
  ];
}

/** A small curl at a place of its own. */
export function spiral(at: number): Edit {
  const [column, row] = [at % 125, Math.floor(at / 125)];
  const places = Array.from({ length: 24 }, (_, i): [number, number] => [
    column * 42 - 2_600 + Math.cos(i / 3 + at) * i * 0.8, row * 42 - 1_600 + Math.sin(i / 3 + at) * i * 0.8,
  ]);
  return curve(at % 10, 2, places);
}
