import type { Requests } from "./requests.js";
export interface ReadRecord {
    readonly offset: number;
    readonly bytes: Uint8Array;
}
/** Records in their order; `nextOffset` is where the next read begins. */
export interface Page {
    readonly records: readonly ReadRecord[];
    readonly nextOffset: number;
}
export interface ReadOptions {
    /** First offset wanted. */
    readonly from: number;
    /** First offset not wanted. */
    readonly end?: number;
    /** Records at most; the broker's own bound when absent. */
    readonly max?: number;
    readonly signal?: AbortSignal;
}
/** State under one key, and the commit that wrote it. */
export interface StateValue {
    readonly bytes: Uint8Array | null;
    readonly version: number | null;
    readonly asOf: number | null;
}
export declare class Reads {
    #private;
    private readonly requests;
    private readonly has;
    constructor(requests: Requests, has: (feature: string) => boolean);
    readonly read: (stream: string, options: ReadOptions) => Promise<Page>;
    readonly state: (stream: string, key: string, options?: {
        entity?: string;
        signal?: AbortSignal;
    }) => Promise<StateValue>;
    readonly offsetForTime: (stream: string, at: Date, options?: {
        signal?: AbortSignal;
    }) => Promise<number | null>;
}
