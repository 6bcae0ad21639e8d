import type { Payload } from "./bytes.js";
import { Cache } from "./cache.js";
import type { StateChange } from "./connection.js";
import { Counter } from "./counter.js";
import { asyncDispose } from "./dispose.js";
import { Emitter } from "./emitter.js";
import { FelixError, UnauthorizedError } from "./errors.js";
import type { Host, SocketConstructor } from "./host.js";
import type { State, Timing } from "./machine.js";
import { Presence } from "./presence.js";
import type { PresenceOptions } from "./presence.js";
import type { Hello } from "./protocol.js";
import type { Page, ReadOptions, StateValue } from "./reads.js";
import { Subscription } from "./subscription.js";
import type { Lagged, StreamResynced, SubscribeOptions, Trimmed } from "./subscription.js";
import type { TokenSource } from "./token.js";
/** The one room, board or match that a connection is for: `field` is the gateway's name for it. */
export interface Scope {
    readonly field: string;
    readonly value: string;
}
export interface ClientOptions {
    /** The gateway, `wss://host/ws`; an `http` address or a path of this page is understood. */
    readonly url: string;
    readonly scope: Scope;
    /** An ID token, a function that makes one, or nothing: then the gateway's session cookie is used. */
    readonly token?: TokenSource;
    /** Features to ask for; all that this package knows when absent. */
    readonly features?: readonly string[];
    /** A constructor of sockets where there is none built in (Node: the package `ws`), or in tests. */
    readonly webSocket?: SocketConstructor;
    /** Clock, timers, page events; for tests. */
    readonly host?: Host;
    readonly timing?: Partial<Timing>;
    /** Closes the client. */
    readonly signal?: AbortSignal;
}
export interface ClientEvents {
    state: StateChange;
    hello: Hello;
    lagged: Lagged;
    trimmed: Trimmed;
    resynced: StreamResynced;
    unauthorized: UnauthorizedError;
    goingAway: {
        readonly reconnectAfterMs: number;
    };
    /** A write without an answer of its own was refused. */
    writeFailed: {
        readonly error: FelixError;
        readonly cache: string | null;
        readonly stream: string | null;
    };
    /** What arrived was not the protocol; the connection is opened again. */
    protocolError: FelixError;
}
export interface PublishOptions {
    /** Wait for the broker (default true); without, the answer is `null` at once and a refusal is `writeFailed`. */
    readonly ack?: boolean;
    readonly signal?: AbortSignal;
}
export declare class FelixClient extends Emitter<ClientEvents> implements AsyncDisposable {
    #private;
    readonly scope: Scope;
    constructor(options: ClientOptions);
    get state(): State;
    /** Who the gateway says we are (feature `principal`); `null` before the first connection. */
    get principal(): string | null;
    /** What the gateway granted last; `null` before the first connection. */
    get hello(): Hello | null;
    /**
     * Begins to connect; `connected` says when it stands. A client that waits for its next try makes it now; after `close`
     * and `unauthorized` this begins anew (but not with the text of a token that was refused).
     */
    connect(): void;
    /** Resolves when the connection stands; rejects when it cannot without help: `UnauthorizedError`, `ClosedError`, the signal's reason. */
    connected(options?: {
        signal?: AbortSignal;
    }): Promise<void>;
    /** Another token, or another way to get them. After `unauthorized`, `connect` works again; a connection that stands is renewed. */
    setToken(token: TokenSource): void;
    /** Tells the gateway to forget the session, then forgets it here: token, subscriptions, caches, what waits. */
    signOut(): void;
    /** Ends everything of this session. `setToken` and `connect` begin another, in which nothing of this one is left. */
    close(): void;
    [asyncDispose](): Promise<void>;
    /** Records of `stream`, each once, over any number of connections: iterate it, or pass `onEvent`. One at a time for each stream. */
    subscribe(stream: string, options?: SubscribeOptions): Subscription;
    /**
     * Publishes one record; resolves with its offset (`null` without a log or without `ack`). Waits while there is no
     * connection and while too much is under way. A connection cut before the answer is `OutcomeUnknownError`.
     */
    publish(stream: string, payload: Payload, options?: PublishOptions): Promise<number | null>;
    /** Requests sent and not answered, and such that wait: what a page shows as "saving". */
    get pending(): number;
    /** One page of a log (feature `read`). Throws `TrimmedError` when `from` is gone. */
    read(stream: string, options: ReadOptions): Promise<Page>;
    /** The state that commits wrote under `key` (feature `state`). */
    stateOf(stream: string, key: string, options?: {
        entity?: string;
        signal?: AbortSignal;
    }): Promise<StateValue>;
    /** First offset written at `at` or later; `null` when there is none yet (feature `time`). */
    offsetForTime(stream: string, at: Date, options?: {
        signal?: AbortSignal;
    }): Promise<number | null>;
    cache(alias: string): Cache;
    counter(alias: string): Counter;
    /** Enters the members of an expiring cache that this scope may read, write and watch. */
    presence(alias: string, options: PresenceOptions): Presence;
}
/** A client that begins to connect at once; resolves when the connection stands. `signal` gives up, and later closes it. */
export declare function connect(options: ClientOptions): Promise<FelixClient>;
