/** Groups of the Kafka protocol, to look at: their members coordinate themselves. */

import { get } from "../api.js";
import { commandLine, quote } from "../command.js";
import { fill, h } from "../dom.js";
import { count } from "../format.js";
import { empty } from "../overlay.js";
import { badge, card, heading, poll, skeleton, table } from "../parts.js";
import { type Context, type View } from "../router.js";
import type { KafkaGroup, Page } from "../types.js";

export const kafka = (params: Readonly<Record<string, string>>): View => ({
  title: "Kafka groups",
  show: (context) => show(params["group"] ?? "", context),
});

async function show(only: string, { root, signal }: Context): Promise<void> {
  const list = h("div", { class: "view" }, skeleton(4));
  root.append(heading("Kafka protocol", only === "" ? "Groups" : only), list, commandLine(() => `kafka-consumer-groups.sh --bootstrap-server HOST:9092 ${only === "" ? "--all-groups" : `--group ${quote(only)}`} --describe`));
  await poll(signal, 4000, root, async () => {
    const page = await get<Page<KafkaGroup>>(["kafka", "groups"], {}, signal);
    const shown = page.items.filter((group) => only === "" || group.group === only);
    fill(list, shown.length === 0 ? empty("No Kafka groups", "Consumers of the Kafka protocol that join a group through the Kafka listener appear here, read-only.") : shown.map(one));
  });
}

function one(group: KafkaGroup): HTMLElement {
  const behind = (row: KafkaGroup["offsets"][number]) => (row.end === null ? "–" : count(Math.max(0, row.end - row.offset)));
  return card(
    [group.group, badge(group.state, group.state === "Stable" ? "good" : ""), badge(group.kind)],
    h("p", { class: "muted" }, group.members.length === 0 ? "no members" : group.members.map((member) => `${member.client} at ${member.host}`).join(", ")),
    group.offsets.length === 0
      ? h("p", { class: "muted" }, "no positions were committed")
      : table(
          [
            { name: "Stream", kind: "wide", cell: (row: KafkaGroup["offsets"][number]) => `${row.namespace}/${row.stream}` },
            { name: "Shard", kind: "num", cell: (row) => String(row.shard) },
            { name: "Committed", kind: "num", cell: (row) => count(row.offset) },
            { name: "End", kind: "num", cell: (row) => (row.end === null ? "–" : count(row.end)) },
            { name: "Behind", kind: "num", cell: behind },
          ],
          group.offsets,
        ),
  );
}
