import type { Requests } from "./requests.js";
/** Sums that many add to. */
export declare class Counter {
    readonly alias: string;
    private readonly requests;
    constructor(alias: string, requests: Requests);
    /** Adds and resolves with the new sum; a cut before the answer is `OutcomeUnknownError`. Sums over 2^53 are refused here. */
    add(key: string, delta?: number, options?: {
        signal?: AbortSignal;
    }): Promise<number>;
}
