/**
 * The token of a client, one fetch at a time for whoever asks. A held token is handed out until two thirds of its life
 * are gone, so that reconnects cost no fetch; a fetch that outlives its connection is used by the next one; one that
 * was begun before `replace` or `clear` changes nothing.
 */
import { FelixError, UnauthorizedError } from "./errors.js";
import { fromBase64, text } from "./bytes.js";
/** A fetch that takes longer fails those who wait for it; its late answer is still kept. */
const FETCH_MAX_MS = 30_000;
export class Tokens {
    host;
    #source;
    #held = null;
    #fetch = null;
    #generation = 0;
    constructor(host, source) {
        this.host = host;
        this.#source = source;
    }
    get kind() {
        if (this.#source === undefined)
            return "cookie";
        return typeof this.#source === "string" ? "static" : "provider";
    }
    /** The token in hand, for a beacon of a page that cannot wait; `null` when there is none. */
    get current() {
        return typeof this.#source === "string" ? this.#source : (this.#held?.token ?? null);
    }
    /** Another source; everything of the one before is forgotten. */
    replace(source) {
        this.#generation += 1;
        this.#source = source;
        this.#held = null;
        this.#fetch = null;
    }
    /** A token for `reason`. Throws `UnauthorizedError` when there can be none, other errors when there is none now. */
    async get(reason) {
        const source = this.#source;
        if (source === undefined)
            return null;
        if (typeof source === "string") {
            if (source === "")
                throw new UnauthorizedError("no_token", "the token is empty");
            return source;
        }
        if (reason === "rejected")
            this.#held = null;
        const held = this.#held;
        // A refresh wants another token than the one in use, however fresh that is.
        if (held !== null && reason !== "refresh" && this.host.now() < held.freshUntil)
            return held.token;
        this.#fetch ??= this.#begin(source, reason);
        try {
            return await this.#bounded(this.#fetch);
        }
        catch (error) {
            // An old token is better than none, as long as it is good; a refresh is about a new one and is tried again.
            const valid = held !== null && this.#held === held && this.host.now() < held.validUntil;
            if (valid && reason !== "refresh" && !(error instanceof UnauthorizedError))
                return held.token;
            throw error;
        }
    }
    #begin(source, reason) {
        const generation = this.#generation;
        const fetch = (async () => source(reason))().then((token) => {
            if (typeof token !== "string" || token === "")
                throw new FelixError("no_token", "the token function gave an empty token", "later");
            if (generation === this.#generation) {
                const [now, fresh] = [this.host.now(), freshForMs(token, this.host.wallClock())];
                this.#held = { token, freshUntil: now + fresh, validUntil: now + fresh * 1.5 };
            }
            return token;
        }).finally(() => {
            if (generation === this.#generation)
                this.#fetch = null;
        });
        fetch.catch(() => undefined);
        return fetch;
    }
    #bounded(fetch) {
        return new Promise((resolve, reject) => {
            const cancel = this.host.after(FETCH_MAX_MS, () => {
                reject(new FelixError("no_token", `the token function took longer than ${FETCH_MAX_MS} ms`, "later"));
            });
            fetch.then(resolve, reject).finally(cancel);
        });
    }
}
/** Two thirds of what is left of a JSON Web Token's life by its unverified `exp`; infinite when it has none. */
export function freshForMs(token, wallClock) {
    const expires = claim(token, "exp");
    return typeof expires === "number" ? Math.max(0, ((expires * 1000 - wallClock) * 2) / 3) : Infinity;
}
/** One claim of a token whose signature is not looked at: good for display and timing, never for a decision. */
export function claim(token, name) {
    const part = token.split(".")[1];
    if (part === undefined)
        return undefined;
    const padded = part.replaceAll("-", "+").replaceAll("_", "/").padEnd(Math.ceil(part.length / 4) * 4, "=");
    try {
        const claims = JSON.parse(text(fromBase64(padded) ?? new Uint8Array()));
        return typeof claims === "object" && claims !== null ? claims[name] : undefined;
    }
    catch {
        return undefined;
    }
}
