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
export class Outbox {
    client;
    stream;
    gaveUp;
    #edits = new Map();
    #order = [];
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
        this.#order.push(edit);
        this.#pump();
    }
    /** It stands in the log. True when it was one of ours that waited. */
    confirm(id) {
        return this.#edits.delete(id);
    }
    forget() {
        this.#edits.clear();
        this.#order = [];
    }
    #pump() {
        while (!this.#paused && this.#inFlight < IN_FLIGHT) {
            const edit = this.#order.shift();
            if (edit === undefined)
                return;
            if (!this.#edits.has(edit.id))
                continue;
            this.#inFlight += 1;
            void this.#send(edit).finally(() => {
                this.#inFlight -= 1;
                this.#pump();
            });
        }
    }
    async #send(edit) {
        try {
            await this.client.publish(this.stream, writeEdit(edit));
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
            this.gaveUp(edit, error);
        }
    }
    /** In its old place, so that the order in which one person drew is kept as far as it can be. */
    #again(edit, afterMs) {
        this.#order.unshift(edit);
        if (afterMs === 0 || this.#paused)
            return;
        this.#paused = true;
        setTimeout(() => {
            this.#paused = false;
            this.#pump();
        }, afterMs);
    }
}
