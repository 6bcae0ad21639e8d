/** The board as it was: a second connection reads the log from its beginning, and the fold stops where the slider stands. */
import { FelixClient, text } from "../../../src/index.js";
import { Board } from "./board.js";
import { readEdit } from "./edits.js";
import { ALIAS } from "./room.js";
/** Edits between two boards that are kept, so that going back folds a few and not all. */
const KEEP_EVERY = 500;
export class History {
    changed;
    #client;
    #past = [];
    #kept = [];
    #edits = null;
    #whole = new Board();
    constructor(client, changed) {
        this.changed = changed;
        this.#client = client;
        client.connect();
        this.#edits = client.subscribe(ALIAS.edits, {
            from: "earliest",
            onEvent: ({ offset, timeMs, bytes }) => {
                if (offset === null)
                    return;
                let edit = null;
                try {
                    edit = readEdit(JSON.parse(text(bytes)));
                }
                catch {
                    // It counts for nothing, as in the fold.
                }
                if (this.#past.length % KEEP_EVERY === 0)
                    this.#kept.push(this.#whole.write());
                this.#past.push({ offset, edit, timeMs });
                this.#whole.apply(edit, offset);
                this.changed();
            },
        });
    }
    /** Positions of the slider: 0 is before the first edit that is kept. */
    get length() {
        return this.#past.length;
    }
    /** The edit that led to this position. */
    at(position) {
        const past = this.#past[position - 1];
        return past === undefined ? null : { n: past.edit?.n ?? 0, timeMs: past.timeMs };
    }
    /** The board after the first `position` edits. */
    board(position) {
        const from = Math.min(this.#kept.length - 1, Math.floor(position / KEEP_EVERY));
        const board = from > 0 ? (Board.read(this.#kept[from] ?? "") ?? new Board()) : new Board();
        const first = board.next === 0 ? 0 : from * KEEP_EVERY;
        for (const { edit, offset } of this.#past.slice(first, position))
            board.apply(edit, offset);
        return board;
    }
    close() {
        this.#edits?.close();
        this.#client.close();
    }
}
