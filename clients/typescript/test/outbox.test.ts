import assert from "node:assert/strict";
import { test } from "node:test";
// Of the sources, as the example has them: a class of the package would be another one.
import { OutcomeUnknownError, RateLimitedError } from "../src/errors.js";
import type { FelixClient } from "../src/client.js";
import { settle } from "@felix/web/fake";
import { readEdit } from "../examples/whiteboard/src/edits.js";
import type { Edit } from "../examples/whiteboard/src/edits.js";
import { Outbox } from "../examples/whiteboard/src/outbox.js";

const line = (id: string): Edit => ({ kind: "shape", form: "line", id, by: "ann", n: 0, color: 0, size: 40, x0: 0, y0: 0, x1: 10, y1: 10 });
const undo = (id: string, target: string): Edit => ({ kind: "undo", id, by: "ann", n: 0, target });

/** A client that publishes as the test says. */
function publisher(): { client: FelixClient; sent: string[]; answers: Map<string, { resolve(): void; reject(error: Error): void }> } {
  const sent: string[] = [];
  const answers = new Map<string, { resolve(): void; reject(error: Error): void }>();
  const publish = (_stream: string, payload: object): Promise<number> => {
    const id = readEdit(payload)?.id ?? "?";
    sent.push(id);
    return new Promise((resolve, reject) => answers.set(id, { resolve: () => resolve(0), reject }));
  };
  return { client: { publish } as unknown as FelixClient, sent, answers };
}

test("what takes an edit back goes out after that edit is in the log, for before it it would count for nothing", async () => {
  const { client, sent, answers } = publisher();
  const outbox = new Outbox(client, "edits", () => undefined);
  for (const edit of [line("a"), line("b"), undo("c", "b"), line("d")]) outbox.add(edit);
  assert.deepEqual(sent, ["a", "b"]);
  answers.get("b")?.reject(new RateLimitedError("too many bytes", 1));
  answers.get("a")?.resolve();
  outbox.confirm("a");
  await new Promise((passed) => setTimeout(passed, 20));
  assert.deepEqual(sent, ["a", "b", "b"], "the line again, and nothing before it");
  answers.get("b")?.resolve();
  await settle();
  outbox.confirm("b");
  assert.deepEqual(sent, ["a", "b", "b", "c", "d"]);
  assert.deepEqual(outbox.pending.map(({ id }) => id), ["c", "d"]);
});

test("edits whose fate is unknown go out again in the order in which they were drawn", async () => {
  const { client, sent, answers } = publisher();
  const outbox = new Outbox(client, "edits", () => undefined);
  for (const id of ["a", "b", "c"]) outbox.add(line(id));
  for (const id of ["c", "a", "b"]) answers.get(id)?.reject(new OutcomeUnknownError("publish"));
  sent.length = 0;
  await settle();
  assert.deepEqual([...sent].sort(), ["a", "b", "c"]);
  for (const id of ["a", "b", "c"]) outbox.confirm(id);
  assert.equal(outbox.pending.length, 0);
});

test("what was not sent waits for the same person on the same board, and for nobody else", async () => {
  const kept = new Map<string, string>();
  const storage = {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => void kept.set(name, value),
    removeItem: (name: string) => void kept.delete(name),
  };
  Object.assign(globalThis, { sessionStorage: storage });
  const { keepUnsent, takeUnsent } = await import("../examples/whiteboard/src/unsent.js");
  assert.ok(keepUnsent("plans", "ann", [line("a"), undo("b", "a")]));
  assert.deepEqual(takeUnsent("other", "ann"), []);
  assert.deepEqual(takeUnsent("plans", "ann").map(({ id }) => id), ["a", "b"]);
  assert.deepEqual(takeUnsent("plans", "ann"), [], "once");
  keepUnsent("plans", "ann", [line("a")]);
  assert.deepEqual(takeUnsent("plans", "bob"), []);
  assert.deepEqual(takeUnsent("plans", "ann"), [], "somebody else was here");
  kept.set("felix.whiteboard.unsent", "no JSON");
  assert.deepEqual(takeUnsent("plans", "ann"), []);
  storage.setItem = () => { throw new DOMException("full", "QuotaExceededError"); };
  assert.equal(keepUnsent("plans", "ann", [line("a")]), false);
});
