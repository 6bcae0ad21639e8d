import assert from "node:assert/strict";
import { test } from "node:test";
import { fromBase64, toBase64 } from "@felix/web";
import { settle } from "@felix/web/fake";
import { connected, world } from "./world.js";
test("a message of an unknown type is passed over", async () => {
    const on = world();
    const { client } = await connected(on);
    on.gateway.inject('{"type":"from_the_future","stream":17}');
    on.gateway.inject('{"type":"error","code":"unsupported","message":"ping is not known"}');
    await settle();
    assert.equal(client.state, "connected");
    assert.equal(await client.publish("edits", "still here"), 0);
});
const MALFORMED = [
    "", "{", "null", "17", "[]", "{}", '{"type":7}', '{"type":"event"}', '{"type":"event","stream":"edits","offset":-1,"payload":""}',
    '{"type":"event","stream":"edits","offset":1.5,"payload":""}', '{"type":"event","stream":"edits","offset":1,"payload":"***"}',
    '{"type":"event","stream":"edits","offset":9007199254740993,"payload":""}', '{"type":"subscribed","stream":null}',
    '{"type":"ack"}', '{"type":"ack","id":"1"}', '{"type":"cache_entries","cache":"snapshot","entries":{}}',
    '{"type":"cache_entries","cache":"snapshot","entries":[7]}', '{"type":"error"}', '{"type":"counter","id":1,"value":"x"}',
    '{"type":"hello","protocol":2}', new ArrayBuffer(0), new ArrayBuffer(31), new Uint8Array(40).buffer,
    new Uint8Array([1, 200, ...new Array(40).fill(0)]).buffer, 17,
];
for (const frame of MALFORMED) {
    const name = typeof frame === "string" ? JSON.stringify(frame).slice(0, 60) : frame instanceof ArrayBuffer ? `${frame.byteLength} bytes` : typeof frame;
    test(`a malformed frame is a typed error and a new connection: ${name}`, async () => {
        const on = world();
        const { client } = await connected(on);
        const told = [];
        client.on("protocolError", (error) => told.push(error.code));
        on.gateway.inject(frame);
        assert.deepEqual(told, ["protocol"]);
        assert.equal(client.state, "waiting");
        await on.clock.advance(5_000);
        assert.equal(client.state, "connected");
        assert.equal(await client.publish("edits", "x"), 0);
    });
}
test("no frame that is a good one with something changed breaks the client", async () => {
    const good = [
        '{"type":"hello","protocol":1,"features":["binary"],"namespace":"default","room":"r1","cache_ttl_ms":{"presence":15000},"streams":["edits"]}',
        '{"type":"event","stream":"edits","offset":3,"payload":"AAAA","skipped_before":2}',
        '{"type":"subscribed","stream":"edits","start_offset":0,"live_offset":0,"sub":1}',
        '{"type":"cache_entries","cache":"snapshot","entries":[{"key":"a","payload":"AAAA","expires_in_ms":null}]}',
        '{"type":"cache_change","cache":"snapshot","key":"a","payload":null,"expires_in_ms":5}',
        '{"type":"error","code":"trimmed","message":"m","stream":"edits","oldest":5}',
        '{"type":"error","code":"subscription_ended","message":"m","stream":"edits"}',
        '{"type":"error","code":"watch_failed","message":"m","cache":"snapshot"}',
        '{"type":"records","id":1,"records":[{"offset":1,"payload":"AAAA"}],"next_offset":2}',
        '{"type":"refreshed","expires_in_ms":500}', '{"type":"going_away","reconnect_after_ms":5}',
    ];
    let seed = 3;
    const dice = (below) => {
        seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
        return Math.floor((seed / 2 ** 32) * below);
    };
    const on = world();
    const { client } = await connected(on);
    client.subscribe("edits", { onEvent: () => undefined });
    client.cache("snapshot").onChange(() => undefined);
    let refused = 0;
    client.on("protocolError", () => { refused += 1; });
    for (let round = 0; round < 3_000; round += 1) {
        const characters = [...(good[dice(good.length)] ?? "")];
        for (let change = dice(3); change >= 0; change -= 1) {
            const at = dice(characters.length);
            if (dice(2) === 0)
                characters.splice(at, dice(6));
            else
                characters[at] = String.fromCharCode(32 + dice(95));
        }
        on.gateway.inject(characters.join(""));
        if (client.state !== "connected")
            await on.clock.advance(21_000);
    }
    assert.ok(refused > 500, `${refused} frames were refused`);
    await on.clock.advance(60_000);
    assert.equal(client.state, "connected");
    client.close();
    assert.equal(on.clock.waiting, 0);
});
test("base64 is standard, padded, and nothing else", () => {
    for (let length = 0; length < 300; length += 1) {
        const bytes = Uint8Array.from({ length }, (_, at) => (at * 37) & 255);
        const encoded = toBase64(bytes);
        assert.equal(encoded, Buffer.from(bytes).toString("base64"));
        assert.deepEqual(fromBase64(encoded), bytes);
    }
    for (const bad of ["A", "AA", "AAA", "A===", "-_-_", "\u00e9AAA"])
        assert.equal(fromBase64(bad), null, bad);
    const large = new Uint8Array(300_000).fill(7);
    assert.deepEqual(fromBase64(toBase64(large)), large);
});
