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
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { ClosedError, FelixClient, UsageError, asyncDispose, connect, encode } from "@felix/web";
import { settle } from "@felix/web/fake";
import { connected, world } from "./world.js";
/** What a test throws on purpose in a listener, and who heard of it. */
function uncaught(context) {
    const heard = [];
    const before = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.on("uncaughtException", (error) => heard.push(error));
    context.after(() => {
        process.removeAllListeners("uncaughtException");
        for (const listener of before)
            process.on("uncaughtException", listener);
    });
    return heard;
}
test("a signal that outlives what it was given to holds nothing of it", async () => {
    const on = world();
    const living = new AbortController();
    const { signal } = living;
    const { client } = await connected(on, { signal });
    for (let time = 0; time < 20; time += 1) {
        const edits = client.subscribe("edits", { signal });
        client.presence("presence", { key: "tab", data: {}, signal });
        const stop = client.cache("snapshot").onChange(() => undefined, { signal });
        const off = client.on("state", () => undefined, { signal });
        await client.publish("edits", "x", { signal });
        edits.close();
        stop();
        off();
        client.signOut();
        client.setToken("ann");
        client.connect();
        await settle();
    }
    client.close();
    assert.equal(getEventListeners(signal, "abort").length, 0);
    living.abort(new Error("the page is over"));
    client.connect();
    assert.equal(client.state, "closed", "and a client whose signal aborted does not begin again");
    await assert.rejects(client.connected(), /the page is over/);
});
test("whoever begins anew when the client closes is let in, and with the token that he brought", async () => {
    const on = world();
    const { client } = await connected(on);
    client.on("state", ({ to }) => {
        if (to !== "closed" || client.principal === "bob")
            return;
        client.setToken("bob");
        client.connect();
    });
    client.close();
    await client.connected();
    assert.equal(client.principal, "bob");
    assert.equal(await client.publish("edits", "of bob"), 0);
});
test("a token that is set while a connection is on its way is the one that comes in", async () => {
    const on = world();
    let answer = () => undefined;
    const { client } = on.client({ token: () => new Promise((resolve) => { answer = resolve; }) });
    client.connect();
    await settle();
    client.setToken("bob");
    answer("ann");
    await client.connected();
    assert.equal(client.principal, "bob");
    assert.ok(!JSON.stringify(on.gateway.seen).includes("ann"));
});
test("asking to connect while waiting for the next try makes it now", async () => {
    const on = world();
    const { client } = await connected(on);
    on.gateway.stop();
    await on.clock.advance(120_000);
    assert.equal(client.state, "waiting");
    on.gateway.start();
    client.connect();
    await settle();
    assert.equal(client.state, "connected");
});
test("a page that signed in anew by cookie, or whose token function works again, only has to connect", async () => {
    let welcome = false;
    const on = world({ signIn: () => (welcome ? { principal: "ann" } : "signed_out") });
    const { client } = on.client();
    client.close();
    client.setToken(undefined);
    client.connect();
    await settle();
    assert.equal(client.state, "unauthorized");
    welcome = true;
    client.connect();
    await client.connected();
    assert.equal(client.principal, "ann");
});
test("waiting for a client that is closed, or for entries that will not come, ends", async () => {
    const on = world();
    const { client } = await connected(on);
    on.gateway.silent = true;
    const cache = client.cache("snapshot");
    cache.onChange(() => undefined);
    const loaded = assert.rejects(cache.loaded(), ClosedError);
    client.close();
    await loaded;
    await assert.rejects(client.connected(), ClosedError);
});
test("leaving the block ends even when the connection takes nothing any more", async () => {
    const on = world();
    const { client } = await connected(on);
    client.presence("presence", { key: "tab", data: {} });
    on.gateway.silent = true;
    const writes = Promise.allSettled(Array.from({ length: 200 }, () => client.publish("edits", "x")));
    const left = client[asyncDispose]();
    await on.clock.advance(1_500);
    await left;
    assert.equal(client.state, "closed");
    await writes;
});
test("a buffer that is used again does not change what waits, and what has no bytes is refused", async () => {
    const on = world();
    const { client } = await connected(on);
    on.gateway.stop();
    await settle();
    const buffer = new Float32Array([1.5, 2.5]);
    const write = client.publish("edits", buffer);
    buffer.fill(0);
    on.gateway.start();
    await on.clock.advance(5_000);
    await write;
    const stored = on.gateway.room("r1").streams.get("edits")?.records[0]?.payload ?? new Uint8Array();
    assert.deepEqual([...new Float32Array(stored.slice().buffer)], [1.5, 2.5]);
    assert.throws(() => encode(new Blob(["x"])), UsageError);
    assert.throws(() => encode(undefined), UsageError);
    assert.throws(() => encode(() => undefined), UsageError);
});
test("code of the application that throws keeps nobody else from hearing, and the connection stands", async (context) => {
    const on = world();
    const { client } = await connected(on);
    await client.cache("snapshot").put("a", "1");
    await client.cache("snapshot").put("b", "2");
    await settle();
    const thrown = uncaught(context);
    const cache = client.cache("snapshot");
    const heard = [];
    cache.onChange(() => { throw new Error("mine"); });
    cache.onChange(({ key }) => heard.push(key));
    const offsets = [];
    client.subscribe("edits", {
        from: 0,
        onEvent: ({ offset }) => {
            offsets.push(offset);
            throw new Error("mine too");
        },
    });
    await cache.loaded();
    await client.publish("edits", "one");
    await client.publish("edits", "two");
    await settle();
    assert.deepEqual(heard, ["a", "b"]);
    assert.deepEqual(offsets, [0, 1]);
    assert.equal(client.state, "connected");
    assert.equal(thrown.length, 4, "and each error is heard of");
});
test("presence that is only written again is no news, and comes back when it expired in a hidden page", async () => {
    const on = world();
    const { client, host } = await connected(on);
    const here = client.presence("presence", { key: "tab", data: { name: "Ann" } });
    const told = [];
    for (const name of ["join", "update", "leave"])
        here.on(name, () => told.push(name));
    await on.clock.advance(60_000);
    assert.deepEqual(told, ["join"]);
    // Timers stand still, and the cache does not.
    on.gateway.room("r1").caches.get("presence")?.delete("tab");
    await settle();
    assert.deepEqual(told, ["join", "leave", "join"]);
    assert.ok(on.gateway.room("r1").caches.get("presence")?.entries.has("tab"));
    host.page("leaving");
    await settle();
    assert.equal(on.gateway.room("r1").caches.get("presence")?.entries.size, 0, "a page that goes stays away");
});
test("a slow reader of a cache hears of every key that he was given and that is gone", async () => {
    const on = world();
    const { client } = await connected(on);
    const held = on.gateway.room("r1").caches.get("snapshot");
    const bytes = new Uint8Array([1]);
    for (let n = 0; n < 5_000; n += 1)
        held?.put(`k${n}`, bytes);
    const watch = client.cache("snapshot").watch();
    const keys = new Set();
    await settle();
    while (keys.size < 5_000) {
        const { value } = await watch.next();
        if (value !== undefined)
            keys.add(value.key);
        await settle();
    }
    for (let n = 0; n < 5_000; n += 1)
        held?.delete(`k${n}`);
    held?.put("last", bytes);
    await settle();
    for (;;) {
        const { value } = await watch.next();
        if (value === undefined || value.key === "last")
            break;
        if (value.bytes === null)
            keys.delete(value.key);
    }
    assert.equal(keys.size, 0);
    await watch.return();
});
test("entries that nobody watches are not kept: they would be old", async () => {
    const on = world();
    const { client } = await connected(on);
    const cache = client.cache("snapshot");
    await cache.put("a", "1");
    const stop = cache.onChange(() => undefined);
    await cache.loaded();
    assert.equal(cache.entries.size, 1);
    stop();
    on.gateway.room("r1").caches.get("snapshot")?.delete("a");
    await settle();
    assert.equal(cache.entries.size, 0);
    assert.equal(cache.complete, false);
});
test("a read that was taken back is not asked again after a cut", async () => {
    const on = world();
    const { client } = await connected(on);
    on.gateway.silent = true;
    const aborting = new AbortController();
    const read = assert.rejects(client.cache("snapshot").get("k", { signal: aborting.signal }), /enough/);
    await settle();
    aborting.abort(new Error("enough"));
    await read;
    on.gateway.silent = false;
    on.gateway.seen.length = 0;
    on.gateway.cut();
    await on.clock.advance(5_000);
    assert.deepEqual(on.gateway.seen.filter(({ message }) => message["type"] === "cache_get"), []);
});
test("subscriptions and presences end with their blocks", async () => {
    const on = world();
    const { client } = await connected(on);
    {
        const env_1 = { stack: [], error: void 0, hasError: false };
        try {
            const edits = __addDisposableResource(env_1, client.subscribe("edits"), true);
            const here = __addDisposableResource(env_1, client.presence("presence", { key: "tab", data: {} }), true);
            await edits.started();
            await settle();
            assert.equal(here.members.length, 1);
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
    assert.equal(on.gateway.room("r1").caches.get("presence")?.entries.size, 0);
    client.subscribe("edits").close();
});
test("a thousand clients that came and went leave no timer, listener or connection", async () => {
    const on = world();
    const living = new AbortController();
    const host = on.gateway.host();
    for (let n = 0; n < 1_000; n += 1) {
        const client = await connect({
            url: "ws://gateway/ws", scope: { field: "room", value: "r1" }, token: "ann", host, signal: living.signal,
        });
        client.subscribe("edits", { signal: living.signal });
        client.presence("presence", { key: "tab", data: {}, signal: living.signal });
        client.close();
    }
    await on.clock.advance(20_000);
    assert.equal(on.clock.waiting, 0);
    assert.equal(on.gateway.connections, 0);
    assert.equal(getEventListeners(living.signal, "abort").length, 0);
});
