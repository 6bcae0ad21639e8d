/**
 * Who comes in, and how. Where the gateway signs people in, the page holds nothing but a cookie that it cannot read;
 * elsewhere it signs in itself and holds a token. `<meta name="felix-sign-in" content="page">` wants the second always,
 * for providers at which only the page's own address is registered.
 */
import type { ClientOptions } from "../../../src/index.js";
import { GatewaySignIn, SignIn } from "../../../src/sign-in/index.js";
import type { Account } from "../../../src/sign-in/index.js";

export interface Guest {
  readonly account: Account;
  readonly client: Pick<ClientOptions, "url" | "token">;
}

/** Set while the browser is away to sign in at the gateway. */
const AWAY = "felix.whiteboard.away";

export class Entrance {
  readonly #here = new SignIn();
  readonly #gateway = new GatewaySignIn();
  readonly #wanted = document.querySelector<HTMLMetaElement>("meta[name=felix-sign-in]")?.content ?? "auto";
  #byCookie = false;
  /** It came back without a cookie: some browsers keep none of a plain `http` address, not even on this machine. */
  #cookieLost = false;
  /** Whoever was here may not come in; the provider would only send the same person again. */
  #another = false;

  /** Who is here already, or just came back from the provider. */
  async resume(): Promise<Guest | null> {
    const here = await this.#here.resume();
    if (here !== null) return { account: here, client: { url: "/ws", token: this.#here.token } };
    if (this.#wanted === "page") return null;
    // A gateway that cannot be asked is no reason not to offer the other way.
    const account = await this.#gateway.resume().catch(() => null);
    this.#byCookie = account !== null;
    this.#cookieLost = account === null && sessionStorage.getItem(AWAY) !== null;
    sessionStorage.removeItem(AWAY);
    return account === null ? null : { account, client: { url: "/ws" } };
  }

  /** Leaves for the provider. */
  async begin(): Promise<void> {
    if (this.#wanted !== "page" && !this.#cookieLost && (await this.#gateway.offered())) {
      sessionStorage.setItem(AWAY, "1");
      return this.#gateway.begin({ anotherPerson: this.#another });
    }
    await this.#here.begin();
  }

  /** Forgets the person, at the gateway or in this tab. Throws when the gateway could not be told. */
  async signOut(): Promise<void> {
    if (this.#byCookie) return this.#gateway.signOut();
    await this.#here.signOut({ atProvider: true });
  }

  /** The sign-in is over already: what this page holds of it goes. */
  forget(notWelcome: boolean): void {
    this.#another = notWelcome;
    void this.#here.signOut();
  }
}
