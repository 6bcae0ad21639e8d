import type { Account } from "./error.js";
import type { SignInPage } from "./page.js";
export interface GatewaySignInOptions {
    /** Where the gateway's routes begin: `/auth` when absent. They must be of the page's own origin, for the cookie is. */
    readonly auth?: string;
    /** For tests. */
    readonly page?: SignInPage;
}
export declare class GatewaySignIn {
    #private;
    constructor(options?: GatewaySignInOptions);
    /** Who is signed in; `null` for nobody, and before `resume`. */
    get account(): Account | null;
    /** To be called when the page loads: asks the gateway who is here. `null` too where there is no such gateway. */
    resume(): Promise<Account | null>;
    /** Whether the gateway would send this browser to the provider: not every gateway can, nor every address of one. */
    offered(): Promise<boolean>;
    /** Leaves for the provider. The page comes back to its address of now. `anotherPerson` has the provider ask who it is. */
    begin(options?: {
        readonly anotherPerson?: boolean;
    }): void;
    /**
     * Ends the sign-in and every connection that came in by it. Throws when the gateway did not do it: then it still stands.
     * `atProvider` goes on to the provider's own sign-out where the gateway knows of one, and comes back to this address; the
     * provider must know `/auth/logout/done` for that.
     */
    signOut(options?: {
        readonly atProvider?: boolean;
    }): Promise<void>;
}
