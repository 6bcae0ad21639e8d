import type { TokenReason } from "../machine.js";
import type { Account } from "./error.js";
import type { SignInPage } from "./page.js";
export { SignInError } from "./error.js";
export type { Account } from "./error.js";
export { GatewaySignIn } from "./gateway.js";
export type { GatewaySignInOptions } from "./gateway.js";
export type { SignInPage, SignInRequest, SignInStorage } from "./page.js";
export interface SignInOptions {
    /** Where the gateway says how to sign in: `/oidc` when absent. */
    readonly oidc?: string;
    /** Where the provider sends people back to; this page without query and fragment when absent. */
    readonly redirectUri?: string;
    /** For tests. */
    readonly page?: SignInPage;
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
