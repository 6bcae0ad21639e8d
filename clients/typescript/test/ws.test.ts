import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { connect } from "@felix/web";
import type { SocketConstructor, SocketLike } from "@felix/web";
import { FakeGateway } from "@felix/web/fake";

const installed = await import("ws").catch(() => null);

test("in Node the client works over the package ws, with binary frames and across a cut", { skip: installed === null && "ws is not installed" }, async () => {
  if (installed === null) return;
  const gateway = new FakeGateway({ field: "room", streams: [{ alias: "edits" }] });
  const server = new installed.WebSocketServer({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  server.on("connection", (outside) => {
    const inside: SocketLike = new gateway.WebSocket("");
    const opened = new Promise<void>((resolve) => { inside.onopen = () => resolve(); });
    inside.onmessage = ({ data }: { data: string | ArrayBuffer }) => outside.send(data);
    inside.onclose = ({ code, reason }: { code: number; reason: string }) => (code === 1006 ? outside.terminate() : outside.close(code, reason));
    outside.on("message", (data: Buffer, binary) => void opened.then(() => inside.send(binary ? Uint8Array.from(data) : data.toString())));
    outside.on("close", () => inside.close());
  });
  const { port } = server.address() as AddressInfo;
  try {
    await using client = await connect({
      url: `http://127.0.0.1:${port}/ws`, scope: { field: "room", value: "r1" }, token: "ann",
      webSocket: installed.WebSocket as unknown as SocketConstructor, timing: { backoffMs: 1 },
    });
    const edits = client.subscribe("edits", { from: 0 });
    await client.publish("edits", new Uint8Array(40_000).fill(9));
    const first = await edits.next();
    assert.equal(first.value?.bytes.length, 40_000);
    assert.notEqual(first.value?.timeMs, null, "binary frames carry the time");
    gateway.cut();
    assert.equal(await client.publish("edits", "after").catch(() => client.publish("edits", "after")), 1);
    assert.equal((await edits.next()).value?.text(), "after");
  } finally {
    for (const outside of server.clients) outside.terminate();
    server.close();
  }
});
