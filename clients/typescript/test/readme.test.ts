import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { connect } from "@felix/web";
import { FakeGateway } from "@felix/web/fake";

async function idToken(): Promise<string> {
  return "ann";
}

async function sample(): Promise<void> {
  // readme: begin
  const scope = { field: "board", value: "plans" };
  await using client = await connect({ url: "ws://127.0.0.1:8787/ws", scope, token: async () => idToken() });
  client.on("state", ({ to, reason }) => console.log(to, reason));
  client.on("resynced", ({ stream, missed }) => console.log(`${stream}: ${missed} came while we were away`));

  const edits = client.subscribe("edits", { from: "earliest" });
  const offset = await client.publish("edits", { draw: "circle" });
  for await (const edit of edits) {
    console.log(edit.offset, edit.json());
    if (edit.offset === offset) break;
  }
  // readme: end
}

test("the sample of the README is this code, and runs", async (context) => {
  const lines = (text: string): string[] => text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  const readme = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");
  const source = readFileSync(new URL("../../readme.test.ts", import.meta.url), "utf8");
  const block = /```ts\n([\s\S]*?)```/.exec(readme)?.[1] ?? "";
  const code = /readme: begin\n([\s\S]*?)\/\/ readme: end/.exec(source)?.[1] ?? "";
  assert.deepEqual(lines(block).slice(1), lines(code));

  const gateway = new FakeGateway({ field: "board", streams: [{ alias: "edits" }] });
  const printed = context.mock.method(console, "log", () => undefined);
  const before = globalThis.WebSocket;
  globalThis.WebSocket = gateway.WebSocket as unknown as typeof WebSocket;
  try {
    await sample();
  } finally {
    globalThis.WebSocket = before;
  }
  assert.deepEqual(printed.mock.calls[0]?.arguments, [0, { draw: "circle" }]);
  assert.equal(gateway.room("plans").streams.get("edits")?.next, 1);
});
