/** The version spoken here. */
export declare const PROTOCOL = 1;
/** Features asked for when the application names none. A gateway grants the ones it has. */
export declare const FEATURES: readonly string[];
/** Close codes of the gateway. */
export declare const CLOSE: {
    readonly goingAway: 1001;
    readonly policy: 1008;
    readonly tooLarge: 1009;
    readonly signedOut: 4001;
    readonly deadPeer: 4002;
};
/** Where a subscription begins: what is new, or the first offset wanted. */
export type From = "live" | number;
/** What a conditional write compares with. */
export type Condition = "absent" | {
    readonly version: number;
};
export interface Hello {
    readonly type: "hello";
    readonly features: readonly string[];
    readonly namespace: string;
    readonly cacheTtlMs: Readonly<Record<string, number>>;
    readonly missing: readonly string[];
    readonly principal: string | null;
    readonly streams: readonly string[];
    readonly expiresInMs: number | null;
}
export interface Subscribed {
    readonly type: "subscribed";
    readonly stream: string;
    readonly startOffset: number | null;
    readonly liveOffset: number | null;
    readonly sub: number | null;
}
export interface StreamEvent {
    readonly type: "event";
    readonly stream: string;
    readonly offset: number | null;
    readonly skippedBefore: number;
    readonly payload: Uint8Array;
}
export interface Entry {
    readonly key: string;
    readonly payload: Uint8Array;
    readonly expiresInMs: number | null;
}
export interface Refusal {
    readonly type: "error";
    readonly code: string;
    readonly message: string;
    readonly id: number | null;
    readonly stream: string | null;
    readonly cache: string | null;
    readonly oldest: number | null;
    readonly tail: number | null;
    readonly retryAfterMs: number | null;
}
export interface Change {
    readonly type: "cache_change";
    readonly cache: string;
    readonly key: string;
    readonly payload: Uint8Array | null;
    readonly expiresInMs: number | null;
}
/** Answers that carry the id of their request. */
export type Answer = {
    readonly type: "ack";
    readonly id: number;
    readonly offset: number | null;
} | {
    readonly type: "counter";
    readonly id: number;
    readonly value: number;
} | {
    readonly type: "cache_value";
    readonly id: number;
    readonly payload: Uint8Array | null;
    readonly version: number | null;
} | {
    readonly type: "cache_put_result" | "cache_delete_result";
    readonly id: number;
    readonly applied: boolean;
    readonly version: number | null;
} | {
    readonly type: "state_value";
    readonly id: number;
    readonly payload: Uint8Array | null;
    readonly version: number | null;
    readonly asOf: number | null;
} | {
    readonly type: "records";
    readonly id: number;
    readonly records: readonly {
        readonly offset: number;
        readonly payload: Uint8Array;
    }[];
    readonly nextOffset: number;
} | {
    readonly type: "offset";
    readonly id: number;
    readonly offset: number | null;
};
/** Everything a gateway may say. `unknown` is a later gateway's message, which an older client passes over. */
export type Inbound = Hello | Subscribed | StreamEvent | Refusal | Change | Answer | {
    readonly type: "cache_entries";
    readonly cache: string;
    readonly entries: readonly Entry[];
} | {
    readonly type: "refreshed";
    readonly expiresInMs: number | null;
} | {
    readonly type: "going_away";
    readonly reconnectAfterMs: number;
} | {
    readonly type: "unknown";
};
/** Reads one text frame. Throws `ProtocolError` on what is no message; an unknown type is no error. */
export declare function readMessage(frame: string): Inbound;
