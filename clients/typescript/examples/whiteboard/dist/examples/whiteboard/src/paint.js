/** How things look. */
import { FLAT } from "./edits.js";
import { LINE_HEIGHT } from "./geometry.js";
/** Colours by their number; the first is ink, which is what stands out from the paper. */
export const PALETTE = {
    light: ["#1d2433", "#6b7280", "#e03131", "#f76707", "#f2b705", "#2f9e44", "#0c8599", "#1c6fe0", "#7048e8", "#d6336c"],
    dark: ["#eef1f6", "#9aa3b2", "#ff6b6b", "#ff922b", "#ffd43b", "#51cf66", "#3bc9db", "#5b9dff", "#9775fa", "#f783ac"],
};
export const PAPER = {
    light: { paper: "#fbfbf9", dots: "#d9dbd6" },
    dark: { paper: "#15181e", dots: "#2b303a" },
};
export const FONT = '"Inter", system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const paths = new WeakMap();
/** Draws in world pixels; the context's transform is the camera. `instead` is a colour in place of the edit's own. */
export function paint(context, edit, theme, instead) {
    const color = instead ?? PALETTE[theme][edit.color] ?? "#808080";
    context.strokeStyle = color;
    context.fillStyle = color;
    context.lineCap = "round";
    context.lineJoin = "round";
    if (edit.kind === "stroke")
        stroke(context, edit);
    else if (edit.kind === "shape")
        shape(context, edit);
    else
        text(context, edit);
}
function pathOf(edit, make) {
    let path = paths.get(edit);
    if (path === undefined) {
        path = make();
        paths.set(edit, path);
    }
    return path;
}
function stroke(context, edit) {
    const width = edit.size / 10;
    if (edit.points.length === 3) {
        context.beginPath();
        context.arc((edit.points[0] ?? 0) / 10, (edit.points[1] ?? 0) / 10, width / 2, 0, 2 * Math.PI);
        context.fill();
        return;
    }
    if (edit.tool === "marker") {
        const { globalAlpha } = context;
        context.globalAlpha = globalAlpha * 0.35;
        context.lineWidth = width * 2;
        context.stroke(pathOf(edit, () => smooth(edit.points)));
        context.globalAlpha = globalAlpha;
        return;
    }
    if (isFlat(edit.points)) {
        context.lineWidth = width;
        context.stroke(pathOf(edit, () => smooth(edit.points)));
    }
    else
        pressed(context, edit.points, width);
}
function isFlat(points) {
    for (let at = 2; at < points.length; at += 3)
        if (points[at] !== FLAT)
            return false;
    return true;
}
/** A curve through the middles between the points: corners of the sampling do not show. */
export function smooth(points) {
    const path = new Path2D();
    const at = (i) => (points[i] ?? 0) / 10;
    path.moveTo(at(0), at(1));
    for (let i = 3; i + 4 < points.length; i += 3) {
        path.quadraticCurveTo(at(i), at(i + 1), (at(i) + at(i + 3)) / 2, (at(i + 1) + at(i + 4)) / 2);
    }
    path.lineTo(at(points.length - 3), at(points.length - 2));
    return path;
}
/** A pen's line: each piece as wide as it was pressed. */
function pressed(context, points, width) {
    for (let i = 0; i + 5 < points.length; i += 3) {
        const pressure = ((points[i + 2] ?? FLAT) + (points[i + 5] ?? FLAT)) / 2 / FLAT;
        context.lineWidth = Math.max(0.4, width * (0.25 + 0.75 * pressure));
        context.beginPath();
        context.moveTo((points[i] ?? 0) / 10, (points[i + 1] ?? 0) / 10);
        context.lineTo((points[i + 3] ?? 0) / 10, (points[i + 4] ?? 0) / 10);
        context.stroke();
    }
}
function shape(context, edit) {
    context.lineWidth = edit.size / 10;
    context.stroke(pathOf(edit, () => outline(edit)));
}
function outline(edit) {
    const path = new Path2D();
    const [x0, y0, x1, y1] = [edit.x0 / 10, edit.y0 / 10, edit.x1 / 10, edit.y1 / 10];
    if (edit.form === "rect") {
        const corner = Math.min(10, Math.abs(x1 - x0) / 4, Math.abs(y1 - y0) / 4);
        path.roundRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0), corner);
    }
    else if (edit.form === "ellipse") {
        path.ellipse((x0 + x1) / 2, (y0 + y1) / 2, Math.abs(x1 - x0) / 2, Math.abs(y1 - y0) / 2, 0, 0, 2 * Math.PI);
    }
    else {
        path.moveTo(x0, y0);
        path.lineTo(x1, y1);
        if (edit.form === "arrow")
            arrowHead(path, x0, y0, x1, y1, edit.size / 10);
    }
    return path;
}
function arrowHead(path, x0, y0, x1, y1, width) {
    const angle = Math.atan2(y1 - y0, x1 - x0);
    const length = Math.min(8 + width * 3, Math.hypot(x1 - x0, y1 - y0));
    for (const side of [-0.5, 0.5]) {
        path.moveTo(x1, y1);
        path.lineTo(x1 - Math.cos(angle + side) * length, y1 - Math.sin(angle + side) * length);
    }
}
function text(context, edit) {
    const size = edit.size / 10;
    context.font = `500 ${size}px ${FONT}`;
    context.textBaseline = "top";
    edit.text.split("\n").forEach((line, at) => context.fillText(line, edit.x / 10, edit.y / 10 + (at + 0.1) * size * LINE_HEIGHT));
}
