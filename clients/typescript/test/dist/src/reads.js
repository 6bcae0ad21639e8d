/** Reads that change nothing: a range of a log, the state that commits wrote, the offset of a time. Asked again after a cut. */
import { expect } from "./cache.js";
import { FelixError } from "./errors.js";
export class Reads {
    requests;
    has;
    constructor(requests, has) {
        this.requests = requests;
        this.has = has;
    }
    read = (stream, options) => this.#ask("read", "records", stream, { from: options.from, end: options.end, max: options.max ?? 0 }, options.signal, (answer) => ({
        records: answer.records.map(({ offset, payload }) => ({ offset, bytes: payload })),
        nextOffset: answer.nextOffset,
    }));
    state = (stream, key, options = {}) => this.#ask("state_get", "state_value", stream, { key, entity: options.entity }, options.signal, (answer) => ({
        bytes: answer.payload, version: answer.version, asOf: answer.asOf,
    }), "state");
    offsetForTime = (stream, at, options = {}) => this.#ask("offset_for_time", "offset", stream, { at_us: at.getTime() * 1000 }, options.signal, (answer) => answer.offset, "time");
    #ask(type, answered, stream, fields, signal, take, feature = type) {
        return this.requests.ask({
            name: `${type} ${stream}`, bytes: 128, read: true, answered: true,
            frame: (id) => {
                if (!this.has(feature))
                    throw new FelixError("unsupported", `this gateway did not grant \`${feature}\``);
                return JSON.stringify({ type, stream, ...fields, id });
            },
            take: (answer) => take(expect(answer, answered)),
        }, signal);
    }
}
