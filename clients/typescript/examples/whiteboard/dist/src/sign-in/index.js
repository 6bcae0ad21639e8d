/**
 * Signing in from the page: the authorization code flow with PKCE (S256) of a public client. State, nonce and issuer are
 * checked, each attempt can be finished once and only in its own tab, and nothing of it stays in the address. The ID
 * token lives in memory and in the tab's `sessionStorage`. Its signature is not checked here: it comes from the token
 * endpoint itself, and the gateway's control plane verifies it.
 */
import { UnauthorizedError } from "../errors.js";
import { claim } from "../token.js";
import { SignInError } from "./error.js";
import { browserPage, digest, randomText } from "./page.js";
export { SignInError } from "./error.js";
export { GatewaySignIn } from "./gateway.js";
const ATTEMPT = "felix.sign-in.attempt";
const SESSION = "felix.sign-in.session";
/** Clocks may differ by this much. */
const SKEW_MS = 60_000;
export class SignIn {
    #page;
    #options;
    #settings = null;
    #session = null;
    #renewal = null;
    constructor(options = {}) {
        this.#options = options;
        this.#page = options.page ?? browserPage();
    }
    /** To be called when the page loads: finishes a sign-in that just came back, or takes up the tab's session. */
    async resume() {
        const here = new URL(this.#page.href());
        const answer = here.searchParams;
        if (answer.has("state") && (answer.has("code") || answer.has("error")))
            await this.#finish(here);
        else
            this.#session = this.#load();
        return this.account;
    }
    /** Who is signed in in this tab; `null` for nobody. */
    get account() {
        if (this.#session === null)
            return null;
        const subject = String(claim(this.#session.idToken, "sub") ?? "");
        const name = claim(this.#session.idToken, "name") ?? claim(this.#session.idToken, "preferred_username") ?? claim(this.#session.idToken, "email");
        return { subject, name: typeof name === "string" && name !== "" ? name : subject };
    }
    /** Leaves for the provider. The page comes back to its address of now. */
    async begin() {
        const settings = await this.#known();
        const here = new URL(this.#page.href());
        const redirectUri = this.#options.redirectUri ?? `${here.origin}${here.pathname}`;
        const attempt = {
            state: randomText(this.#page), nonce: randomText(this.#page), verifier: randomText(this.#page), redirectUri,
            returnTo: `${here.pathname}${here.search}${here.hash}`,
        };
        this.#page.storage.setItem(ATTEMPT, JSON.stringify(attempt));
        const to = new URL(settings.authorizationEndpoint);
        const query = {
            response_type: "code", client_id: settings.clientId, redirect_uri: redirectUri, scope: settings.scopes,
            state: attempt.state, nonce: attempt.nonce, code_challenge: await digest(this.#page, attempt.verifier), code_challenge_method: "S256",
        };
        for (const [name, value] of Object.entries(query))
            to.searchParams.set(name, value);
        this.#page.go(to.href);
    }
    /** For the client's `token`: the ID token, renewed where the provider gave the means; otherwise `UnauthorizedError`. */
    token = async (reason) => {
        if (this.#session === null)
            throw new UnauthorizedError("signed_out", "nobody is signed in");
        const fresh = this.#expiresAt(this.#session.idToken) > this.#page.now();
        if (fresh && (reason === "connect" || reason === "reconnect"))
            return this.#session.idToken;
        this.#renewal ??= this.#renew(this.#session).finally(() => { this.#renewal = null; });
        return this.#renewal;
    };
    /** Forgets everything of this tab; with `atProvider` it also leaves for the provider's own sign-out. */
    async signOut(options = {}) {
        const session = this.#session;
        this.#session = null;
        this.#renewal = null;
        this.#page.storage.removeItem(SESSION);
        this.#page.storage.removeItem(ATTEMPT);
        if (options.atProvider !== true || session === null)
            return;
        const { endSessionEndpoint, clientId } = await this.#known();
        if (endSessionEndpoint === null)
            return;
        const to = new URL(endSessionEndpoint);
        // By client, not by token: an address is no place for one.
        to.searchParams.set("client_id", clientId);
        to.searchParams.set("post_logout_redirect_uri", this.#options.redirectUri ?? new URL(this.#page.href()).origin + "/");
        this.#page.go(to.href);
    }
    #load() {
        try {
            const session = JSON.parse(this.#page.storage.getItem(SESSION) ?? "null");
            if (session === null || typeof session.idToken !== "string")
                return null;
            const usable = session.refreshToken !== null || this.#expiresAt(session.idToken) > this.#page.now();
            return usable ? session : null;
        }
        catch {
            return null;
        }
    }
    #keep(session) {
        this.#session = session;
        this.#page.storage.setItem(SESSION, JSON.stringify(session));
    }
    #expiresAt(token) {
        return Number(claim(token, "exp") ?? 0) * 1000;
    }
    async #finish(here) {
        const answer = here.searchParams;
        const stored = this.#page.storage.getItem(ATTEMPT);
        this.#page.storage.removeItem(ATTEMPT);
        const attempt = stored === null ? null : JSON.parse(stored);
        // Gone from the address, the history and any Referer before anything else happens.
        this.#page.replace(attempt?.returnTo ?? here.pathname);
        if (attempt === null || answer.get("state") !== attempt.state) {
            throw new SignInError("state", "this answer belongs to no sign-in that was begun in this tab");
        }
        const settings = await this.#known();
        const issuer = answer.get("iss");
        if (issuer === null ? settings.saysIssuer : issuer !== settings.issuer) {
            throw new SignInError("issuer", "the answer is not of the provider that was asked");
        }
        const refusal = answer.get("error");
        if (refusal !== null)
            throw new SignInError("refused", `the provider refused: ${refusal.slice(0, 100)}`);
        const session = await this.#exchange(settings, {
            grant_type: "authorization_code", code: answer.get("code") ?? "", redirect_uri: attempt.redirectUri, code_verifier: attempt.verifier,
        }, null);
        if (claim(session.idToken, "nonce") !== attempt.nonce)
            throw new SignInError("nonce", "the token was made for another sign-in");
        this.#keep(session);
    }
    async #renew(session) {
        if (session.refreshToken === null)
            throw new UnauthorizedError("signed_out", "the sign-in has expired");
        const settings = await this.#known();
        const renewed = await this.#exchange(settings, { grant_type: "refresh_token", refresh_token: session.refreshToken }, session.refreshToken);
        if (this.#session !== session)
            throw new UnauthorizedError("signed_out", "signed out meanwhile");
        if (claim(renewed.idToken, "sub") !== claim(session.idToken, "sub"))
            throw new UnauthorizedError("signed_out", "the provider gave another person's token");
        this.#keep(renewed);
        return renewed.idToken;
    }
    async #exchange(settings, form, refreshToken) {
        const body = new URLSearchParams({ ...form, client_id: settings.clientId }).toString();
        const headers = { "content-type": "application/x-www-form-urlencoded" };
        const { status, body: answer } = await this.#page.fetch(settings.tokenEndpoint, { method: "POST", headers, body });
        if (status >= 500)
            throw new SignInError("unreachable", `the provider answered with ${status}`, "later");
        if (status !== 200)
            throw new UnauthorizedError("signed_out", `the provider refused with ${status}`);
        const { id_token: idToken, refresh_token: next } = answer;
        if (typeof idToken !== "string")
            throw new SignInError("token", "the provider gave no ID token");
        this.#check(idToken, settings);
        return { idToken, refreshToken: typeof next === "string" ? next : refreshToken };
    }
    /** What OpenID Connect Core 3.1.3.7 asks for, but the signature, which TLS to the token endpoint stands for. */
    #check(token, settings) {
        const audience = claim(token, "aud");
        const audiences = Array.isArray(audience) ? audience : [audience];
        if (claim(token, "iss") !== settings.issuer)
            throw new SignInError("issuer", "the token is of another provider");
        if (!audiences.includes(settings.clientId))
            throw new SignInError("token", "the token is for another application");
        if (audiences.length > 1 && claim(token, "azp") !== settings.clientId)
            throw new SignInError("token", "the token was given to another application");
        if (this.#expiresAt(token) + SKEW_MS < this.#page.now())
            throw new SignInError("token", "the token has expired; is the clock right?");
    }
    #known() {
        this.#settings ??= this.#discover().catch((error) => {
            this.#settings = null;
            throw error;
        });
        return this.#settings;
    }
    async #discover() {
        const gateway = await this.#page.fetch(this.#options.oidc ?? "/oidc", {});
        const { issuer, client_id: clientId, scopes } = gateway.body;
        if (typeof issuer !== "string" || typeof clientId !== "string")
            throw new SignInError("unreachable", "the gateway does not say how to sign in", "later");
        const { body } = await this.#page.fetch(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`, {});
        const found = body;
        if (found["issuer"] !== issuer)
            throw new SignInError("issuer", "the provider calls itself by another name");
        const { authorization_endpoint: authorization, token_endpoint: token, end_session_endpoint: end } = found;
        if (typeof authorization !== "string" || typeof token !== "string")
            throw new SignInError("unreachable", "the provider does not say where to sign in", "later");
        return {
            issuer, clientId, authorizationEndpoint: authorization, tokenEndpoint: token,
            scopes: Array.isArray(scopes) ? scopes.join(" ") : typeof scopes === "string" ? scopes : "openid profile",
            endSessionEndpoint: typeof end === "string" ? end : null,
            saysIssuer: found["authorization_response_iss_parameter_supported"] === true,
        };
    }
}
