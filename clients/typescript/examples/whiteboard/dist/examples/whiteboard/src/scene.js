/** What is there to be seen: the board's items, and over them what this page has asked for and the log has not confirmed. */
import { isVisible } from "./board.js";
import { Grid, boxOf, grow, shift, touches } from "./geometry.js";
/** Where an item is now. */
export function placed(item) {
    return shift(boxOf(item.edit), item.dx / 10, item.dy / 10);
}
export class Scene {
    #grid = new Grid();
    #pending = new Map();
    #board = null;
    /** Another board, or the same at another time. */
    show(board) {
        this.#board = board;
        this.#grid.clear();
        for (const item of board.items.values())
            this.#grid.set(item, placed(item));
    }
    /** Takes a change in; the boxes that have to be drawn again. */
    change(change) {
        const damaged = [];
        if (change.added !== null)
            this.#grid.set(change.added, placed(change.added));
        for (const item of change.changed) {
            const before = this.#grid.boxOf(item);
            const after = placed(item);
            this.#grid.set(item, after);
            damaged.push(after, ...(before === undefined ? [] : [before]));
        }
        return damaged;
    }
    /** An edit went out (`sign` 1) or came back or was given up (-1): until then it is shown as if it were done. */
    expect(edit, sign) {
        if (edit.kind === "erase")
            return this.#touch(edit.ids, (one) => { one.hidden += sign; });
        if (edit.kind === "move") {
            return this.#touch(edit.ids, (one) => {
                one.dx += sign * edit.dx;
                one.dy += sign * edit.dy;
            });
        }
        if (edit.kind === "undo")
            return this.#touch([edit.target], (one) => { one.hidden += sign; });
        return [];
    }
    isShown(item) {
        return isVisible(item) && (this.#pending.get(item.edit.id)?.hidden ?? 0) === 0;
    }
    /** How far the item is from where it was drawn, in world pixels. */
    offsetOf(item) {
        const pending = this.#pending.get(item.edit.id);
        return { x: (item.dx + (pending?.dx ?? 0)) / 10, y: (item.dy + (pending?.dy ?? 0)) / 10 };
    }
    /** What is seen in a box, lowest first. */
    find(box) {
        return [...this.#grid.find(box)].filter((item) => this.isShown(item)).sort((a, b) => a.z - b.z);
    }
    /** What a circle touches, uppermost first. */
    pick(at, radius) {
        const box = grow({ x0: at.x, y0: at.y, x1: at.x, y1: at.y }, radius);
        return this.find(box).reverse().filter((item) => {
            const { x, y } = this.offsetOf(item);
            return touches(item.edit, { x: at.x - x, y: at.y - y }, radius);
        });
    }
    item(id) {
        return this.#board?.items.get(id);
    }
    /** Around everything that is seen; `null` on an empty board. */
    bounds() {
        let bounds = null;
        for (const item of this.#board?.items.values() ?? []) {
            if (!this.isShown(item))
                continue;
            const box = placed(item);
            bounds = bounds === null ? { ...box } : { x0: Math.min(bounds.x0, box.x0), y0: Math.min(bounds.y0, box.y0), x1: Math.max(bounds.x1, box.x1), y1: Math.max(bounds.y1, box.y1) };
        }
        return bounds;
    }
    #touch(ids, change) {
        const damaged = [];
        for (const id of ids) {
            const pending = this.#pending.get(id) ?? { hidden: 0, dx: 0, dy: 0 };
            const item = this.#board?.items.get(id);
            const before = item === undefined ? null : this.offsetOf(item);
            this.#pending.set(id, pending);
            change(pending);
            if (pending.hidden === 0 && pending.dx === 0 && pending.dy === 0)
                this.#pending.delete(id);
            if (item === undefined || before === null)
                continue;
            const after = this.offsetOf(item);
            const own = boxOf(item.edit);
            this.#grid.set(item, shift(own, after.x, after.y));
            damaged.push(shift(own, before.x, before.y), shift(own, after.x, after.y));
        }
        return damaged;
    }
}
