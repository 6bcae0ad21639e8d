/**
 * Requests that wait, are under way, or were answered. They go out in the order in which they were asked for; what is
 * under way is bounded, what waits is bounded too, and a cut tells the truth about each: a write that went out may have
 * been done, a read is asked again.
 */
import { RefusedError } from "./errors.js";
import type { Answer, Refusal } from "./protocol.js";
export type Frame = string | Uint8Array<ArrayBuffer>;
export interface Request<T> {
    /** For errors: what it was. */
    readonly name: string;
    readonly bytes: number;
    /** Whether asking twice is the same as asking once. */
    readonly read: boolean;
    /** Whether an answer comes; without one, `T` is decided when the frame is handed over. */
    readonly answered: boolean;
    /** The frame, made when it is sent: how it looks depends on what this connection's gateway grants. */
    frame(id: number): Frame;
    take(answer: Answer | null): T;
}
/** Where frames go. */
export interface Wire {
    /** Whether one may be sent now. */
    ready(): boolean;
    send(frame: Frame): void;
}
export declare class Requests {
    #private;
    private readonly wire;
    constructor(wire: Wire);
    /** Sent and not answered. */
    get inFlight(): number;
    /** Not sent yet. */
    get waiting(): number;
    /** Resolves with the answer. An abort takes back what was not sent; what was sent is `OutcomeUnknownError` or the reason. */
    ask<T>(request: Request<T>, signal?: AbortSignal): Promise<T>;
    /** Sends what may be sent. */
    pump(): void;
    answer(answer: Answer): void;
    /** Whether the refusal was of a request of ours. */
    refuse(refusal: Refusal): boolean;
    cut(): void;
    /** Ends everything that waits. */
    fail(error: Error): void;
    /** Requests are taken again after `forget`. */
    open(): void;
    /** Ends what waits and takes nothing more: what is asked for now would wait for ever. */
    forget(): void;
}
/** The gateway's refusal as an error to throw. */
export declare function refusalError(refusal: Refusal): RefusedError;
