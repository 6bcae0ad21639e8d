/**
 * Edits of this page on their way to the log. Nothing drawn is lost while there is no connection: an edit stays here until
 * it was acknowledged or came back, and one whose fate is unknown is published again, for the fold counts an id once.
 */
import { ClosedError, FelixError, OutcomeUnknownError, RateLimitedError, UnauthorizedError } from "../../../src/index.js";
import { writeEdit } from "./edits.js";
/** Edits published and not answered; few, so that a cut leaves little unknown. */
const IN_FLIGHT = 8;
/** Edits that may wait for a connection. */
const WAITING_MAX = 2_000;
/** Edits that this one is, or is about. */
function mentions(edit) {
    if ("target" in edit)
        return [edit.id, edit.target];
    return "ids" in edit ? [edit.id, ...edit.ids] : [edit.id];
}
export class Outbox {
    client;
    stream;
    gaveUp;
    /** In the order in which they were made, which is that of the map. */
    #edits = new Map();
    #sent = new Set();
    #inFlight = 0;
    #paused = false;
    constructor(client, stream, gaveUp) {
        this.client = client;
        this.stream = stream;
        this.gaveUp = gaveUp;
    }
    /** Edits not confirmed yet, oldest first. */
    get pending() {
        return [...this.#edits.values()];
    }
    get full() {
        return this.#edits.size >= WAITING_MAX;
    }
    add(edit) {
        this.#edits.set(edit.id, edit);
        this.#pump();
    }
    /** It stands in the log. True when it was one of ours that waited. */
    confirm(id) {
        const ours = this.#edits.delete(id);
        this.#sent.delete(id);
        if (ours)
            this.#pump();
        return ours;
    }
    forget() {
        this.#edits.clear();
        this.#sent.clear();
    }
    #pump() {
        if (this.#paused)
            return;
        const before = new Set();
        for (const edit of this.#edits.values()) {
            if (this.#inFlight >= IN_FLIGHT)
                return;
            const about = mentions(edit);
            // What it takes back, erases or moves is not there yet; sent now it could come first, and would count for nothing.
            if (!this.#sent.has(edit.id) && about.some((id) => before.has(id)))
                return;
            for (const id of about)
                before.add(id);
            if (!this.#sent.has(edit.id))
                this.#begin(edit);
        }
    }
    #begin(edit) {
        this.#inFlight += 1;
        this.#sent.add(edit.id);
        void this.#send(edit).finally(() => {
            this.#inFlight -= 1;
            this.#pump();
        });
    }
    async #send(edit) {
        try {
            await this.client.publish(this.stream, writeEdit(edit));
            // It comes back with the log; `#sent` keeps it from going out twice until then.
        }
        catch (error) {
            if (error instanceof OutcomeUnknownError)
                return this.#again(edit, 0);
            if (error instanceof RateLimitedError)
                return this.#again(edit, error.retryAfterMs);
            if (error instanceof UnauthorizedError)
                return this.#again(edit, 500);
            if (error instanceof ClosedError || !(error instanceof FelixError))
                return;
            if (error.retry !== "no")
                return this.#again(edit, 500);
            this.#edits.delete(edit.id);
            this.#sent.delete(edit.id);
            this.gaveUp(edit, error);
        }
    }
    /** In its old place, so that the order in which one person drew is kept as far as it can be. */
    #again(edit, afterMs) {
        this.#sent.delete(edit.id);
        if (afterMs === 0 || this.#paused)
            return;
        this.#paused = true;
        setTimeout(() => {
            this.#paused = false;
            this.#pump();
        }, afterMs);
    }
}
