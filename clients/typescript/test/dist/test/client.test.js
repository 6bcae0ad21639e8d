var __addDisposableResource = (this && this.__addDisposableResource) || function (env, value, async) {
    if (value !== null && value !== void 0) {
        if (typeof value !== "object" && typeof value !== "function") throw new TypeError("Object expected.");
        var dispose, inner;
        if (async) {
            if (!Symbol.asyncDispose) throw new TypeError("Symbol.asyncDispose is not defined.");
            dispose = value[Symbol.asyncDispose];
        }
        if (dispose === void 0) {
            if (!Symbol.dispose) throw new TypeError("Symbol.dispose is not defined.");
            dispose = value[Symbol.dispose];
            if (async) inner = dispose;
        }
        if (typeof dispose !== "function") throw new TypeError("Object not disposable.");
        if (inner) dispose = function() { try { inner.call(this); } catch (e) { return Promise.reject(e); } };
        env.stack.push({ value: value, dispose: dispose, async: async });
    }
    else if (async) {
        env.stack.push({ async: true });
    }
    return value;
};
var __disposeResources = (this && this.__disposeResources) || (function (SuppressedError) {
    return function (env) {
        function fail(e) {
            env.error = env.hasError ? new SuppressedError(e, env.error, "An error was suppressed during disposal.") : e;
            env.hasError = true;
        }
        var r, s = 0;
        function next() {
            while (r = env.stack.pop()) {
                try {
                    if (!r.async && s === 1) return s = 0, env.stack.push(r), Promise.resolve().then(next);
                    if (r.dispose) {
                        var result = r.dispose.call(r.value);
                        if (r.async) return s |= 2, Promise.resolve(result).then(next, function(e) { fail(e); return next(); });
                    }
                    else s |= 1;
                }
                catch (e) {
                    fail(e);
                }
            }
            if (s === 1) return env.hasError ? Promise.reject(env.error) : Promise.resolve();
            if (env.hasError) throw env.error;
        }
        return next();
    };
})(typeof SuppressedError === "function" ? SuppressedError : function (error, suppressed, message) {
    var e = new Error(message);
    return e.name = "SuppressedError", e.error = error, e.suppressed = suppressed, e;
});
import assert from "node:assert/strict";
import { test } from "node:test";
import { ClosedError, OutcomeUnknownError, RateLimitedError, RefusedError, UnauthorizedError, UsageError, connect, unstamp } from "@felix/web";
import { settle } from "@felix/web/fake";
import { connected, jwt, take, world } from "./world.js";
test("a publish is acknowledged with its offset and arrives once", async () => {
    const on = world();
    const { client } = await connected(on);
    const edits = client.subscribe("edits");
    await settle();
    assert.equal(await client.publish("edits", "one"), 0);
    assert.equal(await client.publish("edits", { two: 2 }), 1);
    const [one, two] = await take(edits, 2);
    assert.equal(one?.text(), "one");
    assert.deepEqual(two?.json(), { two: 2 });
    assert.deepEqual([one?.offset, two?.offset], [0, 1]);
});
test("the same works without binary frames and without resume", async () => {
    const on = world({ features: [] });
    const { client } = await connected(on);
    const edits = client.subscribe("edits", { from: "earliest" });
    const cursors = client.subscribe("cursors");
    await settle();
    assert.equal(await client.publish("edits", new Uint8Array([0, 255, 128])), 0);
    assert.equal(await client.publish("cursors", "here"), null);
    assert.deepEqual((await take(edits, 1))[0]?.bytes, new Uint8Array([0, 255, 128]));
    const stamped = unstamp((await take(cursors, 1))[0]?.bytes ?? new Uint8Array());
    assert.equal(stamped?.sender, "ann");
});
test("offline for 30 s while 100 records are published: exactly once, in order, and told as one gap (B69)", async () => {
    for (const round of [1, 2]) {
        const on = world();
        const reader = await connected(on);
        const writer = await connected(on, { token: "bob" });
        const seen = [];
        const gaps = [];
        reader.client.on("resynced", (gap) => gaps.push(gap));
        reader.client.subscribe("edits", { onEvent: (event) => seen.push(Number(event.text())) });
        await settle();
        for (let n = 0; n < 5; n += 1)
            await writer.client.publish("edits", String(n));
        reader.host.page("offline");
        if (round === 1)
            on.gateway.cut(1006, "", "ann");
        else {
            // The socket says nothing: the client finds out by itself.
            on.gateway.silent = true;
            await on.clock.advance(2_500);
            on.gateway.silent = false;
        }
        await settle();
        assert.equal(reader.client.state, "suspended");
        for (let n = 5; n < 105; n += 1)
            await writer.client.publish("edits", String(n));
        await on.clock.advance(29_000);
        assert.equal(seen.length, 5);
        reader.host.page("online");
        await on.clock.advance(1_000);
        assert.equal(reader.client.state, "connected");
        assert.deepEqual(seen, Array.from({ length: 105 }, (_, n) => n));
        assert.deepEqual(gaps, [{ stream: "edits", from: 5, to: 105, missed: 100 }]);
    }
});
test("a socket that died in silence is noticed without the gateway's help, and nothing is lost", async () => {
    const on = world();
    const { client, states } = await connected(on);
    const seen = [];
    client.subscribe("edits", { from: 0, onEvent: (event) => seen.push(event.offset ?? -1) });
    await settle();
    on.gateway.silent = true;
    for (let n = 0; n < 10; n += 1)
        on.gateway.room("r1").streams.get("edits")?.append(new Uint8Array([n]));
    await on.clock.advance(15_100);
    assert.ok(states.some(({ reason }) => reason.startsWith("the gateway was silent")), JSON.stringify(states));
    on.gateway.silent = false;
    await on.clock.advance(60_000);
    assert.equal(client.state, "connected");
    assert.deepEqual(seen, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});
test("a tab that slept finds out at once when it is looked at again", async () => {
    const on = world();
    const { client, host } = await connected(on);
    on.gateway.silent = true;
    on.clock.sleep(600_000);
    on.gateway.silent = false;
    on.gateway.cut();
    await settle();
    assert.equal(client.state, "waiting");
    host.page("visible");
    await settle();
    assert.equal(client.state, "connected");
});
test("after signing out and in as another person on the same page nothing of the first is left (B64)", async () => {
    const on = world();
    const { client } = await connected(on);
    const edits = client.subscribe("edits");
    const presence = client.presence("presence", { key: "tab-a", data: { name: "Ann" } });
    client.cache("snapshot").onChange(() => undefined);
    await settle();
    assert.equal(presence.members.length, 1);
    client.signOut();
    assert.equal(client.state, "closed");
    await settle();
    assert.equal((await edits.next()).done, true);
    assert.equal(presence.members.length, 0);
    assert.equal(on.gateway.room("r1").caches.get("presence")?.entries.size, 0);
    on.gateway.seen.length = 0;
    client.setToken("bob");
    client.connect();
    await client.connected();
    await on.clock.advance(60_000);
    assert.equal(client.principal, "bob");
    const said = on.gateway.seen.map(({ message }) => message["type"]).filter((type) => type !== "ping");
    assert.deepEqual(said, ["join"], "B's socket says nothing that A had begun");
    assert.ok(!JSON.stringify(on.gateway.seen).includes("ann"));
    await assert.rejects(async () => client.subscribe("edits", { signal: AbortSignal.abort(new Error("mine")) }).next(), /mine/);
});
test("connecting after signing out without a token uses none of the first person's", async () => {
    const on = world();
    let asked = 0;
    const { client } = await connected(on, { token: async () => { asked += 1; return "ann"; } });
    client.signOut();
    client.connect();
    await settle();
    assert.equal(client.state, "unauthorized");
    assert.equal(asked, 1);
});
test("twenty reconnects with a slow token function cost one fetch for each life of a token (B65)", async () => {
    const on = world({ signIn: (token) => ({ principal: String(token).length > 0 ? "ann" : "", expiresInMs: 600_000 }) });
    const asked = [];
    const token = async (reason) => {
        asked.push({ reason, at: on.clock.now() });
        await new Promise((resolve) => on.clock.after(3_000, resolve));
        return jwt({ exp: Math.floor((1_767_225_600_000 + on.clock.now()) / 1000) + 600 });
    };
    const { client } = on.client({ token });
    client.connect();
    await on.clock.advance(5_000);
    assert.equal(client.state, "connected");
    for (let cut = 0; cut < 20; cut += 1) {
        on.gateway.cut();
        await on.clock.advance(10_000);
        assert.equal(client.state, "connected");
    }
    assert.equal(asked.length, 1, "reconnects use the token in hand");
    await on.clock.advance(400_000);
    assert.equal(asked.length, 2, "one refresh when two thirds of the life are over");
    // Cuts while the refresh is under way begin no second chain.
    for (let cut = 0; cut < 20; cut += 1) {
        on.gateway.cut();
        await on.clock.advance(1_000);
    }
    await on.clock.advance(500_000);
    assert.equal(asked.length, 3);
    const refreshes = on.gateway.seen.filter(({ message }) => message["type"] === "refresh");
    assert.ok(refreshes.length <= 3, `${refreshes.length} refreshes`);
    client.close();
    await settle();
    assert.equal(on.clock.waiting, 0, "no timer outlives the client");
});
test("a token that is old but good is used while the token function fails", async () => {
    const on = world();
    let asked = 0;
    const token = async () => {
        asked += 1;
        if (asked > 1)
            throw new TypeError("the network");
        return jwt({ exp: Math.floor(1_767_225_600_000 / 1000) + 600 });
    };
    const { client } = await connected(on, { token });
    await on.clock.advance(500_000);
    on.gateway.cut();
    await on.clock.advance(5_000);
    assert.equal(client.state, "connected");
    assert.equal(asked, 2);
    await on.clock.advance(100_000);
    on.gateway.cut();
    await on.clock.advance(5_000);
    assert.notEqual(client.state, "connected", "it has expired");
    assert.notEqual(client.state, "unauthorized", "and the function may work again");
});
test("a slow old token never replaces a newer one", async () => {
    const on = world();
    let answer = () => undefined;
    const { client } = on.client({ token: () => new Promise((resolve) => { answer = resolve; }) });
    client.connect();
    await settle();
    client.close();
    client.setToken("bob");
    client.connect();
    await settle();
    answer("ann");
    await settle();
    on.gateway.cut();
    await on.clock.advance(5_000);
    assert.equal(client.principal, "bob");
    assert.ok(!JSON.stringify(on.gateway.seen).includes("ann"));
});
test("whoever sets the token of another person publishes as that person or not at all", async () => {
    const on = world({ signIn: (token) => ({ principal: token ?? "" }) });
    const { client } = await connected(on, { token: "ann" });
    assert.equal(client.principal, "ann");
    client.setToken("bob");
    await on.clock.advance(5_000);
    await client.connected();
    assert.equal(client.principal, "bob");
});
test("the end of a reading that was asked anew already is not asked for twice", async () => {
    const on = world();
    const { client } = await connected(on);
    client.subscribe("edits");
    on.gateway.inject(JSON.stringify({ type: "error", code: "subscription_ended", message: "m", stream: "edits" }));
    await on.clock.advance(60_000);
    assert.equal(on.gateway.seen.filter(({ message }) => message["type"] === "subscribe").length, 1);
});
test("an expired static token is one event, and a new one works (B66)", async () => {
    const on = world({ signIn: (token) => (token === "fresh" ? { principal: "ann" } : "signed_out") });
    const { client } = on.client({ token: "stale" });
    const told = [];
    client.on("unauthorized", (error) => told.push(error));
    client.connect();
    const write = client.publish("edits", "x");
    await assert.rejects(write, UnauthorizedError);
    await on.clock.advance(600_000);
    assert.equal(told.length, 1);
    assert.equal(on.gateway.accepted, 1, "no reconnect goes on in the background");
    client.connect();
    await settle();
    assert.equal(client.state, "unauthorized");
    client.setToken("fresh");
    client.connect();
    await client.connected();
    assert.equal(await client.publish("edits", "x"), 0);
});
test("a provider is asked again when a session is over, and everything goes on", async () => {
    let life = 0;
    const on = world({ signIn: (token) => (token === `t${life}` ? { principal: "ann" } : "signed_out") });
    const reasons = [];
    const { client } = await connected(on, { token: async (reason) => { reasons.push(reason); return `t${life}`; } });
    const edits = client.subscribe("edits");
    await settle();
    life = 1;
    on.gateway.cut(4001, "the session is over");
    await settle();
    assert.equal(client.state, "connected");
    assert.deepEqual(reasons, ["connect", "rejected"]);
    await client.publish("edits", "after");
    assert.equal((await take(edits, 1))[0]?.text(), "after");
});
test("a write cut before its answer is an error that says so, and is never sent again", async () => {
    const on = world();
    const { client } = await connected(on);
    on.gateway.silent = true;
    const write = client.publish("edits", "maybe");
    const read = client.cache("snapshot").get("k");
    const failed = assert.rejects(write, (error) => error instanceof OutcomeUnknownError && error.retry === "ask_first");
    await settle();
    on.gateway.silent = false;
    on.gateway.cut();
    await failed;
    await on.clock.advance(5_000);
    assert.equal(await read, null, "a read is asked again");
    assert.equal(on.gateway.room("r1").streams.get("edits")?.next, 0);
});
test("writes asked for while there is no connection go out in order when there is one", async () => {
    const on = world();
    const { client } = await connected(on);
    on.gateway.stop();
    await settle();
    const writes = [0, 1, 2, 3].map((n) => client.publish("edits", String(n)));
    const aborting = new AbortController();
    const given = client.publish("edits", "never", { signal: aborting.signal });
    aborting.abort(new Error("changed my mind"));
    await assert.rejects(given, /changed my mind/);
    on.gateway.start();
    await on.clock.advance(5_000);
    assert.deepEqual(await Promise.all(writes), [0, 1, 2, 3]);
});
test("what is under way is bounded, and the rest waits", async () => {
    const on = world();
    const { client } = await connected(on);
    on.gateway.silent = true;
    const writes = Array.from({ length: 500 }, (_, n) => client.publish("edits", String(n)));
    const settled = Promise.allSettled(writes);
    await settle();
    on.gateway.silent = false;
    assert.equal(client.pending, 500);
    on.gateway.cut();
    await on.clock.advance(5_000);
    const results = await settled;
    assert.equal(results.filter(({ status }) => status === "rejected").length, 128);
    assert.equal(on.gateway.room("r1").streams.get("edits")?.next, 372);
});
test("a refused write says how long to wait, a refused payload is the caller's mistake", async () => {
    const on = world({ writes: { burst: 2, perS: 1 }, maxPayloadBytes: 10 });
    const { client } = await connected(on);
    await client.publish("edits", "1");
    await client.publish("edits", "2");
    await assert.rejects(client.publish("edits", "3"), (error) => error instanceof RateLimitedError && error.retryAfterMs === 1000);
    await assert.rejects(client.publish("edits", "over the limit of bytes"), (error) => error instanceof RefusedError && error.code === "bad_request");
    await assert.rejects(client.publish("nothing", "x"), (error) => error instanceof RefusedError && error.code === "bad_request");
    const failures = [];
    client.on("writeFailed", ({ error, cache }) => failures.push(`${error.code} ${cache}`));
    await client.cache("snapshot").put("k", "v");
    await settle();
    assert.deepEqual(failures, ["rate_limited snapshot"]);
    await on.clock.advance(1_000);
    assert.equal(await client.publish("edits", "3"), 2);
});
test("records below the oldest are told as trimmed, and reading goes on at the oldest", async () => {
    const on = world();
    const { client } = await connected(on);
    for (let n = 0; n < 10; n += 1)
        await client.publish("edits", String(n));
    on.gateway.room("r1").streams.get("edits")?.trim(4);
    const told = [];
    client.on("trimmed", (event) => told.push(event));
    const earliest = client.subscribe("edits", { from: "earliest" });
    assert.equal((await take(earliest, 1))[0]?.offset, 4);
    assert.deepEqual(told, [], "who asks for the oldest has lost nothing");
    earliest.close();
    const second = client.subscribe("edits", { from: 2 });
    assert.equal((await take(second, 1))[0]?.offset, 4);
    assert.deepEqual(told, [{ stream: "edits", from: 2, oldest: 4 }]);
});
test("a reader that is slow loses nothing of a durable stream: the rest is fetched when it has caught up", async () => {
    const on = world();
    const { client } = await connected(on);
    const lags = [];
    client.on("lagged", (event) => lags.push(event));
    const edits = client.subscribe("edits", { from: 0 });
    await settle();
    const stream = on.gateway.room("r1").streams.get("edits");
    for (let n = 0; n < 10_000; n += 1)
        stream?.append(new Uint8Array([n & 255]));
    await settle();
    assert.deepEqual(lags, [{ stream: "edits", from: 4096, missed: 0 }]);
    const events = await take(edits, 10_000);
    assert.deepEqual(events.map((event) => event.offset), Array.from({ length: 10_000 }, (_, n) => n));
});
test("a reader of a stream without a log is told how much it lost", async () => {
    const on = world();
    const { client } = await connected(on);
    const lags = [];
    client.on("lagged", (event) => lags.push(event));
    const cursors = client.subscribe("cursors");
    await settle();
    for (let n = 0; n < 5_000; n += 1)
        on.gateway.room("r1").streams.get("cursors")?.append(new Uint8Array([1]));
    await settle();
    assert.equal(lags.reduce((sum, { missed }) => sum + missed, 0), 5_000 - 4_096);
    cursors.close();
});
test("a watch gives what is there, then changes, and after a gap what differs", async () => {
    const on = world();
    const { client } = await connected(on);
    const cache = client.cache("snapshot");
    await cache.put("a", "1");
    const seen = [];
    cache.onChange(({ key, bytes }) => seen.push(`${key}=${bytes === null ? "" : new TextDecoder().decode(bytes)}`));
    await cache.loaded();
    await cache.put("b", "2");
    await settle();
    on.gateway.stop();
    await settle();
    const held = on.gateway.room("r1").caches.get("snapshot");
    held?.delete("a");
    held?.put("c", new TextEncoder().encode("3"));
    on.gateway.start();
    await on.clock.advance(5_000);
    assert.deepEqual(seen, ["a=1", "b=2", "a=", "c=3"]);
    assert.deepEqual([...cache.entries.keys()].sort(), ["b", "c"]);
});
test("a watch is iterated until its signal aborts", async () => {
    const on = world();
    const { client } = await connected(on);
    const cache = client.cache("snapshot");
    const aborting = new AbortController();
    const keys = [];
    const reading = (async () => {
        for await (const change of cache.watch({ signal: aborting.signal })) {
            keys.push(change.key);
            if (keys.length === 2)
                aborting.abort(new Error("enough"));
        }
    })();
    await cache.put("a", "1");
    await settle();
    await cache.put("b", "2");
    await assert.rejects(reading, /enough/);
    assert.deepEqual(keys, ["a", "b"]);
});
test("conditional writes apply once, and say which version was in the way", async () => {
    const on = world();
    const { client } = await connected(on);
    const cache = client.cache("snapshot");
    const first = await cache.putIf("k", "1", "absent");
    assert.equal(first.applied, true);
    const second = await cache.putIf("k", "2", "absent");
    assert.deepEqual(second, { applied: false, version: first.version });
    const { version } = await cache.getVersioned("k");
    assert.equal((await cache.deleteIf("k", (version ?? 0) + 1)).applied, false);
    assert.equal((await cache.deleteIf("k", version ?? 0)).applied, true);
    assert.equal(await cache.get("k"), null);
});
test("counters answer with the sum, reads with a page, times with an offset", async () => {
    const on = world();
    const { client } = await connected(on);
    assert.equal(await client.counter("seq").add("n", 3), 3);
    assert.equal(await client.counter("seq").add("n"), 4);
    for (let n = 0; n < 10; n += 1)
        await client.publish("edits", String(n));
    const page = await client.read("edits", { from: 3, max: 4 });
    assert.deepEqual(page.records.map(({ offset }) => offset), [3, 4, 5, 6]);
    assert.equal(page.nextOffset, 7);
    assert.equal(await client.offsetForTime("edits", new Date(0)), 0);
});
test("presence is written again before it expires, tells joins and leaves, and the beacon takes it back", async () => {
    const on = world();
    const ann = await connected(on);
    const bob = await connected(on, { token: "bob" });
    const told = [];
    const mine = ann.client.presence("presence", { key: "a", data: { name: "Ann" } });
    mine.on("join", ({ key }) => told.push(`join ${key}`));
    mine.on("leave", ({ key }) => told.push(`leave ${key}`));
    bob.client.presence("presence", { key: "b", data: { name: "Bob" } });
    await on.clock.advance(60_000);
    assert.deepEqual(mine.members.map(({ key }) => key), ["a", "b"]);
    assert.deepEqual(mine.members[1]?.json(), { name: "Bob" });
    bob.host.page("leaving");
    await settle();
    assert.deepEqual(told, ["join a", "join b", "leave b"]);
    bob.host.page("returned");
    await settle();
    assert.equal(mine.members.length, 2);
    bob.client.close();
    await on.clock.advance(16_000);
    assert.deepEqual(mine.members.map(({ key }) => key), ["a"], "who says nothing expires");
});
test("a gateway that goes away gets no new writes, and none is lost", async () => {
    const on = world();
    const { client, states } = await connected(on);
    const told = [];
    client.on("goingAway", ({ reconnectAfterMs }) => told.push(reconnectAfterMs));
    on.gateway.goAway(1_000);
    await settle();
    const write = client.publish("edits", "later");
    await settle();
    on.gateway.cut(1001, "going away");
    await on.clock.advance(900);
    assert.equal(on.gateway.room("r1").streams.get("edits")?.next, 0);
    await on.clock.advance(600);
    assert.equal(await write, 0);
    assert.deepEqual(told, [1_000]);
    assert.equal(states.filter(({ to }) => to === "unauthorized").length, 0);
});
test("closing ends readers, writers and the connection, and a listener may close from inside an event", async () => {
    const on = world();
    const { client } = await connected(on);
    const edits = client.subscribe("edits");
    const reading = edits.next();
    on.gateway.silent = true;
    const write = client.publish("edits", "x");
    const failing = assert.rejects(write, OutcomeUnknownError);
    client.on("state", ({ to }) => { if (to === "closed")
        client.close(); });
    client.close();
    await failing;
    assert.equal((await reading).done, true);
    await settle();
    assert.throws(() => client.subscribe("edits"), ClosedError);
    await assert.rejects(client.publish("edits", "y"), ClosedError);
    await assert.rejects(client.cache("snapshot").get("k"), ClosedError);
    assert.equal(on.clock.waiting, 0);
});
test("connect resolves when it stands, gives up with its signal, and closes at the end of its block", async () => {
    const on = world();
    const host = on.gateway.host();
    const options = { url: "ws://gateway/ws", scope: { field: "room", value: "r1" }, token: "ann", host };
    {
        const env_1 = { stack: [], error: void 0, hasError: false };
        try {
            const client = __addDisposableResource(env_1, await connect(options), true);
            await client.publish("edits", "x");
            assert.equal(on.gateway.connections, 1);
        }
        catch (e_1) {
            env_1.error = e_1;
            env_1.hasError = true;
        }
        finally {
            const result_1 = __disposeResources(env_1);
            if (result_1)
                await result_1;
        }
    }
    await settle();
    assert.equal(on.gateway.connections, 0);
    on.gateway.stop();
    const aborting = new AbortController();
    const failing = assert.rejects(connect({ ...options, signal: aborting.signal }), /enough waiting/);
    await settle();
    aborting.abort(new Error("enough waiting"));
    await failing;
});
test("addresses with secrets, odd schemes or bad names are refused before anything is sent", () => {
    const on = world();
    for (const url of ["ws://gateway/ws?token=x", "ws://user:pw@gateway/ws", "ftp://gateway/ws", "no address"]) {
        assert.throws(() => on.client({ url }), UsageError, url);
    }
    assert.throws(() => on.client({ scope: { field: "room", value: "a/b" } }), UsageError);
});
