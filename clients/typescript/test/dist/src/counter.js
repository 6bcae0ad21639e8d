import { checkName, expect } from "./cache.js";
import { UsageError } from "./errors.js";
/** Sums that many add to. */
export class Counter {
    alias;
    requests;
    constructor(alias, requests) {
        this.alias = alias;
        this.requests = requests;
    }
    /** Adds and resolves with the new sum; a cut before the answer is `OutcomeUnknownError`. Sums over 2^53 are refused here. */
    async add(key, delta = 1, options = {}) {
        checkName(key, "key");
        if (!Number.isSafeInteger(delta))
            throw new UsageError(`${delta} is not a whole number under 2^53`);
        return this.requests.ask({
            name: `counter_add ${this.alias}/${key}`, bytes: 64, read: false, answered: true,
            frame: (id) => JSON.stringify({ type: "counter_add", counter: this.alias, key, delta, id }),
            take: (answer) => expect(answer, "counter").value,
        }, options.signal);
    }
}
