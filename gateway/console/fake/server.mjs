// The console's API from memory, for work on the page and for its tests without a node: `node fake/server.mjs [port]`.
// The shapes are those of docs/console.md; nothing is kept, and everybody may do everything.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { extname, join, normalize } from "node:path";

const HERE = fileURLToPath(new URL("..", import.meta.url));
const TYPES = { ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8" };
const POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'";
const born = Date.now();

const b64 = (text) => Buffer.from(text).toString("base64");
const bytes = (text) => (text === null ? null : { base64: b64(text), bytes: Buffer.byteLength(text), cut: false });

/** What stands at an offset: the same every time it is asked for. */
function recordOf(stream, shard, offset) {
  const cities = ["Ljubljana", "Porto", "Tromsø", "Kraków", "Nagoya"];
  const value = stream.stream === "telemetry"
    ? Buffer.from([0x08, offset & 255, 0x12, 7, 0xff, 0x00, 0x80, offset % 7]).toString("base64")
    : b64(JSON.stringify({ order: 10_000 + offset, customer: `cust-${offset % 37}`, city: cities[offset % 5], total: ((offset * 7919) % 20000) / 100, paid: offset % 3 !== 0 }));
  const raw = Buffer.from(value, "base64");
  return {
    shard, offset, timestamp_ms: born - (stream.ends[shard] - offset) * 40, key: stream.stream === "telemetry" ? null : bytes(`cust-${offset % 37}`),
    value: stream.evil?.[offset] !== undefined ? bytes(stream.evil[offset]) : { base64: value, bytes: raw.length, cut: false },
    headers: offset % 2 === 0 ? [{ name: "source", value: bytes("web") }, { name: "trace", value: bytes(`t-${offset}`) }] : [], publisher: null,
  };
}

const xss = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>";
const make = (stream, shards, speed, more = {}) => ({ stream, ends: Array.from({ length: shards }, (_, i) => 4000 + i * 731 + speed * 3), speed, incarnation: 12, ...more });
const STREAMS = [
  make("audit-log", 1, 0.4, { retention_ms: 90 * 86_400_000 }), make("clicks", 8, 420, { retention_bytes: 10 * 2 ** 30 }), make("cursors", 1, 60, { durable: false }),
  make("invoices", 2, 1.5), make("orders", 3, 23, { retention_ms: 7 * 86_400_000 }), make("small", 1, 0, { ends: [100], evil: { 60: xss } }),
  make("telemetry", 4, 150, { retention_ms: 86_400_000 }), make("users", 1, 0.2, { compacted: true }),
];
const CACHES = new Map([["sessions", new Map()], ["config", new Map()], ["presence", new Map()]]);
let version = 400;
for (let i = 0; i < 140; i += 1) CACHES.get("sessions").set(`user-${String(i).padStart(3, "0")}`, [{ version: (version += 3), value: JSON.stringify({ name: `Person ${i}`, seen: i * 17 }) }]);
CACHES.get("config").set("theme", [{ version: 3, value: "\"light\"" }, { version: 9, value: null }, { version: 17, value: "\"dark\"" }]);
CACHES.get("config").set("limits", [{ version: 5, value: "{\"rate\": 100}" }]);
const COUNTERS = new Map([["page-views", 48211]]);
const GROUPS = [["orders", "billing", [120, 4, 0]], ["orders", "shipping", [0, 0, 0]], ["clicks", "sessionizer", [9100, 12000, 8000, 15020, 11, 9920, 10400, 7000]], ["invoices", "mailer", [3, 0]]]
  .map(([stream, group, lags]) => ({ stream, group, lags, letters: stream === "orders" && group === "billing" ? [57, 91, 130, 402] : [] }));

const live = () => STREAMS.forEach((one) => one.ends.forEach((_, i) => (one.ends[i] += Math.round((one.speed / one.ends.length) * (0.6 + Math.random() * 0.8)))));
setInterval(live, 1000).unref();

const shardsOf = (s) => s.ends.map((end, shard) => ({ shard, start: s.retention_bytes ? 1200 : 0, end, bytes: (end * 173) | 0, error: null }));
const streamItem = (s) => ({
  stream: s.stream, incarnation: s.incarnation, durable: s.durable !== false, compacted: s.compacted === true, shards: shardsOf(s), may_publish: true, may_subscribe: true, may_manage: true,
  max_record_bytes: 2 ** 20, retention_ms: s.retention_ms ?? null, retention_bytes: s.retention_bytes ?? null,
});
const groupItem = (g) => {
  const s = STREAMS.find((one) => one.stream === g.stream);
  return { stream: g.stream, group: g.group, shards: s.ends.map((tail, shard) => ({ shard, committed: tail - g.lags[shard], tail, lag: g.lags[shard], in_flight: g.lags[shard] > 0 ? 2 : 0, owed: 0, dead_letters: shard === 0 ? g.letters.length : 0 })) };
};
const entryOf = (key, versions) => {
  const last = versions?.at(-1);
  return { key, value: last?.value == null ? null : bytes(last.value), version: last?.value == null ? null : last.version, expires_at_ms: key === "user-001" ? Date.now() + 1_800_000 : null };
};

class Refusal extends Error {
  constructor(status, code, message, more = {}) {
    super(message);
    Object.assign(this, { status, body: { code, message, retry: "never", request_id: `req-${Math.random().toString(36).slice(2, 10)}`, ...more } });
  }
}
const known = (list, test, what) => list.find(test) ?? (() => { throw new Refusal(404, "not_found", `there is no ${what}`); })();

function place(s, shard, text) {
  if (text === "earliest") return shardsOf(s)[shard].start;
  if (text === "latest") return s.ends[shard];
  if (/^\d+$/.test(text)) return Number(text);
  const back = /^-(\d+)(s|m|h|d)$/.exec(text);
  const at = back ? Date.now() - Number(back[1]) * { s: 1e3, m: 6e4, h: 36e5, d: 864e5 }[back[2]] : Date.parse(text);
  if (Number.isNaN(at)) throw new Refusal(400, "invalid", `${text} is no offset and no time`);
  return Math.max(shardsOf(s)[shard].start, Math.min(s.ends[shard], Math.ceil(s.ends[shard] - (born - at) / 40)));
}

function records(s, query) {
  const shard = Number(query.get("shard") ?? 0);
  const { start, end } = shardsOf(s)[shard] ?? (() => { throw new Refusal(400, "invalid", `stream ${s.stream} has no shard ${shard}`); })();
  const count = Number(query.get("count") ?? 50);
  const before = query.get("before");
  let from = before === null ? place(s, shard, query.get("from") ?? "earliest") : Math.max(start, (before === "end" ? end : Number(before)) - count);
  const until = before === null ? Math.min(end, from + count) : Math.min(end, before === "end" ? end : Number(before));
  if (from > end) throw new Refusal(409, "offset_in_future", `offset ${from} does not exist yet; the next is ${end}`, { number: end });
  if (from < start) throw new Refusal(409, "offset_too_old", `offset ${from} is gone; the oldest retained is ${start}`, { number: start });
  return { shard, from, start, end, records: Array.from({ length: until - from }, (_, i) => recordOf(s, shard, from + i)), next: until < end ? until : null, previous: from > start ? from : null };
}

const says = (record, q) => JSON.stringify([record.key && Buffer.from(record.key.base64, "base64").toString(), record.value && Buffer.from(record.value.base64, "base64").toString(), record.headers.map((h) => h.name + Buffer.from(h.value.base64, "base64"))]).toLowerCase().includes(q.toLowerCase());

function answer(method, path, query, body) {
  const [a, space, kind, name, more, last] = path;
  if (a === "me") {
    return { principal: "9f2c81d7e6b54a0f8d1c3b2a4958675fe0d1c2b3a4958675f0e1d2c3b4a59687", tenant: "acme", name: "Ada Lovelace", roles: ["role:writers", "role:operators"], actor: "sa:gateway", session: "s-7f31", expires_at_ms: Date.now() + 840_000, via: "session", writable: true, namespaces: ["default", "eu-west"], version: "0.1.0",
      grants: [["stream.publish", "stream:acme/default/*"], ["stream.subscribe", "stream:acme/*/*"], ["stream.manage", "stream:acme/default/*"], ["cache.read", "cache:acme/default/*"], ["cache.write", "cache:acme/default/sessions"], ["group.manage", "group:acme/default/orders/*"]].map(([action, object]) => ({ action, object })), actions: ["stream.publish", "stream.subscribe", "stream.manage", "cache.read", "cache.write", "group.manage"] };
  }
  if (a === "explain") return query.get("action") === "stream.publish" ? { allowed: true, because: "the token grants stream.publish:stream:acme/default/*", near: [] } : { allowed: false, because: `no permission of the token is about ${query.get("action")}`, near: [{ grant: "stream.subscribe:stream:acme/*/*", lacks: "it is for another action" }] };
  if (a === "brokers") return { items: [{ address: "127.0.0.1:5000", node: "node-1", entry: true, ok: true, detail: null }], next: null };
  if (a === "kafka") return { items: [{ group: "warehouse", kind: "classic", state: "Stable", protocol: "range", members: [{ member: "c-1", client: "rdkafka", host: "10.0.0.7" }], offsets: [{ namespace: "default", stream: "orders", shard: 0, offset: 3800, end: STREAMS[4].ends[0] }] }], next: null };
  const empty = space !== "default";
  if (kind === "streams" && name === undefined) return { items: empty ? [] : STREAMS.map(streamItem), next: null };
  if (kind === "streams") {
    const s = known(empty ? [] : STREAMS, (one) => one.stream === name, `stream ${name} in ${space}`);
    if (more === undefined) return { ...streamItem(s), acknowledged_means: s.durable === false ? "the broker has it in memory; it does not survive the end of the broker" : "flushed to disk: it survives a crash and a power cut", settings: { sync: "on_commit", consistency: "leader", replication_factor: 1, routing: "jump_hash", cleanup: s.compacted ? "compact" : "delete" } };
    if (more === "records" && method === "POST") return { shard: 0, offset: s.ends[0]++ };
    if (more === "records" && last !== undefined) return recordOf(s, Number(query.get("shard") ?? 0), Number(last));
    if (more === "records") return records(s, query);
    if (more === "search") {
      const shard = Number(query.get("shard") ?? 0);
      const from = place(s, shard, query.get("from"));
      const until = Math.min(s.ends[shard], from + Number(query.get("most")));
      return { matches: Array.from({ length: until - from }, (_, i) => recordOf(s, shard, from + i)).filter((record) => says(record, query.get("q"))).slice(0, 200), scanned: until - from, next: until < s.ends[shard] ? until : null, end: s.ends[shard] };
    }
  }
  if (kind === "caches" && name === undefined) return { items: empty ? [] : [...CACHES.keys()].map((cache) => cacheItem(cache)), next: null };
  if (kind === "caches") return cacheAnswer(method, name, more, query, body);
  if (kind === "groups" && name === undefined) return { items: empty ? [] : GROUPS.filter((g) => (query.get("stream") ?? g.stream) === g.stream).map(groupItem), next: null };
  if (kind === "groups") return groupAnswer(method, path.slice(3), query, body);
  throw new Refusal(404, "not_found", "no such path");
}

const cacheItem = (cache) => ({ cache, settings: { shards: 1, durable: cache !== "presence", sync: "periodic", replication_factor: 1 }, may_read: true, may_write: true, may_add: true });

function cacheAnswer(method, name, more, query, body) {
  const entries = CACHES.get(name) ?? known([], () => false, `cache ${name}`);
  if (more === undefined) return cacheItem(name);
  if (more === "keys") {
    const all = [...entries].filter(([key, all]) => key.startsWith(query.get("prefix") ?? "") && key > (query.get("after") ?? "") && all.at(-1).value !== null).sort(([x], [y]) => (x < y ? -1 : 1));
    return { items: all.slice(0, 100).map(([key, versions]) => entryOf(key, versions)), next: all.length > 100 ? all[99][0] : null };
  }
  if (more === "counter") {
    if (method === "POST") COUNTERS.set(body.key, (COUNTERS.get(body.key) ?? 0) + body.delta);
    const sum = COUNTERS.get(method === "POST" ? body.key : query.get("key"));
    return { value: sum === undefined ? null : String(sum) };
  }
  const key = method === "PUT" ? body.key : query.get("key");
  const versions = entries.get(key) ?? [];
  const now = entryOf(key, versions);
  if (more === "history") return { changes: versions.map((one) => ({ key, value: bytes(one.value), version: one.version, shard: 0, expires_at_ms: null, retained: false })), compacted: false };
  if (method === "PUT" || method === "DELETE") {
    const wanted = method === "PUT" ? body.if_version : query.get("if_version") === null ? now.version : Number(query.get("if_version"));
    if (wanted !== now.version) throw new Refusal(409, "version_mismatch", `the entry has version ${now.version}, not ${wanted}`, { number: now.version });
    entries.set(key, [...versions, { version: (version += 1), value: method === "PUT" ? Buffer.from(body.value, "base64").toString() : null }]);
    return { version };
  }
  return now;
}

function groupAnswer(method, [stream, group, what, verb], query, body) {
  const g = known(GROUPS, (one) => one.stream === stream && one.group === group, `group ${group} of ${stream}`);
  const s = STREAMS.find((one) => one.stream === stream);
  if (what === undefined) return groupItem(g);
  if (what === "plan") return { moves: groupItem(g).shards.filter((one) => query.get("shard") === null || one.shard === Number(query.get("shard"))).map((one) => ({ shard: one.shard, current: one.committed, start: 0, end: one.tail, target: place(s, one.shard, query.get("to")), moved: false })) };
  if (what === "seek") {
    return { moves: body.offsets.map(({ shard, offset }) => {
      const current = s.ends[shard] - g.lags[shard];
      g.lags[shard] = s.ends[shard] - offset;
      return { shard, current, start: 0, end: s.ends[shard], target: offset, moved: true };
    }) };
  }
  if (verb === undefined) return { items: Number(query.get("shard")) === 0 ? g.letters.map((offset) => ({ ...recordOf(s, 0, offset), attempts: 5, reason: "TypeError: cannot read total of undefined (billing/worker.js:41)", set_aside_at_ms: Date.now() - 7_200_000 })) : [], next: null };
  const gone = g.letters.filter((one) => body.offsets.includes(one));
  g.letters = g.letters.filter((one) => !body.offsets.includes(one));
  return { count: gone.length, missing: body.offsets.filter((one) => !gone.includes(one)) };
}

function events(response, path, query) {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  const s = STREAMS.find((one) => one.stream === path[3]);
  let at = s?.ends[0] ?? 0;
  const tell = () => {
    if (path[4] === "watch") return response.write(`event: changes\ndata: ${JSON.stringify([{ key: "user-007", value: bytes(`{"seen":${at}}`), version: (at += 1), shard: 0, expires_at_ms: null, retained: false }])}\n\n`);
    const list = Array.from({ length: Math.max(1, Math.min(30, s.speed / 3)) | 0 }, () => recordOf(s, 0, at++)).map((record) => ({ ...record, timestamp_ms: Date.now() }));
    response.write(`event: records\nid: 0:${at}\ndata: ${JSON.stringify(list)}\n\n`);
  };
  tell();
  const timer = setInterval(tell, 300);
  response.on("close", () => clearInterval(timer));
}

async function file(response, path) {
  const name = normalize(path.slice("/console/".length));
  for (const dir of ["public", "dist"]) {
    try {
      const data = await readFile(join(HERE, dir, name === "." ? "index.html" : name));
      response.writeHead(200, { "content-type": TYPES[extname(name)] ?? TYPES[".html"], "content-security-policy": POLICY });
      return response.end(data);
    } catch {
      continue;
    }
  }
  response.writeHead(200, { "content-type": TYPES[".html"], "content-security-policy": POLICY });
  return response.end(await readFile(join(HERE, "public/index.html")));
}

export function serve(port = 0) {
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://fake");
    if (!url.pathname.startsWith("/console/api/")) return void file(response, url.pathname);
    const path = url.pathname.slice("/console/api/".length).split("/").map(decodeURIComponent);
    if (path[4] === "tail" || path[4] === "watch") return events(response, path, url.searchParams);
    let text = "";
    request.on("data", (chunk) => (text += chunk));
    request.on("end", () => {
      try {
        const result = answer(request.method, path, url.searchParams, text === "" ? null : JSON.parse(text));
        response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(result));
      } catch (error) {
        const body = error instanceof Refusal ? error.body : { code: "fault", message: String(error?.stack ?? error), retry: "never", request_id: "fake" };
        response.writeHead(error.status ?? 500, { "content-type": "application/json" }).end(JSON.stringify(body));
      }
    });
  });
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server)));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const server = await serve(Number(process.argv[2] ?? 0));
  console.log(`http://127.0.0.1:${server.address().port}/console/`);
}
