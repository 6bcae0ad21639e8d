/** What a stream promises, and how its shards are. */

import { get } from "../api.js";
import { bars, chart, spark } from "../charts.js";
import { commandLine, felixctl } from "../command.js";
import { fill, h } from "../dom.js";
import { bytes, count, rate } from "../format.js";
import { badge, card, facts, poll, table } from "../parts.js";
import { link } from "../router.js";
import { rates } from "../state.js";
import type { Shard, StreamFull } from "../types.js";
import type { Part } from "./stream.js";
import { kept } from "./streams.js";

export async function settings({ root, space, stream, signal }: Part): Promise<void> {
  const picture = h("div", {});
  const sizes = h("div", {});
  const shards = h("div", {});
  root.append(
    h("p", { class: "sentence" }, "An acknowledgement means: ", stream.acknowledged_means, "."),
    h("div", { class: "grid wide-first" }, card("Records a second", picture), card("Bytes by shard", sizes)),
    shards,
    card("Settings", known(stream)),
    commandLine(() => felixctl(space, "stream", "info", stream.stream)),
  );
  await poll(signal, 2000, root, async () => {
    const now = await get<StreamFull>(["ns", space, "streams", stream.stream], {}, signal);
    rates.take(space, [now], Date.now());
    fill(picture, chart(rates.of(space, stream.stream), `records a second of ${stream.stream}`, "records/s"));
    fill(sizes, bars(now.shards.map((shard) => ({ name: `shard ${shard.shard}`, value: shard.bytes, text: bytes(shard.bytes) })), "bytes by shard"));
    fill(shards, shardTable(space, stream.stream, now.shards));
  });
}

function shardTable(space: string, stream: string, rows: Shard[]): HTMLElement {
  return table<Shard>(
    [
      { name: "Shard", cell: (shard) => [h("a", { href: link([space, "streams", stream], { shard: shard.shard }) }, String(shard.shard)), shard.error === null ? null : [" ", badge(shard.error, "bad")]] },
      { name: "Oldest", kind: "num", cell: (shard) => count(shard.start) },
      { name: "Next", kind: "num", cell: (shard) => count(shard.end) },
      { name: "Records", kind: "num", cell: (shard) => count(shard.end - shard.start) },
      { name: "Size", kind: "num", cell: (shard) => bytes(shard.bytes) },
      { name: "Last two minutes", kind: "pic", cell: (shard) => spark(rates.ofShard(space, stream, shard.shard), `rate of shard ${shard.shard}`) },
      { name: "Rate", kind: "num", cell: (shard) => rate(rates.ofShard(space, stream, shard.shard).last) },
    ],
    rows,
    (shard) => link([space, "streams", stream], { shard: shard.shard }),
  );
}

function known(stream: StreamFull): HTMLElement {
  const rows: [string, string][] = [
    ["kept on", stream.durable ? "disk" : "memory"],
    ["kept for", kept(stream)],
    ["largest record", bytes(stream.max_record_bytes)],
    ["you may", [stream.may_subscribe ? "subscribe" : "", stream.may_publish ? "publish" : "", stream.may_manage ? "manage" : ""].filter((word) => word !== "").join(", ")],
  ];
  if (stream.settings === null) return h("div", {}, facts(rows), h("p", { class: "muted" }, "The rest is shown to those who manage the stream."));
  const more = Object.entries(stream.settings).map(([name, value]) => [name.replaceAll("_", " "), value === null ? "–" : String(value)] as [string, string]);
  return facts([...rows, ...more]);
}
