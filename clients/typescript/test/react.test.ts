import assert from "node:assert/strict";
import { test } from "node:test";
import { settle } from "@felix/web/fake";
import { connected, world } from "./world.js";

const react = await import("react").catch(() => null);
// @ts-expect-error the renderer brings no types
const renderer = (await import("react-test-renderer").catch(() => null)) as {
  create(element: unknown): { unmount(): void };
  act(work: () => Promise<void>): Promise<void>;
} | null;
const skip = (react === null || renderer === null) && "react is not installed";

test("hooks show state, records, members and entries, share one subscription, and stop when unmounted", { skip }, async () => {
  if (react === null || renderer === null) return;
  (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
  const { FelixProvider, useCache, useCounter, useFelix, usePresence, useStream } = await import("@felix/web/react");
  const on = world();
  const { client } = await connected(on);
  let shown: Record<string, unknown> = {};
  let add: (delta?: number) => Promise<number> = async () => 0;
  function Page(props: { readonly name: string }): null {
    const { state } = useFelix();
    const { events } = useStream("edits", { from: "earliest" });
    const again = useStream("edits", { from: "earliest" });
    const members = usePresence("presence", "me", { name: props.name });
    const entries = useCache("snapshot");
    const counter = useCounter("seq", "n");
    add = counter.add;
    shown = {
      state, texts: events.map((event) => event.text()), same: again.events === events,
      members: members.map((member) => (member.json() as { name: string }).name), keys: [...entries.keys()], count: counter.value,
    };
    return null;
  }
  const element = (name: string): unknown => react.createElement(react.StrictMode, null,
    react.createElement(FelixProvider, { client }, react.createElement(Page, { name })));
  let root: { unmount(): void; update?(element: unknown): void } | null = null;
  await renderer.act(async () => {
    root = renderer.create(element("Ann"));
    await settle();
  });
  await renderer.act(async () => {
    await client.publish("edits", "one");
    await client.cache("snapshot").put("k", "v");
    await add(2);
    await settle();
  });
  assert.deepEqual(shown, { state: "connected", texts: ["one"], same: true, members: ["Ann"], keys: ["k"], count: 2 });
  await renderer.act(async () => {
    (root as unknown as { update(element: unknown): void }).update(element("Anna"));
    await settle();
  });
  assert.deepEqual(shown["members"], ["Anna"]);
  await renderer.act(async () => {
    on.gateway.stop();
    await settle();
  });
  assert.equal(shown["state"], "waiting");
  await renderer.act(async () => root?.unmount());
  assert.equal(on.gateway.room("r1").streams.get("edits")?.readers.size, 0);
  client.close();
});

test("after signing out and in as another person no hook shows anything of the first", { skip }, async () => {
  if (react === null || renderer === null) return;
  (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
  const { FelixProvider, useCache, usePresence, useStream } = await import("@felix/web/react");
  const on = world();
  const { client } = await connected(on);
  let shown: Record<string, unknown> = {};
  function Page(): null {
    const edits = useStream("edits");
    const otherwise = useStream("edits", { from: "earliest" });
    const members = usePresence("presence", "me", { name: "x" });
    const entries = useCache("snapshot");
    shown = {
      texts: edits.events.map((event) => event.text()), error: otherwise.error === null ? null : (otherwise.error as Error).name,
      members: members.length, keys: [...entries.keys()],
    };
    return null;
  }
  const in_ = async (work: () => Promise<unknown> | unknown): Promise<void> => renderer.act(async () => {
    await work();
    await settle();
  });
  let root: { unmount(): void } | null = null;
  await in_(() => { root = renderer.create(react.createElement(FelixProvider, { client }, react.createElement(Page))); });
  await in_(async () => {
    await client.publish("edits", "of ann");
    await client.cache("snapshot").put("k", "v");
  });
  // One subscription for each stream: who asks otherwise is told, and the page stands.
  assert.deepEqual(shown, { texts: ["of ann"], error: "UsageError", members: 1, keys: ["k"] });
  await in_(() => client.signOut());
  assert.deepEqual(shown, { texts: [], error: null, members: 0, keys: [] });
  await in_(async () => {
    on.gateway.room("r1").caches.get("snapshot")?.delete("k");
    client.setToken("bob");
    client.connect();
    await client.connected();
  });
  await in_(() => client.publish("edits", "of bob"));
  assert.deepEqual(shown["texts"], ["of bob"]);
  assert.equal(shown["members"], 1);
  assert.deepEqual(shown["keys"], []);
  await in_(() => root?.unmount());
  client.close();
});
