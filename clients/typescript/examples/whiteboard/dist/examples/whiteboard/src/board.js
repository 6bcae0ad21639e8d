/**
 * The fold: edits in the order of the log become the board. Pure and the same everywhere, so two pages that have read the
 * same offsets show the same hash.
 */
import { isDraw, readEdit, writeEdit } from "./edits.js";
const NOTHING = { added: null, changed: [] };
export function isVisible(item) {
    return !item.undone && item.erased === 0;
}
/** FNV-1a over UTF-16 code units. */
function fnv(text, seed) {
    let hash = seed;
    for (let at = 0; at < text.length; at += 1)
        hash = Math.imul(hash ^ text.charCodeAt(at), 0x0100_0193);
    return hash >>> 0;
}
/** A sum of the hashes of all parts: one edit costs as much as it changes, however large the board is. */
class Sum {
    #a = 0;
    #b = 0;
    add(part) {
        this.#a = (this.#a + fnv(part, 0x811c_9dc5)) >>> 0;
        this.#b = (this.#b + fnv(part, 0x9747_b28c)) >>> 0;
    }
    remove(part) {
        this.#a = (this.#a - fnv(part, 0x811c_9dc5)) >>> 0;
        this.#b = (this.#b - fnv(part, 0x9747_b28c)) >>> 0;
    }
    get hex() {
        return this.#a.toString(16).padStart(8, "0") + this.#b.toString(16).padStart(8, "0");
    }
}
function partOf(item, digest) {
    return `${digest}|${item.z}|${item.dx}|${item.dy}|${item.erased}|${item.undone ? 1 : 0}`;
}
export class Board {
    /** First offset not folded yet. */
    next = 0;
    items = new Map();
    #acts = new Map();
    #digests = new Map();
    #sum = new Sum();
    /** Hash of the state; equal on pages that folded the same offsets. */
    get hash() {
        return this.#sum.hex;
    }
    /** Edits that count. */
    get edits() {
        return this.#acts.size;
    }
    has(id) {
        return this.#acts.has(id);
    }
    /** Things that can be seen. */
    get visible() {
        let count = 0;
        for (const item of this.items.values())
            if (isVisible(item))
                count += 1;
        return count;
    }
    /** Folds what stands at `offset`: an edit, or `null` for something that is none. */
    apply(edit, offset) {
        if (offset < this.next)
            return NOTHING;
        this.next = offset + 1;
        if (edit === null || this.#acts.has(edit.id))
            return NOTHING;
        return this.#take(edit, offset, false);
    }
    /** The whole board in one text: what it takes to go on folding at `next`. */
    write() {
        const edits = [...this.#acts.values()].map((act) => [act.offset, act.undone ? 1 : 0, writeEdit(act.edit)]);
        return JSON.stringify({ v: 1, next: this.next, hash: this.hash, edits });
    }
    /** A board from such a text; `null` when it is none, or does not fold to the hash it names. */
    static read(text) {
        let value;
        try {
            value = JSON.parse(text);
        }
        catch {
            return null;
        }
        const { v, next, hash, edits } = (value ?? {});
        if (v !== 1 || !Number.isSafeInteger(next) || !Array.isArray(edits))
            return null;
        const board = new Board();
        for (const row of edits) {
            if (!Array.isArray(row))
                return null;
            const [offset, undone, written] = row;
            const edit = readEdit(written);
            if (edit === null || !Number.isSafeInteger(offset))
                return null;
            board.#take(edit, offset, undone === 1);
        }
        board.next = next;
        return board.hash === hash ? board : null;
    }
    #take(edit, offset, undone) {
        if (edit.kind === "undo" || edit.kind === "redo") {
            this.#acts.set(edit.id, { edit, offset, undone: false });
            this.#sum.add(`${edit.id}|${offset}`);
            // A board that is read has its acts as they ended up already.
            return this.#reading(offset) ? NOTHING : this.#toggle(edit.target, edit.by, edit.kind === "undo");
        }
        // Only what is there is touched; what that was is part of the state.
        const kept = "ids" in edit ? { ...edit, ids: edit.ids.filter((id) => this.items.has(id)) } : edit;
        const act = { edit: kept, offset, undone: false };
        this.#acts.set(edit.id, act);
        const change = isDraw(kept) ? this.#add(kept, offset) : this.#effect(act, 1);
        if (!isDraw(kept))
            this.#sum.add(this.#actPart(act));
        if (undone)
            this.#set(act, true);
        return change;
    }
    /** While a text is read, `next` is still behind. */
    #reading(offset) {
        return this.next <= offset;
    }
    #actPart(act) {
        return `${act.edit.id}|${act.offset}|${act.undone ? 1 : 0}`;
    }
    #add(edit, offset) {
        const item = { edit, z: offset, dx: 0, dy: 0, erased: 0, undone: false };
        this.items.set(edit.id, item);
        this.#digests.set(edit.id, String(fnv(JSON.stringify(writeEdit(edit)), 17)));
        this.#sum.add(this.#part(item));
        return { added: item, changed: [] };
    }
    #part(item) {
        return partOf(item, `${item.edit.id}|${this.#digests.get(item.edit.id) ?? ""}`);
    }
    #toggle(target, by, undone) {
        const act = this.#acts.get(target);
        if (act === undefined || act.edit.by !== by || act.undone === undone || act.edit.kind === "undo" || act.edit.kind === "redo")
            return NOTHING;
        return this.#set(act, undone);
    }
    #set(act, undone) {
        if (isDraw(act.edit)) {
            act.undone = undone;
            return { added: null, changed: this.#touch([act.edit.id], (item) => { item.undone = undone; }) };
        }
        this.#sum.remove(this.#actPart(act));
        act.undone = undone;
        this.#sum.add(this.#actPart(act));
        return this.#effect(act, undone ? -1 : 1);
    }
    #effect(act, sign) {
        const { edit } = act;
        if (edit.kind === "erase")
            return { added: null, changed: this.#touch(edit.ids, (item) => { item.erased += sign; }) };
        if (edit.kind !== "move")
            return NOTHING;
        return {
            added: null,
            changed: this.#touch(edit.ids, (item) => {
                item.dx += sign * edit.dx;
                item.dy += sign * edit.dy;
            }),
        };
    }
    #touch(ids, change) {
        const touched = [];
        for (const id of ids) {
            const item = this.items.get(id);
            if (item === undefined)
                continue;
            this.#sum.remove(this.#part(item));
            change(item);
            this.#sum.add(this.#part(item));
            touched.push(item);
        }
        return touched;
    }
}
