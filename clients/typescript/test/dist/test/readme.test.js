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
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { connect } from "@felix/web";
import { FakeGateway } from "@felix/web/fake";
async function idToken() {
    return "ann";
}
async function sample() {
    const env_1 = { stack: [], error: void 0, hasError: false };
    try {
        // readme: begin
        const scope = { field: "board", value: "plans" };
        const client = __addDisposableResource(env_1, await connect({ url: "ws://127.0.0.1:8787/ws", scope, token: async () => idToken() }), true);
        client.on("state", ({ to, reason }) => console.log(to, reason));
        client.on("resynced", ({ stream, missed }) => console.log(`${stream}: ${missed} came while we were away`));
        const edits = client.subscribe("edits", { from: "earliest" });
        const offset = await client.publish("edits", { draw: "circle" });
        for await (const edit of edits) {
            console.log(edit.offset, edit.json());
            if (edit.offset === offset)
                break;
        }
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
    // readme: end
}
test("the sample of the README is this code, and runs", async (context) => {
    const lines = (text) => text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
    const readme = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");
    const source = readFileSync(new URL("../../readme.test.ts", import.meta.url), "utf8");
    const block = /```ts\n([\s\S]*?)```/.exec(readme)?.[1] ?? "";
    const code = /readme: begin\n([\s\S]*?)\/\/ readme: end/.exec(source)?.[1] ?? "";
    assert.deepEqual(lines(block).slice(1), lines(code));
    const gateway = new FakeGateway({ field: "board", streams: [{ alias: "edits" }] });
    const printed = context.mock.method(console, "log", () => undefined);
    const before = globalThis.WebSocket;
    globalThis.WebSocket = gateway.WebSocket;
    try {
        await sample();
    }
    finally {
        globalThis.WebSocket = before;
    }
    assert.deepEqual(printed.mock.calls[0]?.arguments, [0, { draw: "circle" }]);
    assert.equal(gateway.room("plans").streams.get("edits")?.next, 1);
});
