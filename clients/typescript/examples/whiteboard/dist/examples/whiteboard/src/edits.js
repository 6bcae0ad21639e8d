/**
 * Edits: what goes over the durable stream. Each has an id of its own, so that one that was published twice counts once.
 * Coordinates and sizes are whole tenths of a world pixel: every browser folds them to the same state.
 */
/** Pressure of a device that has none; 0 to 255. */
export const FLAT = 128;
export const POINTS_MAX = 4_000;
export const TEXT_MAX = 2_000;
export const IDS_MAX = 500;
const PLACE_MAX = 100_000_000;
const COLORS = 10;
const FORMS = ["line", "arrow", "rect", "ellipse"];
function int(value, low, high) {
    return typeof value === "number" && Number.isInteger(value) && value >= low && value <= high ? value : null;
}
function place(value) {
    return int(value, -PLACE_MAX, PLACE_MAX);
}
function id(value) {
    return typeof value === "string" && /^[A-Za-z0-9_-]{1,24}$/.test(value) ? value : null;
}
function ids(value) {
    // None is possible: an erasure of what was not there is written down without it.
    if (!Array.isArray(value) || value.length > IDS_MAX)
        return null;
    return value.every((one) => id(one) !== null) ? value : null;
}
function points(value) {
    if (!Array.isArray(value) || value.length < 3 || value.length % 3 !== 0 || value.length > POINTS_MAX * 3)
        return null;
    return value.every((one, at) => (at % 3 === 2 ? int(one, 0, 255) : place(one)) !== null) ? value : null;
}
/** An edit that somebody else may have written by hand; `null` when it is none, and then it counts for nothing everywhere. */
export function readEdit(value) {
    if (!Array.isArray(value) || value.length > 12)
        return null;
    const [kind, ownId, by, n, ...rest] = value;
    const base = { id: id(ownId), by, n: int(n, 0, Number.MAX_SAFE_INTEGER) };
    if (base.id === null || base.n === null || typeof by !== "string" || by.length > 256)
        return null;
    const checked = { id: base.id, by, n: base.n };
    switch (kind) {
        case "stroke": {
            const [tool, color, size, path] = [rest[0], int(rest[1], 0, COLORS - 1), int(rest[2], 1, 1_000), points(rest[3])];
            if ((tool !== "pen" && tool !== "marker") || color === null || size === null || path === null)
                return null;
            return { kind, ...checked, tool, color, size, points: path };
        }
        case "shape": {
            const [form, color, size, ...corners] = [rest[0], int(rest[1], 0, COLORS - 1), int(rest[2], 1, 1_000), ...rest.slice(3, 7).map(place)];
            const [x0 = null, y0 = null, x1 = null, y1 = null] = corners;
            if (typeof form !== "string" || !FORMS.includes(form) || color === null || size === null)
                return null;
            if (x0 === null || y0 === null || x1 === null || y1 === null)
                return null;
            return { kind, ...checked, form: form, color: color, size: size, x0, y0, x1, y1 };
        }
        case "text": {
            const [color, size, x, y, text] = [int(rest[0], 0, COLORS - 1), int(rest[1], 1, 10_000), place(rest[2]), place(rest[3]), rest[4]];
            if (color === null || size === null || x === null || y === null || typeof text !== "string")
                return null;
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
export function writeEdit(edit) {
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
export function isDraw(edit) {
    return edit.kind === "stroke" || edit.kind === "shape" || edit.kind === "text";
}
