import assert from "node:assert/strict";
import { test } from "node:test";
import { Board, isVisible } from "../examples/whiteboard/src/board.js";
import { readEdit, writeEdit } from "../examples/whiteboard/src/edits.js";
function dice(seed) {
    let state = seed;
    return (below) => {
        state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
        return Math.floor((state / 2 ** 32) * below);
    };
}
/** A log of edits of three people, with duplicates and nonsense in it. */
function log(seed, length) {
    const roll = dice(seed);
    const edits = [];
    return Array.from({ length }, (_, at) => {
        const base = { id: `e${at}`, by: ["ann", "bob", "cid"][roll(3)] ?? "ann", n: at };
        const some = () => edits[roll(Math.max(1, edits.length))]?.id ?? "e0";
        const kind = roll(10);
        const edit = kind < 4 ? { kind: "stroke", ...base, tool: "pen", color: roll(10), size: 40, points: [roll(1000), roll(1000), 128, roll(1000), roll(1000), 128] }
            : kind === 4 ? { kind: "shape", ...base, form: "rect", color: 1, size: 20, x0: 0, y0: 0, x1: roll(500), y1: 90 }
                : kind === 5 ? { kind: "text", ...base, color: 2, size: 160, x: 5, y: 5, text: `t${at}` }
                    : kind === 6 ? { kind: "erase", ...base, ids: [some(), some(), "nowhere"] }
                        : kind === 7 ? { kind: "move", ...base, ids: [some()], dx: roll(100) - 50, dy: roll(100) - 50 }
                            : kind === 8 ? { kind: roll(2) === 0 ? "undo" : "redo", ...base, target: some() }
                                : edits[roll(Math.max(1, edits.length))] ?? null;
        if (edit !== null)
            edits.push(edit);
        return edit;
    });
}
test("folding the same log gives the same hash, whatever was read from a snapshot on the way", () => {
    for (let seed = 1; seed <= 40; seed += 1) {
        const edits = log(seed, 300);
        const whole = new Board();
        edits.forEach((edit, offset) => whole.apply(edit, offset));
        for (const cut of [0, 1, 97, 200, 299, 300]) {
            const first = new Board();
            edits.slice(0, cut).forEach((edit, offset) => first.apply(edit, offset));
            const joined = Board.read(first.write());
            assert.ok(joined !== null, `seed ${seed}: a snapshot at ${cut} reads back`);
            edits.slice(cut).forEach((edit, at) => joined.apply(edit, cut + at));
            assert.equal(joined.hash, whole.hash, `seed ${seed}, snapshot at ${cut}`);
            assert.equal(joined.visible, whole.visible);
            assert.equal(joined.write(), whole.write());
        }
    }
});
test("another order, another place or one edit less is another hash", () => {
    const edits = log(5, 60);
    const hash = (list) => {
        const board = new Board();
        list.forEach((edit, offset) => board.apply(edit, offset));
        return board.hash;
    };
    const whole = hash(edits);
    assert.notEqual(hash(edits.slice(1)), whole);
    assert.notEqual(hash(edits.slice(0, -1).concat([null])), hash(edits.slice(0, -1).concat(log(6, 60).slice(-1).map((edit) => edit && { ...edit, id: "other" }))));
    const turned = [...edits];
    [turned[0], turned[1]] = [turned[1] ?? null, turned[0] ?? null];
    assert.notEqual(hash(turned), whole);
});
test("an edit published twice counts once, and an offset read twice does nothing", () => {
    const board = new Board();
    const stroke = { kind: "stroke", id: "s", by: "ann", n: 1, tool: "pen", color: 0, size: 40, points: [0, 0, 128] };
    board.apply(stroke, 0);
    const { hash } = board;
    board.apply(stroke, 1);
    board.apply({ ...stroke, id: "t" }, 0);
    assert.equal(board.hash, hash);
    assert.equal(board.next, 2);
});
test("people undo their own edits only; undoing an erasure brings back, undoing a drawing takes away", () => {
    const board = new Board();
    const base = { by: "ann", n: 0 };
    board.apply({ kind: "stroke", id: "s", ...base, tool: "pen", color: 0, size: 40, points: [0, 0, 128] }, 0);
    const item = board.items.get("s");
    assert.ok(item !== undefined);
    board.apply({ kind: "erase", id: "x", by: "bob", n: 0, ids: ["s"] }, 1);
    assert.ok(!isVisible(item));
    board.apply({ kind: "undo", id: "u1", ...base, target: "x" }, 2);
    assert.ok(!isVisible(item), "not hers");
    board.apply({ kind: "undo", id: "u2", by: "bob", n: 0, target: "x" }, 3);
    assert.ok(isVisible(item));
    board.apply({ kind: "undo", id: "u3", ...base, target: "s" }, 4);
    assert.ok(!isVisible(item));
    board.apply({ kind: "redo", id: "u4", ...base, target: "s" }, 5);
    assert.ok(isVisible(item));
});
test("what is written reads back, and what somebody made up is no edit", () => {
    for (const edit of log(9, 200))
        if (edit !== null)
            assert.deepEqual(readEdit(JSON.parse(JSON.stringify(writeEdit(edit)))), edit);
    const bad = [
        null, 7, "stroke", {}, [], ["stroke"], ["nothing", "id", "ann", 1], ["stroke", "a b", "ann", 1, "pen", 0, 40, [0, 0, 128]],
        ["stroke", "id", "ann", -1, "pen", 0, 40, [0, 0, 128]], ["stroke", "id", "ann", 1, "pen", 10, 40, [0, 0, 128]],
        ["stroke", "id", "ann", 1, "pen", 0, 40, [0, 0]], ["stroke", "id", "ann", 1, "pen", 0, 40, [0.5, 0, 128]],
        ["stroke", "id", "ann", 1, "pen", 0, 40, [0, 0, 256]], ["stroke", "id", "ann", 1, "pen", 0, 40, new Array(12_003).fill(0)],
        ["text", "id", "ann", 1, 0, 160, 0, 0, ""], ["text", "id", "ann", 1, 0, 160, 0, 0, "x".repeat(2_001)],
        ["erase", "id", "ann", 1, ["no good"]], ["erase", "id", "ann", 1, new Array(501).fill("x")], ["move", "id", "ann", 1, ["x"], 1e9, 0],
        ["undo", "id", "ann", 1, "no good"], ["shape", "id", "ann", 1, "star", 0, 40, 0, 0, 1, 1],
    ];
    for (const value of bad)
        assert.equal(readEdit(value), null, JSON.stringify(value)?.slice(0, 80));
});
test("a snapshot that was changed is not taken", () => {
    const board = new Board();
    log(3, 50).forEach((edit, offset) => board.apply(edit, offset));
    const text = board.write();
    assert.equal(Board.read(text.replace(/"color"|"pen"/, '"marker"')), null);
    for (const bad of ["", "{}", "null", '{"v":2}', text.slice(0, -3), text.replace('"v":1', '"v":9')])
        assert.equal(Board.read(bad), null);
});
