/** Carries out what the machine decides: one socket at a time, one timer of each kind, one token for each try. */
import { FelixError, UnauthorizedError } from "./errors.js";
import type { EventFrame } from "./frame.js";
import type { Host } from "./host.js";
import type { Input, State, Timing } from "./machine.js";
import type { Hello, Inbound } from "./protocol.js";
import type { Tokens } from "./token.js";
/** The state, where it came from, and in `retryInMs` when the next try is due. */
export interface StateChange {
    readonly from: State;
    readonly to: State;
    readonly reason: string;
    readonly retryInMs: number | null;
}
/** What the connection tells its client. */
export interface Listener {
    ready(hello: Hello): void;
    message(message: Inbound): void;
    binary(event: EventFrame): void;
    /** What was sent and not answered never will be. */
    cut(): void;
    /** Nothing of this session may be kept. */
    forget(): void;
    state(change: StateChange): void;
    unauthorized(error: UnauthorizedError): void;
    goingAway(afterMs: number): void;
    failed(error: FelixError): void;
}
export declare class Connection {
    #private;
    private readonly host;
    private readonly tokens;
    private readonly url;
    /** The text of `join` for a token. */
    private readonly join;
    private readonly listener;
    constructor(host: Host, tokens: Tokens, url: string, 
    /** The text of `join` for a token. */
    join: (token: string | null) => string, listener: Listener, timing: Timing);
    get state(): State;
    /** What the gateway granted; `null` while there is no connection. */
    get hello(): Hello | null;
    get sends(): boolean;
    get buffered(): number;
    has(feature: string): boolean;
    /** Every input goes through here; effects are carried out in their order. */
    input(input: Input): void;
    connect(): void;
    close(): void;
    tokenSet(): void;
    send(frame: string | Uint8Array<ArrayBuffer>): void;
}
