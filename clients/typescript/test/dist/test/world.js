/** A fake gateway, its clock, and clients on it: what most tests begin with. */
import { FelixClient } from "@felix/web";
import { FakeGateway, FakeHost, ManualClock, settle } from "@felix/web/fake";
export function world(options = {}) {
    const clock = new ManualClock();
    const gateway = new FakeGateway({
        field: "room",
        streams: [{ alias: "edits" }, { alias: "cursors", durable: false, stampSender: true }],
        caches: [{ alias: "presence", ttlS: 15 }, { alias: "snapshot" }],
        counters: [{ alias: "seq" }],
        clock,
        ...options,
    });
    let seed = 1;
    return {
        clock,
        gateway,
        client(given = {}) {
            const host = gateway.host(seed++);
            const client = new FelixClient({ url: "ws://gateway/ws", scope: { field: "room", value: "r1" }, token: "ann", host, ...given });
            const states = [];
            client.on("state", (change) => states.push(change));
            return { client, host, states };
        },
    };
}
/** A client that stands. */
export async function connected(on, options = {}) {
    const made = on.client(options);
    made.client.connect();
    await settle();
    return made;
}
/** Reads `count` events. */
export async function take(subscription, count) {
    const events = [];
    while (events.length < count) {
        const { done, value } = await subscription.next();
        if (done === true)
            break;
        events.push(value);
    }
    return events;
}
/** A JSON Web Token of nobody's making that expires at `expires` (seconds since 1970). */
export function jwt(claims) {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
    return `${part({ alg: "none" })}.${part(claims)}.`;
}
