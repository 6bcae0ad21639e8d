/**
 * Where a subscription stands: which offset it asks for next, which events are new, and what was lost. Pure, so that
 * "exactly once, in order" is decided in one place and tested without sockets.
 */
import type { From } from "./protocol.js";
/** The place of a subscription. `next` is the first offset not yet delivered; `null` while unknown or without a log. */
export interface Position {
    readonly from: From | "earliest";
    readonly next: number | null;
    /** Whether the gateway has said `subscribed` before. */
    readonly begun: boolean;
    /** A gap that one resubscription did not close. */
    readonly gapAt: number | null;
}
export type Judgement = {
    readonly kind: "deliver";
    readonly position: Position;
    readonly lost: number;
} | {
    readonly kind: "duplicate";
}
/** Offsets are missing that nobody announced: ask for them again. */
 | {
    readonly kind: "again";
    readonly position: Position;
};
/** What came back after an interruption. `missed` is the number of offsets that passed meanwhile; a durable stream delivers them now. */
export interface Resynced {
    readonly from: number | null;
    readonly to: number | null;
    readonly missed: number | null;
}
export declare function begin(from: From | "earliest"): Position;
/** What to ask the gateway for now. */
export declare function wanted(position: Position): From;
/** The gateway's `subscribed`: the new position, and what an interruption amounted to when there was one. */
export declare function subscribed(position: Position, startOffset: number | null, liveOffset: number | null): {
    readonly position: Position;
    readonly resynced: Resynced | null;
};
/** Decides about one event. */
export declare function judge(position: Position, offset: number | null, skippedBefore: number): Judgement;
/** The oldest record that is left is the next one. */
export declare function trimmed(position: Position, oldest: number): Position;
