import { GatewaySignIn, SignIn } from "../../../src/sign-in/index.js";
/** Set while the browser is away to sign in at the gateway. */
const AWAY = "felix.whiteboard.away";
export class Entrance {
    #here = new SignIn();
    #gateway = new GatewaySignIn();
    #wanted = document.querySelector("meta[name=felix-sign-in]")?.content ?? "auto";
    #byCookie = false;
    /** It came back without a cookie: some browsers keep none of a plain `http` address, not even on this machine. */
    #cookieLost = false;
    /** Whoever was here may not come in; the provider would only send the same person again. */
    #another = false;
    /** Who is here already, or just came back from the provider. */
    async resume() {
        const here = await this.#here.resume();
        if (here !== null)
            return { account: here, client: { url: "/ws", token: this.#here.token } };
        if (this.#wanted === "page")
            return null;
        // A gateway that cannot be asked is no reason not to offer the other way.
        const account = await this.#gateway.resume().catch(() => null);
        this.#byCookie = account !== null;
        this.#cookieLost = account === null && sessionStorage.getItem(AWAY) !== null;
        sessionStorage.removeItem(AWAY);
        return account === null ? null : { account, client: { url: "/ws" } };
    }
    /** Leaves for the provider. */
    async begin() {
        if (this.#wanted !== "page" && !this.#cookieLost && (await this.#gateway.offered())) {
            sessionStorage.setItem(AWAY, "1");
            return this.#gateway.begin({ anotherPerson: this.#another });
        }
        await this.#here.begin();
    }
    /** Forgets the person, at the gateway or in this tab. Throws when the gateway could not be told. */
    async signOut() {
        if (this.#byCookie)
            return this.#gateway.signOut();
        await this.#here.signOut({ atProvider: true });
    }
    /** The sign-in is over already: what this page holds of it goes. */
    forget(notWelcome) {
        this.#another = notWelcome;
        void this.#here.signOut();
    }
}
