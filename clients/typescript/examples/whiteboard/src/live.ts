/** What moves above the ink: drawings on their way, the selection, the eraser's trail, other people. */
import type { Draw } from "./edits.js";
import type { Box } from "./geometry.js";
import { grow } from "./geometry.js";
import { FONT, PAPER, paint } from "./paint.js";
import type { Theme } from "./paint.js";
import { FADES_AFTER_MS } from "./people.js";
import type { Cursor, People } from "./people.js";
import type { Pointers } from "./pointer.js";
import { selectionBox } from "./pointer.js";
import type { Scene } from "./scene.js";
import type { Camera, Surface } from "./surface.js";

export interface LiveParts {
  readonly surface: Surface;
  readonly pointers: Pointers;
  scene(): Scene;
  sketches(): readonly Draw[];
  people(): People | null;
  /** Whether an edit of that id is on the board already. */
  known(id: string): boolean;
}

export function drawLive(context: CanvasRenderingContext2D, camera: Camera, parts: LiveParts): void {
  const { surface, pointers } = parts;
  const { theme } = surface;
  for (const sketch of parts.sketches()) paint(context, sketch, theme);
  const own = pointers.sketch;
  if (own !== null) paint(context, own, theme);
  drawErasing(context, parts);
  drawSelection(context, camera, parts);
  drawMarquee(context, camera, pointers.marquee, theme);
  for (const cursor of parts.people()?.cursors.values() ?? []) drawCursor(context, camera, cursor, parts);
}

/** What the eraser touched fades under the paper's colour until it is let go. */
function drawErasing(context: CanvasRenderingContext2D, { pointers, surface, scene }: LiveParts): void {
  for (const id of pointers.erasing ?? []) {
    const item = scene().item(id);
    if (item === undefined) continue;
    const { x, y } = scene().offsetOf(item);
    context.save();
    context.translate(x, y);
    context.globalAlpha = 0.75;
    // A little wider than it is, so that no rim is left.
    const wider = item.edit.kind === "text" ? item.edit : { ...item.edit, size: item.edit.size + 20 };
    paint(context, wider, surface.theme, PAPER[surface.theme].paper);
    context.restore();
  }
}

function accent(theme: Theme): string {
  return theme === "dark" ? "#5b9dff" : "#1c6fe0";
}

function drawSelection(context: CanvasRenderingContext2D, camera: Camera, { pointers, scene, surface }: LiveParts): void {
  const box = selectionBox(scene(), pointers.selection);
  if (box === null) return;
  const dragged = pointers.dragged ?? { x: 0, y: 0 };
  context.save();
  context.translate(dragged.x, dragged.y);
  if (pointers.dragged !== null) {
    context.globalAlpha = 0.55;
    for (const id of pointers.selection) {
      const item = scene().item(id);
      if (item === undefined || !scene().isShown(item)) continue;
      const { x, y } = scene().offsetOf(item);
      context.save();
      context.translate(x, y);
      paint(context, item.edit, surface.theme);
      context.restore();
    }
    context.globalAlpha = 1;
  }
  const around = grow(box, 4 / camera.scale);
  context.strokeStyle = accent(surface.theme);
  context.lineWidth = 1.5 / camera.scale;
  context.setLineDash([5 / camera.scale, 4 / camera.scale]);
  context.strokeRect(around.x0, around.y0, around.x1 - around.x0, around.y1 - around.y0);
  context.restore();
}

function drawMarquee(context: CanvasRenderingContext2D, camera: Camera, box: Box | null, theme: Theme): void {
  if (box === null) return;
  context.save();
  context.strokeStyle = accent(theme);
  context.fillStyle = accent(theme);
  context.lineWidth = 1 / camera.scale;
  context.strokeRect(box.x0, box.y0, box.x1 - box.x0, box.y1 - box.y0);
  context.globalAlpha = 0.08;
  context.fillRect(box.x0, box.y0, box.x1 - box.x0, box.y1 - box.y0);
  context.restore();
}

function drawCursor(context: CanvasRenderingContext2D, camera: Camera, cursor: Cursor, parts: LiveParts): void {
  const person = parts.people()?.person(cursor.tab);
  if (person === undefined) return;
  if (cursor.sketch !== null && !parts.known(cursor.sketch.id)) paint(context, cursor.sketch, parts.surface.theme);
  const age = performance.now() - cursor.seen;
  if (age > FADES_AFTER_MS) return;
  const k = 1 / camera.scale;
  context.save();
  context.globalAlpha = Math.min(1, (FADES_AFTER_MS - age) / 1_000);
  context.translate(cursor.at.x, cursor.at.y);
  context.scale(k, k);
  context.fillStyle = person.color;
  context.strokeStyle = "#ffffff";
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  const arrow = new Path2D("M0 0L4.6 15.500L8 9.200L14.800 7.400Z");
  context.stroke(arrow);
  context.fill(arrow);
  context.font = `600 12px ${FONT}`;
  context.textBaseline = "middle";
  const label = person.name.length > 24 ? `${person.name.slice(0, 23)}…` : person.name;
  const width = context.measureText(label).width + 14;
  // The name stays on the paper: at its right or lower edge it stands on the other side of the arrow.
  const place = context.getTransform();
  const { width: paperWidth, height: paperHeight } = context.canvas;
  const left = place.e + place.a * (13 + width) > paperWidth ? -width - 4 : 13;
  const top = place.f + place.d * 36 > paperHeight ? -26 : 15;
  context.beginPath();
  context.roundRect(left, top, width, 21, 7);
  context.fill();
  context.fillStyle = "#ffffff";
  context.fillText(label, left + 7, top + 11);
  context.restore();
}
