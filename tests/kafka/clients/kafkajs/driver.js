// Does with kafkajs what a line on standard input says, and answers with a line: see clients/remote.py.
"use strict";

const { createRequire } = require("node:module");
const { readFileSync } = require("node:fs");
const readline = require("node:readline");

const from = createRequire(`${process.env.FELIX_NODE_MODULES}/`);
const kafkajs = from("kafkajs");
const { CompressionTypes, CompressionCodecs, ConfigResourceTypes, Kafka, logLevel } = kafkajs;

async function addCodecs() {
  CompressionCodecs[CompressionTypes.Snappy] = from("kafkajs-snappy");
  const lz4 = from("lz4js");
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
  });
  const { ZstdCodec } = from("zstd-codec");
  const zstd = await new Promise((done) => ZstdCodec.run((codec) => done(new codec.Simple())));
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
  });
}

const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

function client(at) {
  const secret = () => (at.secret_file ? readFileSync(at.secret_file, "utf8").trim() : at.secret);
  const sasl = {
    PLAIN: () => ({ mechanism: "plain", username: at.user, password: secret() }),
    OAUTHBEARER: () => ({
      mechanism: "oauthbearer",
      oauthBearerProvider: async () => ({ value: secret(), extensions: at.extensions }),
    }),
  }[at.mechanism];
  return new Kafka({
    brokers: [at.bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { retries: at.mechanism ? 0 : 5 },
    ...(sasl && { sasl: sasl() }),
    ...(at.ca && { ssl: { ca: [readFileSync(at.ca)] } }),
  });
}

async function using(thing, work) {
  await thing.connect();
  try {
    return await work(thing);
  } finally {
    await thing.disconnect();
  }
}

const admin = (at, work) => using(client(at).admin(), work);
const string = (bytes) => (bytes === null || bytes === undefined ? null : bytes.toString());

function shown({ offset, key, value, headers, timestamp }) {
  const pairs = Object.entries(headers ?? {}).flatMap(([name, values]) =>
    [values].flat().map((one) => [name, string(one)]),
  );
  return { offset: Number(offset), key: string(key), value: string(value), headers: pairs, time: Number(timestamp) };
}

function message({ key, value, headers, time, partition }) {
  const named = {};
  for (const [name, one] of headers ?? []) (named[name] ??= []).push(one);
  return { key: key ?? null, value, headers: named, partition, ...(time && { timestamp: String(time) }) };
}

const members = new Map();
const senders = new Map();

// A consumer of a group, and what has happened to it.
async function join({ at, member, group, topic, session_ms = 30000 }) {
  const consumer = client(at).consumer({
    groupId: group,
    sessionTimeout: session_ms,
    heartbeatInterval: Math.min(3000, session_ms / 3),
    maxWaitTimeInMs: 500,
  });
  const state = { consumer, partitions: [], rebalances: 0, revoked: 0, taken: 0, first: null };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    state.partitions = payload.memberAssignment[topic] ?? [];
    state.rebalances += 1;
  });
  members.set(member, state);
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      state.first ??= Number(message.offset);
      state.taken += 1;
    },
  });
}

// kafkajs reads in groups only: one of its own, whose member seeks.
async function read({ at, topic, partition, offset, count }) {
  const consumer = client(at).consumer({ groupId: `read-${process.pid}-${Date.now()}`, maxWaitTimeInMs: 100 });
  return using(consumer, async () => {
    await consumer.subscribe({ topic, fromBeginning: true });
    const found = [];
    let done;
    const enough = new Promise((resolve) => (done = resolve));
    await consumer.run({
      autoCommit: false,
      eachMessage: async (one) => {
        if (one.partition === partition && Number(one.message.offset) >= offset && found.length < count) {
          found.push(shown(one.message));
        }
        if (found.length >= count) done();
      },
    });
    consumer.seek({ topic, partition, offset: String(offset) });
    await enough;
    return found;
  });
}

const verbs = {
  version: async () => from("kafkajs/package.json").version,
  topics: ({ at }) =>
    admin(at, async (admin) => {
      const { topics } = await admin.fetchTopicMetadata();
      return Object.fromEntries(topics.map(({ name, partitions }) => [name, partitions.length]));
    }),
  produce: ({ at, topic, records, codec = "none", acks = -1, idempotent = false }) =>
    using(client(at).producer({ idempotent }), async (producer) => {
      await producer.send({ topic, acks, compression: codecs[codec], messages: records.map(message) });
    }),
  read,
  at_time: ({ at, topic, partition, time }) =>
    admin(at, async (admin) => {
      const found = await admin.fetchTopicOffsetsByTimestamp(topic, time);
      return Number(found.find((one) => one.partition === partition).offset);
    }),
  ends: ({ at, topic, partition }) =>
    admin(at, async (admin) => {
      const found = await admin.fetchTopicOffsets(topic);
      const { low, high } = found.find((one) => one.partition === partition);
      return [Number(low), Number(high)];
    }),
  join,
  look: async ({ member }) => {
    const { partitions, rebalances, revoked, taken, first } = members.get(member);
    return { partitions, rebalances, revoked, taken, first };
  },
  commit: async ({ member, topic, partition, offset }) => {
    await members.get(member).consumer.commitOffsets([{ topic, partition, offset: String(offset) }]);
  },
  leave: async ({ member }) => {
    await members.get(member).consumer.disconnect();
    members.delete(member);
  },
  create_topic: ({ at, topic, partitions, configs = {} }) =>
    admin(at, async (admin) => {
      const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }));
      const topics = [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }];
      if (!(await admin.createTopics({ topics }))) throw new Error("the topic exists");
    }),
  delete_topic: ({ at, topic }) => admin(at, (admin) => admin.deleteTopics({ topics: [topic] })),
  delete_records: ({ at, topic, partition, offset }) =>
    admin(at, async (admin) => {
      // It knows who leads a partition only of topics it was asked about before.
      await admin.fetchTopicOffsets(topic);
      await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] });
    }),
  groups: ({ at }) => admin(at, async (admin) => (await admin.listGroups()).groups.map((one) => one.groupId)),
  describe_group: ({ at, group }) =>
    admin(at, async (admin) => {
      const [one] = (await admin.describeGroups([group])).groups;
      return [one.state, one.members.length];
    }),
  delete_group: ({ at, group }) => admin(at, (admin) => admin.deleteGroups([group])),
  committed: ({ at, group, topic, partition }) =>
    admin(at, async (admin) => {
      const [one] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
      return Number(one.partitions.find((it) => it.partition === partition).offset);
    }),
  configs: ({ at, topic }) =>
    admin(at, async (admin) => {
      const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }];
      const [found] = (await admin.describeConfigs({ resources })).resources;
      return Object.fromEntries(found.configEntries.map((one) => [one.configName, one.configValue]));
    }),
  set_config: ({ at, topic, name, value }) =>
    admin(at, async (admin) => {
      const configEntries = [{ name, value }];
      await admin.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] });
    }),
  open: async ({ at, sender }) => {
    const producer = client(at).producer();
    await producer.connect();
    senders.set(sender, producer);
  },
  send: async ({ sender, topic, value }) => {
    await senders.get(sender).send({ topic, messages: [{ value }] });
  },
  shut: async ({ sender }) => senders.get(sender).disconnect(),
};

async function main() {
  await addCodecs();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    let answer;
    try {
      answer = { ok: (await verbs[request.do](request)) ?? null };
    } catch (error) {
      answer = { error: `${error.name}: ${error.message}` };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
