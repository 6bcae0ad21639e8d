/**
 * The whiteboard against a gateway in the page's own memory: nothing leaves the page, and two people who do not exist
 * draw along. To try it, and for the tests of the page that want no server.
 */
import { FelixClient } from "../../../src/index.js";
import { FakeGateway } from "../../../src/fake/index.js";
import { App } from "./app.js";
import { writeEdit } from "./edits.js";
import { scribble } from "./demo_strokes.js";
import { boardInAddress } from "./page.js";
import { People } from "./people.js";
import { ALIAS } from "./room.js";
const gateway = new FakeGateway({
    field: "board",
    streams: [{ alias: ALIAS.edits }, { alias: ALIAS.cursors, durable: false, stampSender: true }],
    caches: [{ alias: ALIAS.presence, ttlS: 15 }, { alias: ALIAS.snapshot }],
    counters: [{ alias: ALIAS.counter }],
});
const webSocket = gateway.WebSocket;
const board = boardInAddress();
const parameters = new URLSearchParams(location.search);
function put(edit) {
    gateway.room(board).streams.get(ALIAS.edits)?.append(new TextEncoder().encode(JSON.stringify(writeEdit(edit))));
}
function other(name, speed) {
    const client = new FelixClient({ url: "ws://nowhere/ws", scope: { field: "board", value: board }, token: name, webSocket });
    client.connect();
    const people = new People(client, name, () => undefined, () => undefined);
    let angle = Math.random() * 6;
    setInterval(() => {
        angle += 0.05 * speed;
        people.point({ x: Math.cos(angle) * 260 + speed * 40, y: Math.sin(angle * 1.7) * 140 }, null);
    }, 60);
}
for (const edit of scribble(parameters.get("edits") ?? "sketch"))
    put(edit);
for (const [at, name] of (parameters.get("people") ?? "Ada Lovelace,Kofi Mensah").split(",").filter((one) => one !== "").entries())
    other(name, at + 1);
const app = new App();
app.enter({ name: parameters.get("name") ?? "You", client: { url: "ws://nowhere/ws", token: "you", webSocket } });
Object.assign(window, { demo: { app, gateway, put } });
