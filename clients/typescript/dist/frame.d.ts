/** An event as it travels in a binary frame. */
export interface EventFrame {
    readonly sub: number;
    readonly offset: number | null;
    readonly skippedBefore: number;
    readonly timeMs: number | null;
    readonly payload: Uint8Array;
}
/** A publish as it travels in a binary frame. */
export interface PublishFrame {
    readonly stream: number;
    readonly id: number;
    readonly ack: boolean;
    readonly payload: Uint8Array;
}
/** Reads an event. Throws `ProtocolError` on anything else; the payload shares the frame's memory. */
export declare function readEvent(bytes: Uint8Array): EventFrame;
/** Reads a publish; the fake gateway's side. */
export declare function readPublish(bytes: Uint8Array): PublishFrame;
/** Writes an event; the fake gateway's side. */
export declare function writeEvent(event: EventFrame): Uint8Array<ArrayBuffer>;
/** Writes a publish. */
export declare function writePublish(publish: PublishFrame): Uint8Array<ArrayBuffer>;
