import type { FakeRoom } from "./store.js";
/** Who a token is. */
export interface FakeIdentity {
    readonly principal: string;
    /** How long the session lives; `null` for ever. */
    readonly expiresInMs?: number | null;
}
/** What a session needs of its gateway. */
export interface SessionGateway {
    readonly field: string;
    readonly features: readonly string[];
    readonly maxPayloadBytes: number;
    readonly cacheTtlMs: Readonly<Record<string, number>>;
    signIn(token: string | undefined, scope: string): Promise<FakeIdentity | "signed_out" | "forbidden" | "unavailable">;
    room(scope: string): FakeRoom;
    /** Milliseconds to wait when the limits refuse one more write of this principal; `null` when they do not. */
    admit(principal: string): number | null;
    expireIn(session: Session, ms: number | null): void;
    seen(session: Session, message: Readonly<Record<string, unknown>>): void;
}
export interface Outlet {
    send(data: string | Uint8Array<ArrayBuffer>): void;
    close(code: number, reason: string): void;
}
type Fields = Readonly<Record<string, unknown>>;
export declare class Session {
    #private;
    private readonly gateway;
    private readonly outlet;
    principal: string | null;
    scope: string;
    closed: boolean;
    constructor(gateway: SessionGateway, outlet: Outlet);
    receive(data: string | Uint8Array): void;
    end(code: number, reason: string): void;
    has(feature: string): boolean;
    say(message: Fields): void;
}
export {};
