/** What the application sees. `suspended` waits for the network, `waiting` for the next try, `unauthorized` for a token. */
export type State = "idle" | "connecting" | "connected" | "waiting" | "suspended" | "closed" | "unauthorized";
/** Why a token is asked for. After `rejected` the same token again is no answer. */
export type TokenReason = "connect" | "reconnect" | "refresh" | "rejected";
/** How the client comes by tokens: one that was given, a function that makes them, or the gateway's cookie. */
export type TokenKind = "static" | "provider" | "cookie";
/** Durations in milliseconds. */
export interface Timing {
    /** One try to connect, from opening to `hello`. */
    readonly openMs: number;
    /** Silence after which the peer is asked something. */
    readonly quietMs: number;
    /** How long it may take to answer that. */
    readonly probeMs: number;
    /** The same after the page was woken or the network came back, when the socket is likely dead. */
    readonly wakeProbeMs: number;
    /** First upper bound of the random delay before a reconnect; doubles with each failure. */
    readonly backoffMs: number;
    /** Last upper bound. */
    readonly backoffMaxMs: number;
    /** Tries while the browser says that there is no network: it can be wrong about addresses of this machine. */
    readonly suspendedMs: number;
    /** A connection that lasted this long wipes out the failures before it. */
    readonly stableMs: number;
    /** After `going_away`, how long answers may still arrive before we leave by ourselves. */
    readonly departMs: number;
}
export declare const TIMING: Timing;
export type Timer = "open" | "retry" | "heartbeat" | "refresh" | "depart";
export interface Machine {
    readonly state: State;
    readonly timing: Timing;
    readonly tokens: TokenKind;
    /** Number of the newest try. */
    readonly attempt: number;
    /** Whether that try still waits for its token: there is no socket yet. */
    readonly fetching: boolean;
    readonly failures: number;
    readonly online: boolean;
    /** When the try began, or the connection stood. */
    readonly since: number;
    readonly heardAt: number;
    readonly probing: boolean;
    /** A fresh token was asked for because the last one was refused. */
    readonly renewed: boolean;
    /** Set by `going_away`: milliseconds before coming back. */
    readonly departing: number | null;
}
export type Input = {
    readonly type: "connect" | "close" | "online" | "offline" | "visible";
} | {
    readonly type: "tokenSet";
    readonly tokens: TokenKind;
} | {
    readonly type: "token" | "opened" | "heard";
    readonly attempt: number;
}
/** The gateway keeps the token before; `final` if it will not take this one later, either. */
 | {
    readonly type: "refreshRefused";
    readonly attempt: number;
    readonly final: boolean;
} | {
    readonly type: "tokenFailed";
    readonly attempt: number;
    readonly final: boolean;
    readonly message: string;
} | {
    readonly type: "hello" | "refreshed";
    readonly attempt: number;
    readonly expiresInMs: number | null;
} | {
    readonly type: "refused";
    readonly attempt: number;
    readonly code: string;
    readonly message: string;
    readonly retryAfterMs: number | null;
} | {
    readonly type: "lost";
    readonly attempt: number;
    readonly code: number;
    readonly reason: string;
} | {
    readonly type: "malformed";
    readonly attempt: number;
    readonly message: string;
} | {
    readonly type: "goingAway";
    readonly attempt: number;
    readonly afterMs: number;
} | {
    readonly type: "timer";
    readonly timer: Timer;
    readonly attempt: number;
};
export type Effect = {
    readonly do: "token";
    readonly attempt: number;
    readonly reason: TokenReason;
} | {
    readonly do: "open" | "join" | "probe" | "sendRefresh" | "ready";
    readonly attempt: number;
} | {
    readonly do: "drop";
    readonly attempt: number;
    readonly code: number;
    readonly reason: string;
} | {
    readonly do: "arm";
    readonly timer: Timer;
    readonly attempt: number;
    readonly afterMs: number;
} | {
    readonly do: "disarm";
    readonly timer: Timer;
} | {
    readonly do: "cut";
} | {
    readonly do: "forget";
} | {
    readonly do: "state";
    readonly from: State;
    readonly to: State;
    readonly reason: string;
    readonly retryInMs: number | null;
} | {
    readonly do: "unauthorized";
    readonly code: string;
    readonly message: string;
} | {
    readonly do: "goingAway";
    readonly afterMs: number;
};
export interface Step {
    readonly machine: Machine;
    readonly effects: readonly Effect[];
}
/** A machine that was never connected. */
export declare function idle(tokens: TokenKind, online: boolean, timing?: Timing): Machine;
/** Whether requests may be sent now: not before `hello`, not to a gateway that said good-bye. */
export declare function sends(machine: Machine): boolean;
/** One input at the time `now`; `random` is at least 0 and under 1. */
export declare function step(machine: Machine, input: Input, now: number, random: number): Step;
