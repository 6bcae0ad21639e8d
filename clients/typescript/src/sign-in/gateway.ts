/**
 * Signing in at the gateway: it runs the code flow itself and the page has a cookie that no script can read. Then a client
 * has no `token`, and nothing of the sign-in can be stolen out of the page.
 */
import { SignInError } from "./error.js";
import type { Account } from "./error.js";
import { browserPage } from "./page.js";
import type { SignInPage } from "./page.js";

export interface GatewaySignInOptions {
  /** Where the gateway's routes begin: `/auth` when absent. They must be of the page's own origin, for the cookie is. */
  readonly auth?: string;
  /** For tests. */
  readonly page?: SignInPage;
}

/** Kept over a reload: whoever signed out is not signed in again by a provider that still knows him. */
const AGAIN = "felix.sign-in.again";

export class GatewaySignIn {
  readonly #page: SignInPage;
  readonly #auth: string;
  #account: Account | null = null;

  constructor(options: GatewaySignInOptions = {}) {
    this.#page = options.page ?? browserPage();
    this.#auth = options.auth ?? "/auth";
  }

  /** Who is signed in; `null` for nobody, and before `resume`. */
  get account(): Account | null {
    return this.#account;
  }

  /** To be called when the page loads: asks the gateway who is here. `null` too where there is no such gateway. */
  async resume(): Promise<Account | null> {
    const { status, body } = await this.#page.fetch(`${this.#auth}/session`, { credentials: "same-origin" });
    const { signed_in: signedIn, subject, name } = body as { signed_in?: unknown; subject?: unknown; name?: unknown };
    const known = status === 200 && signedIn === true && typeof subject === "string";
    this.#account = known ? { subject, name: typeof name === "string" && name !== "" ? name : subject } : null;
    return this.#account;
  }

  /** Whether the gateway would send this browser to the provider: not every gateway can, nor every address of one. */
  async offered(): Promise<boolean> {
    const { status } = await this.#page.fetch(this.#login(), { redirect: "manual" });
    return status === 0;
  }

  /** Leaves for the provider. The page comes back to its address of now. `anotherPerson` has the provider ask who it is. */
  begin(options: { readonly anotherPerson?: boolean } = {}): void {
    const again = options.anotherPerson === true || this.#page.storage.getItem(AGAIN) !== null;
    this.#page.storage.removeItem(AGAIN);
    this.#page.go(`${this.#login()}${again ? "&prompt=login" : ""}`);
  }

  /**
   * Ends the sign-in and every connection that came in by it. Throws when the gateway did not do it: then it still stands.
   * `atProvider` goes on to the provider's own sign-out where the gateway knows of one, and comes back to this address; the
   * provider must know `/auth/logout/done` for that.
   */
  async signOut(options: { readonly atProvider?: boolean } = {}): Promise<void> {
    this.#account = null;
    const { status, body } = await this.#page.fetch(`${this.#auth}/logout`, {
      method: "POST", headers: { "x-felix-sign-out": "1" }, credentials: "same-origin",
    });
    if (status !== 200 && status !== 204) throw new SignInError("unreachable", `the gateway answered with ${status}`, "later");
    this.#page.storage.setItem(AGAIN, "1");
    const { continue_at: on } = body as { continue_at?: unknown };
    if (options.atProvider === true && typeof on === "string") this.#page.go(`${on}?${this.#returnTo()}`);
  }

  #login(): string {
    return `${this.#auth}/login?${this.#returnTo()}`;
  }

  #returnTo(): string {
    const here = new URL(this.#page.href());
    return `return_to=${encodeURIComponent(`${here.pathname}${here.search}`)}`;
  }
}
