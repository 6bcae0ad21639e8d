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
import { once } from "node:events";
import { test } from "node:test";
import { connect } from "@felix/web";
import { FakeGateway } from "@felix/web/fake";
const installed = await import("ws").catch(() => null);
test("in Node the client works over the package ws, with binary frames and across a cut", { skip: installed === null && "ws is not installed" }, async () => {
    if (installed === null)
        return;
    const gateway = new FakeGateway({ field: "room", streams: [{ alias: "edits" }] });
    const server = new installed.WebSocketServer({ host: "127.0.0.1", port: 0 });
    await once(server, "listening");
    server.on("connection", (outside) => {
        const inside = new gateway.WebSocket("");
        const opened = new Promise((resolve) => { inside.onopen = () => resolve(); });
        inside.onmessage = ({ data }) => outside.send(data);
        inside.onclose = ({ code, reason }) => (code === 1006 ? outside.terminate() : outside.close(code, reason));
        outside.on("message", (data, binary) => void opened.then(() => inside.send(binary ? Uint8Array.from(data) : data.toString())));
        outside.on("close", () => inside.close());
    });
    const { port } = server.address();
    try {
        const env_1 = { stack: [], error: void 0, hasError: false };
        try {
            const client = __addDisposableResource(env_1, await connect({
                url: `http://127.0.0.1:${port}/ws`, scope: { field: "room", value: "r1" }, token: "ann",
                webSocket: installed.WebSocket, timing: { backoffMs: 1 },
            }), true);
            const edits = client.subscribe("edits", { from: 0 });
            await client.publish("edits", new Uint8Array(40_000).fill(9));
            const first = await edits.next();
            assert.equal(first.value?.bytes.length, 40_000);
            assert.notEqual(first.value?.timeMs, null, "binary frames carry the time");
            gateway.cut();
            assert.equal(await client.publish("edits", "after").catch(() => client.publish("edits", "after")), 1);
            assert.equal((await edits.next()).value?.text(), "after");
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
    finally {
        for (const outside of server.clients)
            outside.terminate();
        server.close();
    }
});
