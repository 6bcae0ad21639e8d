import { get } from "../api.js";
import { h } from "../dom.js";
import { skeleton, badge, heading, tabs } from "../parts.js";
import { path } from "../router.js";
import { kinds } from "./streams.js";
const TABS = [
    ["browse", "Records"],
    ["tail", "Live"],
    ["publish", "Publish"],
    ["groups", "Groups"],
    ["settings", "Shards and settings"],
];
export const stream = (params) => {
    const name = params["stream"] ?? "";
    return { title: `${name} · stream`, show: (context) => show(params["ns"] ?? "default", name, context) };
};
async function show(space, name, context) {
    const { root, params, signal } = context;
    const wanted = params["tab"] ?? "";
    const tab = TABS.some(([id]) => id === wanted) ? wanted : "browse";
    const body = h("div", { class: "view" }, skeleton(8));
    const head = heading("Stream", name);
    root.append(head, tabs(TABS.map(([id, title]) => ({ id, name: title, href: id === "browse" ? path(space, "streams", name) : path(space, "streams", name, id) })), tab), body);
    const found = await get(["ns", space, "streams", name], {}, signal);
    head.querySelector("h1")?.append(...kinds(found), badge(found.shards.length === 1 ? "1 shard" : `${found.shards.length} shards`));
    body.replaceChildren();
    const part = { ...context, root: body, space, stream: found };
    if (tab === "browse")
        await (await import("./stream_browse.js")).browse(part);
    else if (tab === "tail")
        await (await import("./stream_tail.js")).tail(part);
    else if (tab === "publish")
        (await import("./stream_publish.js")).publish(part);
    else if (tab === "groups")
        await (await import("./groups.js")).groupsOf(part);
    else
        await (await import("./stream_settings.js")).settings(part);
}
