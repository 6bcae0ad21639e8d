/** One board over one client: snapshot, then the log from there; edits of this page; numbers from the counter. */
import { FelixClient, asyncDispose, text } from "../../../src/index.js";
import { Board } from "./board.js";
import { isDraw, readEdit } from "./edits.js";
import { Outbox } from "./outbox.js";
import { loadSnapshot, snapshotOffset, storeSnapshot } from "./snapshot.js";
/** Names of the scope, as the gateway's scope file has them. */
export const ALIAS = { edits: "edits", cursors: "cursors", presence: "presence", snapshot: "snapshot", counter: "seq" };
const COUNTER_KEY = "edits";
/** Numbers taken from the counter at once, so that drawing does not wait for it. */
const NUMBERS = 16;
/** Edits after the last snapshot before a page writes another one, and how long it waits for somebody else to. */
const SNAPSHOT_EDITS = 200;
const SNAPSHOT_WAIT_MS = 4_000;
export function randomId(length = 12) {
    const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    return Array.from(crypto.getRandomValues(new Uint8Array(length)), (byte) => letters[byte & 63]).join("");
}
function parse(event) {
    try {
        return readEdit(JSON.parse(text(event.bytes)));
    }
    catch {
        return null;
    }
}
export class Room {
    client;
    events;
    board = new Board();
    /** Whether the board has been read to where the log was when we joined. */
    loaded = false;
    outbox;
    #undo = [];
    #redo = [];
    #ending = new AbortController();
    #numbers = [];
    #asking = false;
    #target = 0;
    #writing = false;
    #snapshotAt = 0;
    constructor(client, events) {
        this.client = client;
        this.events = events;
        this.outbox = new Outbox(client, ALIAS.edits, (edit, error) => {
            this.events.pending(edit, -1);
            this.events.failed(`That edit was refused: ${error.message}`);
        });
        client.on("state", () => this.events.status(), { signal: this.#ending.signal });
        client.on("trimmed", () => void this.#reload(), { signal: this.#ending.signal });
        client.on("resynced", ({ stream, to }) => {
            if (stream === ALIAS.edits && to !== null)
                this.#target = Math.max(this.#target, to);
        }, { signal: this.#ending.signal });
        void this.#start();
    }
    /** The principal, or a word for it before the first connection. */
    get me() {
        return this.client.principal ?? "me";
    }
    get catchingUp() {
        return !this.loaded || this.board.next < this.#target;
    }
    get canUndo() {
        return this.#undo.length > 0;
    }
    get canRedo() {
        return this.#redo.length > 0;
    }
    /** Publishes an edit of this page; it is shown at once. */
    do(intent) {
        const edit = this.#send(intent);
        if (edit === null)
            return null;
        this.#undo.push(edit.id);
        this.#redo.length = 0;
        return edit;
    }
    /** Edits of an earlier visit that may not have been sent. One that was counts once. */
    resume(edits) {
        for (const edit of edits) {
            this.outbox.add(edit);
            this.events.pending(edit, 1);
        }
    }
    undo() {
        const target = this.#undo.pop();
        if (target === undefined)
            return;
        this.#redo.push(target);
        this.#send({ kind: "undo", id: randomId(), target });
    }
    redo() {
        const target = this.#redo.pop();
        if (target === undefined)
            return;
        this.#undo.push(target);
        this.#send({ kind: "redo", id: randomId(), target });
    }
    /** Drawings of this page that the log has not confirmed. */
    get sketches() {
        const hidden = new Set(this.outbox.pending.flatMap((edit) => (edit.kind === "undo" ? [edit.target] : [])));
        return this.outbox.pending.filter((edit) => isDraw(edit) && !hidden.has(edit.id));
    }
    /** Forgets the board and everything of the person. */
    close() {
        this.#ending.abort(new Error("the board was left"));
        this.outbox.forget();
        void this.client[asyncDispose]();
    }
    #send(intent) {
        if (this.outbox.full) {
            this.events.failed("Too much is waiting for the connection; nothing more can be drawn until it is back.");
            return null;
        }
        const edit = { ...intent, by: this.me, n: this.#number() };
        this.outbox.add(edit);
        this.events.pending(edit, 1);
        return edit;
    }
    #number() {
        if (this.#numbers.length <= NUMBERS / 4)
            void this.#takeNumbers();
        return this.#numbers.shift() ?? 0;
    }
    async #takeNumbers() {
        if (this.client.state !== "connected" || this.#asking)
            return;
        this.#asking = true;
        try {
            const last = await this.client.counter(ALIAS.counter).add(COUNTER_KEY, NUMBERS, { signal: this.#ending.signal });
            this.#numbers.push(...Array.from({ length: NUMBERS }, (_, at) => last - NUMBERS + 1 + at));
        }
        catch {
            // An edit without a number is as good; the numbers are for people.
        }
        finally {
            this.#asking = false;
        }
    }
    async #start() {
        const { signal } = this.#ending;
        try {
            await this.client.connected({ signal });
            void this.#takeNumbers();
            const board = await loadSnapshot(this.client.cache(ALIAS.snapshot), signal).catch(() => null);
            if (signal.aborted)
                return;
            if (board !== null) {
                this.board = board;
                this.#snapshotAt = board.next;
                this.events.board(board);
            }
            const edits = this.client.subscribe(ALIAS.edits, {
                from: board === null ? "earliest" : board.next, signal, onEvent: (event) => this.#event(event),
            });
            await edits.started();
            this.#target = Math.max(this.#target, edits.liveOffset ?? 0);
            this.loaded = true;
            this.events.status();
        }
        catch (error) {
            if (!signal.aborted)
                this.events.failed(error instanceof Error ? error.message : String(error));
        }
    }
    #event(event) {
        if (event.offset === null)
            return;
        const edit = parse(event);
        const change = this.board.apply(edit, event.offset);
        if (edit !== null && this.outbox.confirm(edit.id))
            this.events.pending(edit, -1);
        if (edit !== null)
            this.events.change(change, edit);
        this.events.status();
        if (this.board.next - this.#snapshotAt >= SNAPSHOT_EDITS && !this.#writing)
            void this.#snapshot();
    }
    /** What the log no longer has stands in a snapshot: somebody wrote one before it was trimmed. */
    async #reload() {
        const board = await loadSnapshot(this.client.cache(ALIAS.snapshot), this.#ending.signal).catch(() => null);
        if (board === null || board.next <= this.board.next)
            return;
        this.board = board;
        this.events.board(board);
        // Their records are among those that were not read.
        for (const edit of this.outbox.pending)
            if (board.has(edit.id) && this.outbox.confirm(edit.id))
                this.events.pending(edit, -1);
        this.events.failed("Older edits were no longer there; the board was read from its snapshot.");
    }
    async #snapshot() {
        this.#writing = true;
        try {
            // Everybody here has come to the same number; whoever waits least writes, and the others find it done.
            await new Promise((resolve) => setTimeout(resolve, Math.random() * SNAPSHOT_WAIT_MS));
            if (this.#ending.signal.aborted || !this.client.hello?.features.includes("cache_versions"))
                return;
            const cache = this.client.cache(ALIAS.snapshot);
            this.#snapshotAt = await snapshotOffset(cache);
            if (this.board.next - this.#snapshotAt < SNAPSHOT_EDITS)
                return;
            await storeSnapshot(cache, this.board, randomId());
            this.#snapshotAt = this.board.next;
        }
        catch {
            // A snapshot only makes joining fast; the next edits bring another try.
            this.#snapshotAt = this.board.next;
        }
        finally {
            this.#writing = false;
        }
    }
}
