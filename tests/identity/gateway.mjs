// The browser gateway as a program, and what of WebSocket a test without a library needs.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { join } from 'node:path';
import { PROGRAMS, Person, atCertified, endings, keep, page, surroundings, until } from './bench.mjs';

/// A scope of one stream, and these limits.
const scope = (limits) => `
[scope]
field = "room"
[[scope.streams]]
alias = "edits"
name = "room-{scope}"
actions = ["publish", "subscribe"]
[limits]
${limits}
`;

/// A gateway in front of a node; it says where it listens in its log.
export async function gateway(node, name, { issuer, environment = {}, limits = '' }) {
  const person = new Person(name);
  const file = join(person.home, 'scope.toml');
  writeFileSync(file, scope(limits));
  const child = spawn(join(PROGRAMS, 'felix-gateway'), [], {
    env: surroundings(person.home, {
      GATEWAY_LISTEN: '127.0.0.1:0',
      GATEWAY_SCOPE_FILE: file,
      GATEWAY_TENANT: node.tenant,
      GATEWAY_OIDC_CLIENT_ID: 'gateway',
      GATEWAY_OIDC_ISSUER: issuer,
      GATEWAY_FELIX_BROKERS: node.brokers.join(','),
      GATEWAY_FELIX_SERVER_NAME: node.server_name,
      GATEWAY_FELIX_CA_FILE: node.ca_file,
      GATEWAY_FELIX_CONTROL_PLANE: node.controlplane_url,
      ...environment,
    }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const kept = keep(`${name}: felix-gateway`, child);
  const ended = new Promise((done) => child.on('exit', done));
  endings.push(async () => {
    child.kill('SIGTERM');
    await ended;
  });
  const address = await until(`the gateway ${name}`, () => {
    if (child.exitCode !== null) throw new Error(`the gateway ended: ${kept.err}`);
    return kept.err.match(/gateway is ready.*?(127\.0\.0\.1:\d+)/)?.[1] ?? kept.err.match(/(127\.0\.0\.1:\d+).*gateway is ready/)?.[1];
  });
  return { url: `http://${address}`, port: Number(address.split(':')[1]), log: kept };
}

/// The cookie of somebody who signed in at the certified provider through a gateway, in a browser that is gone by then.
export async function signedIn({ url }, name, options = {}) {
  const { page: opened, close } = await page(options);
  await atCertified(opened, `${url}/auth/login?return_to=/live`, name);
  await opened.waitForURL(`${url}/live`);
  const cookies = await opened.context().cookies(url);
  await close();
  return cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
}

/// A WebSocket from a given address of this machine, with given headers: what was said, and a way to say something.
export function socket(url, { from, headers = {}, ca } = {}) {
  const said = { messages: [], status: undefined, closed: undefined };
  const { request } = url.startsWith('https') ? https : http;
  const asked = request(`${url}/ws`, {
    localAddress: from,
    ca,
    headers: {
      Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': randomBytes(16).toString('base64'), ...headers,
    },
  });
  let stream;
  const opened = new Promise((done, failed) => {
    asked.on('error', failed);
    asked.on('response', (response) => {
      said.status = response.statusCode;
      response.resume();
      done(false);
    });
    asked.on('upgrade', (response, upgraded, head) => {
      said.status = response.statusCode;
      stream = upgraded;
      let bytes = head;
      const read = (more) => {
        bytes = Buffer.concat([bytes, more]);
        for (let frame; (frame = first(bytes)); bytes = bytes.subarray(frame.length)) {
          if (frame.kind === 1) said.messages.push(JSON.parse(frame.payload.toString()));
          if (frame.kind === 8) said.closed = frame.payload.length >= 2 ? frame.payload.readUInt16BE(0) : 1005;
          if (frame.kind === 9) send(stream, 10, frame.payload);
        }
      };
      upgraded.on('data', read);
      upgraded.on('error', () => {});
      upgraded.on('close', () => (said.closed ??= 1006));
      read(Buffer.alloc(0));
      done(true);
    });
  });
  asked.end();
  return {
    said,
    opened,
    say: (message) => send(stream, 1, Buffer.from(JSON.stringify(message))),
    heard: (type) => until(`a message ${type}`, () => said.messages.find((one) => one.type === type)),
    closed: () => until('the end of the socket', () => said.closed),
    end: () => stream?.destroy(),
  };
}

/// The first whole frame of what a server sent, if there is one.
function first(bytes) {
  if (bytes.length < 2) return undefined;
  const kind = bytes[0] & 15;
  let size = bytes[1] & 127;
  let at = 2;
  if (size === 126) {
    if (bytes.length < 4) return undefined;
    size = bytes.readUInt16BE(2);
    at = 4;
  } else if (size === 127) {
    if (bytes.length < 10) return undefined;
    size = Number(bytes.readBigUInt64BE(2));
    at = 10;
  }
  if (bytes.length < at + size) return undefined;
  return { kind, payload: bytes.subarray(at, at + size), length: at + size };
}

/// A frame as browsers send it: masked, and short.
function send(stream, kind, payload) {
  const mask = randomBytes(4);
  const head = payload.length < 126
    ? Buffer.from([128 | kind, 128 | payload.length])
    : Buffer.from([128 | kind, 128 | 126, payload.length >> 8, payload.length & 255]);
  const masked = payload.map((byte, at) => byte ^ mask[at % 4]);
  stream.write(Buffer.concat([head, mask, masked]));
}
