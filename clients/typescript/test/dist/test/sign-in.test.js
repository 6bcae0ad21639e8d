import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { UnauthorizedError } from "@felix/web";
import { GatewaySignIn, SignIn, SignInError } from "@felix/web/sign-in";
import { jwt } from "./world.js";
const ISSUER = "https://login.test";
const HOME = "https://app.test/board?name=plans";
/** A tab, and a provider that answers what it is told to. */
class Tab {
    address = HOME;
    visited = [];
    posted = [];
    kept = new Map();
    time = 1_800_000_000_000;
    discovery = {
        issuer: ISSUER, authorization_endpoint: `${ISSUER}/auth`, token_endpoint: `${ISSUER}/token`,
        end_session_endpoint: `${ISSUER}/end`, authorization_response_iss_parameter_supported: true,
    };
    claims = {};
    status = 200;
    refreshToken = null;
    storage = {
        getItem: (name) => this.kept.get(name) ?? null,
        setItem: (name, value) => void this.kept.set(name, value),
        removeItem: (name) => void this.kept.delete(name),
    };
    href = () => this.address;
    replace = (path) => { this.address = new URL(path, this.address).href; };
    go = (url) => void this.visited.push(url);
    now = () => this.time;
    random = (bytes) => crypto.getRandomValues(new Uint8Array(bytes));
    sha256 = async (bytes) => createHash("sha256").update(bytes).digest();
    fetch = async (url, init) => {
        if (url === "/oidc")
            return { status: 200, body: { issuer: ISSUER, client_id: "web", scopes: "openid profile" } };
        if (url.endsWith("/.well-known/openid-configuration"))
            return { status: 200, body: this.discovery };
        this.posted.push(new URLSearchParams(init.body));
        const token = { iss: ISSUER, aud: "web", sub: "ann", name: "Ann", exp: this.time / 1000 + 600, nonce: this.asked("nonce"), ...this.claims };
        const refresh = this.refreshToken === null ? {} : { refresh_token: this.refreshToken };
        return { status: this.status, body: { id_token: jwt(token), ...refresh } };
    };
    /** A parameter of the last visit to the provider. */
    asked(name) {
        return new URL(this.visited.at(-1) ?? HOME).searchParams.get(name) ?? "";
    }
    comeBack(query) {
        this.address = `https://app.test/board?${new URLSearchParams(query)}`;
    }
}
async function leave(tab = new Tab()) {
    await new SignIn({ page: tab }).begin();
    return tab;
}
function failure(code) {
    return (error) => error instanceof SignInError && error.code === code;
}
test("a sign-in asks for a code with S256, state and nonce, and ends with a token and a clean address", async () => {
    const tab = await leave();
    assert.equal(tab.asked("response_type"), "code");
    assert.equal(tab.asked("code_challenge_method"), "S256");
    assert.equal(tab.asked("redirect_uri"), "https://app.test/board");
    tab.comeBack({ code: "c0de", state: tab.asked("state"), iss: ISSUER });
    const signIn = new SignIn({ page: tab });
    assert.deepEqual(await signIn.resume(), { subject: "ann", name: "Ann" });
    assert.equal(tab.address, HOME);
    const [form] = tab.posted;
    const challenge = createHash("sha256").update(form?.get("code_verifier") ?? "").digest("base64url");
    assert.equal(challenge, tab.asked("code_challenge"));
    assert.ok((await signIn.token("connect")).startsWith("ey"));
    assert.deepEqual(await new SignIn({ page: tab }).resume(), { subject: "ann", name: "Ann" }, "a reload keeps it");
});
test("an answer with another state, an old one, or none that was asked for is refused", async () => {
    const tab = await leave();
    tab.comeBack({ code: "c0de", state: "forged", iss: ISSUER });
    await assert.rejects(new SignIn({ page: tab }).resume(), failure("state"));
    assert.equal(tab.posted.length, 0);
    tab.comeBack({ code: "c0de", state: tab.asked("state"), iss: ISSUER });
    await assert.rejects(new SignIn({ page: tab }).resume(), failure("state"), "each attempt ends once");
    const fresh = new Tab();
    fresh.comeBack({ code: "c0de", state: "x", iss: ISSUER });
    await assert.rejects(new SignIn({ page: fresh }).resume(), failure("state"));
    assert.equal(fresh.address, "https://app.test/board");
});
test("an answer of another provider, or without the issuer that was promised, is refused", async () => {
    for (const iss of ["https://evil.test", null]) {
        const tab = await leave();
        tab.comeBack({ code: "c0de", state: tab.asked("state"), ...(iss === null ? {} : { iss }) });
        await assert.rejects(new SignIn({ page: tab }).resume(), failure("issuer"));
        assert.equal(tab.posted.length, 0, "the code went nowhere");
    }
    const tab = new Tab();
    tab.discovery["issuer"] = "https://evil.test";
    await assert.rejects(leave(tab), failure("issuer"));
});
test("tokens of another sign-in, provider, application or time are refused", async () => {
    const wrong = [
        ["nonce", { nonce: "another" }], ["nonce", { nonce: undefined }], ["issuer", { iss: "https://evil.test" }], ["token", { aud: "other" }],
        ["token", { aud: ["web", "other"], azp: "other" }], ["token", { exp: 1 }],
    ];
    for (const [code, claims] of wrong) {
        const tab = await leave();
        tab.claims = claims;
        tab.comeBack({ code: "c0de", state: tab.asked("state"), iss: ISSUER });
        await assert.rejects(new SignIn({ page: tab }).resume(), failure(code), JSON.stringify(claims));
        assert.equal(await new SignIn({ page: tab }).resume(), null, "nothing was kept");
    }
});
test("a person who says no at the provider is told so, and the address is clean", async () => {
    const tab = await leave();
    tab.comeBack({ error: "access_denied", state: tab.asked("state"), iss: ISSUER });
    await assert.rejects(new SignIn({ page: tab }).resume(), failure("refused"));
    assert.equal(tab.address, HOME);
});
async function signedIn(refreshToken) {
    const tab = await leave();
    tab.refreshToken = refreshToken;
    tab.comeBack({ code: "c0de", state: tab.asked("state"), iss: ISSUER });
    const signIn = new SignIn({ page: tab });
    await signIn.resume();
    return { tab, signIn };
}
test("a refresh token renews once for all who ask, and without one it is over", async () => {
    const { tab, signIn } = await signedIn("r1");
    const [one, two] = await Promise.all([signIn.token("refresh"), signIn.token("rejected")]);
    assert.equal(one, two);
    assert.equal(tab.posted.length, 2);
    const without = await signedIn(null);
    without.tab.time += 601_000;
    await assert.rejects(without.signIn.token("connect"), UnauthorizedError);
});
test("a renewal that gives another person is refused", async () => {
    const { tab, signIn } = await signedIn("r1");
    tab.claims = { sub: "bob" };
    await assert.rejects(signIn.token("refresh"), UnauthorizedError);
    assert.equal(signIn.account?.subject, "ann");
});
test("signing out forgets the tab's session, and puts no token into an address", async () => {
    const { tab, signIn } = await signedIn("r1");
    const token = await signIn.token("connect");
    await signIn.signOut({ atProvider: true });
    assert.equal(tab.kept.size, 0);
    await assert.rejects(signIn.token("connect"), UnauthorizedError);
    assert.ok(tab.visited.every((url) => !url.includes(token)));
    assert.ok(tab.visited.at(-1)?.startsWith(`${ISSUER}/end?client_id=web`));
});
test("at a gateway that signs people in the page learns who is here, leaves for it, and signs out", async () => {
    const asked = [];
    let session = { status: 200, body: { signed_in: true, subject: "ann", name: "Ann", expires_in_ms: 1 } };
    const tab = new Tab();
    const answers = { "/auth/logout": { status: 204, body: {} } };
    tab.fetch = async (url, init) => {
        asked.push([url, init]);
        return url === "/auth/session" ? session : (answers[url] ?? { status: 0, body: {} });
    };
    const gateway = new GatewaySignIn({ page: tab });
    assert.deepEqual(await gateway.resume(), { subject: "ann", name: "Ann" });
    assert.equal(await gateway.offered(), true);
    gateway.begin();
    assert.equal(tab.visited.at(-1), "/auth/login?return_to=%2Fboard%3Fname%3Dplans");
    await gateway.signOut();
    assert.equal(gateway.account, null);
    assert.deepEqual(asked.at(-1), ["/auth/logout", { method: "POST", headers: { "x-felix-sign-out": "1" }, credentials: "same-origin" }]);
    new GatewaySignIn({ page: tab }).begin();
    assert.ok(tab.visited.at(-1)?.endsWith("&prompt=login"), "somebody else may come, though the provider knows the last one");
    gateway.begin({ anotherPerson: true });
    assert.ok(tab.visited.at(-1)?.endsWith("&prompt=login"));
    gateway.begin();
    assert.ok(!tab.visited.at(-1)?.includes("prompt"));
    answers["/auth/logout"] = { status: 200, body: { continue_at: "/auth/logout/continue" } };
    const visits = tab.visited.length;
    await gateway.signOut();
    assert.equal(tab.visited.length, visits, "the provider is another matter");
    await gateway.signOut({ atProvider: true });
    assert.equal(tab.visited.at(-1), "/auth/logout/continue?return_to=%2Fboard%3Fname%3Dplans");
    answers["/auth/logout"] = { status: 503, body: {} };
    await assert.rejects(gateway.signOut(), failure("unreachable"));
    // Another server, or a gateway that cannot: nobody is here, and the page signs in itself.
    for (const other of [{ status: 404, body: {} }, { status: 200, body: { signed_in: false } }, { status: 200, body: {} }]) {
        session = other;
        assert.equal(await gateway.resume(), null);
    }
    for (const status of [200, 404, 503]) {
        answers["/auth/login?return_to=%2Fboard%3Fname%3Dplans"] = { status, body: {} };
        assert.equal(await gateway.offered(), false);
    }
});
