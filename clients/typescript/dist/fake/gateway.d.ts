/** The gateway without a gateway: its protocol in memory, and the faults that tests want. */
import type { SocketLike } from "../host.js";
import { FakeHost } from "./clock.js";
import type { ManualClock } from "./clock.js";
import { Session } from "./session.js";
import type { FakeIdentity, SessionGateway } from "./session.js";
import { FakeRoom } from "./store.js";
import type { CacheSpec, CounterSpec, StreamSpec } from "./store.js";
export interface FakeOptions {
    /** Name of the scope's field in `join`. */
    readonly field: string;
    readonly streams?: readonly StreamSpec[];
    readonly caches?: readonly CacheSpec[];
    readonly counters?: readonly CounterSpec[];
    /** Whose token it is; by default every text is a principal of that name, and no token is `signed_out`. */
    readonly signIn?: (token: string | undefined, scope: string) => FakeOutcome | Promise<FakeOutcome>;
    readonly features?: readonly string[];
    /** Writes that a principal may make at once, and how many come back each second; no limit by default. */
    readonly writes?: {
        readonly burst: number;
        readonly perS: number;
    };
    readonly maxPayloadBytes?: number;
    /** Time that only passes in tests; real time by default. */
    readonly clock?: ManualClock;
}
export type FakeOutcome = FakeIdentity | "signed_out" | "forbidden" | "unavailable";
/** A message as the fake received it. */
export interface Seen {
    /** Number of the connection, from 1. */
    readonly connection: number;
    readonly principal: string | null;
    readonly message: Readonly<Record<string, unknown>>;
}
declare class FakeSocket implements SocketLike {
    #private;
    private readonly gateway;
    binaryType: string;
    bufferedAmount: number;
    onopen: ((event: never) => unknown) | null;
    onmessage: ((event: never) => unknown) | null;
    onclose: ((event: never) => unknown) | null;
    onerror: ((event: never) => unknown) | null;
    constructor(gateway: FakeGateway);
    send(data: string | Uint8Array<ArrayBuffer>): void;
    close(code?: number, reason?: string): void;
    /** The connection is gone, whoever ended it. */
    lose(code: number, reason: string): void;
    get session(): Session | null;
    /** Something arrives that no gateway would say. */
    inject(data: unknown): void;
}
export declare class FakeGateway {
    #private;
    private readonly options;
    /** Every message that arrived, oldest first; at most 10,000. */
    readonly seen: Seen[];
    /** No connection is taken. Set by `stop`. */
    stopped: boolean;
    /** Nothing passes in either direction and nothing closes: a cut cable. */
    silent: boolean;
    /** What sessions see of this gateway. */
    readonly forSessions: SessionGateway;
    constructor(options: FakeOptions);
    /** Pass this as `webSocket`. */
    get WebSocket(): new (url: string) => SocketLike;
    /** A world for one client, with this gateway's clock: pass it as `host`. */
    host(seed?: number): FakeHost;
    /** The streams, caches and counters of one scope value. */
    room(scope: string): FakeRoom;
    /** Connections that stand. */
    get connections(): number;
    /** How many connections there were. */
    get accepted(): number;
    /** Cuts every connection and takes none until `start`; streams and caches stay. */
    stop(code?: number, reason?: string): void;
    start(): void;
    /** Cuts every connection, or those of one principal. */
    cut(code?: number, reason?: string, principal?: string): void;
    /** Says `going_away` to whoever asked for the feature `drain`. */
    goAway(reconnectAfterMs: number): void;
    /** Puts a frame before every client that no gateway would send. */
    inject(data: unknown): void;
    /** What `POST /members/leave` does: the answer's status. */
    leave(body: string): Promise<204 | 400 | 403>;
    opened(session: Session): void;
    forgetSocket(socket: FakeSocket): void;
}
export {};
