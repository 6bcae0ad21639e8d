/**
 * Signing in from the page: the authorization code flow with PKCE (S256) of a public client. State, nonce and issuer are
 * checked, each attempt can be finished once and only in its own tab, and nothing of it stays in the address. The ID
 * token lives in memory and in the tab's `sessionStorage`. Its signature is not checked here: it comes from the token
 * endpoint itself, and the gateway's control plane verifies it.
 */
import { FelixError } from "../errors.js";
import type { TokenReason } from "../machine.js";
import type { SignInPage } from "./page.js";
export type { SignInPage } from "./page.js";
export interface SignInOptions {
    /** Where the gateway says how to sign in: `/oidc` when absent. */
    readonly oidc?: string;
    /** Where the provider sends people back to; this page without query and fragment when absent. */
    readonly redirectUri?: string;
    /** For tests. */
    readonly page?: SignInPage;
}
/** Who signed in. Names are the token's claims, for display only. */
export interface Account {
    readonly subject: string;
    readonly name: string;
}
/** Why signing in came to nothing: `state`, `issuer`, `nonce`, `token`, `refused` (the provider said no), `unreachable`. */
export declare class SignInError extends FelixError {
    readonly name: string;
}
export declare class SignIn {
    #private;
    constructor(options?: SignInOptions);
    /** To be called when the page loads: finishes a sign-in that just came back, or takes up the tab's session. */
    resume(): Promise<Account | null>;
    /** Who is signed in in this tab; `null` for nobody. */
    get account(): Account | null;
    /** Leaves for the provider. The page comes back to its address of now. */
    begin(): Promise<void>;
    /** For the client's `token`: the ID token, renewed where the provider gave the means; otherwise `UnauthorizedError`. */
    readonly token: (reason: TokenReason) => Promise<string>;
    /** Forgets everything of this tab; with `atProvider` it also leaves for the provider's own sign-out. */
    signOut(options?: {
        readonly atProvider?: boolean;
    }): Promise<void>;
}
