import type { Host } from "./host.js";
import type { TokenKind, TokenReason } from "./machine.js";
/** A token, a function that makes one, or nothing: then the gateway's own session cookie is used. */
export type TokenSource = string | ((reason: TokenReason) => Promise<string> | string) | undefined;
export declare class Tokens {
    #private;
    private readonly host;
    constructor(host: Host, source: TokenSource);
    get kind(): TokenKind;
    /** The token in hand, for a beacon of a page that cannot wait; `null` when there is none. */
    get current(): string | null;
    /** Another source; everything of the one before is forgotten. */
    replace(source: TokenSource): void;
    /** A token for `reason`. Throws `UnauthorizedError` when there can be none, other errors when there is none now. */
    get(reason: TokenReason): Promise<string | null>;
}
/** Two thirds of what is left of a JSON Web Token's life by its unverified `exp`; infinite when it has none. */
export declare function freshForMs(token: string, wallClock: number): number;
/** One claim of a token whose signature is not looked at: good for display and timing, never for a decision. */
export declare function claim(token: string, name: string): unknown;
