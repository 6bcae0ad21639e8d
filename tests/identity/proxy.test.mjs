// The gateway behind a real nginx that ends TLS: the client's address, wss, the origin and the cookies are right.
//
// The configuration is the one of docs/guides/browser-sign-in.md. Without nginx or openssl on the machine nothing is run,
// and it is said.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Person, atCertified, certified, endAll, endings, keep, node, page, until } from './bench.mjs';
import { gateway, signedIn, socket } from './gateway.mjs';

const missing = ['nginx', 'openssl'].filter((program) => spawnSync(program, ['version']).error);
const skip = missing.length > 0 && `SKIPPED: this machine has no ${missing.join(' and no ')}`;
if (skip) console.log(skip);

let felix, behind, site, ca;

before(async () => {
  if (skip) return;
  const person = new Person('proxy');
  const port = await free();
  site = `https://127.0.0.1:${port}`;
  const oidc = await certified({ GATEWAY_REDIRECT: `${site}/auth/callback` });
  felix = await node('proxy-node');
  await felix.admin.does(['idp', 'add', oidc.issuer, '--audience', 'gateway']);
  await felix.admin.does(['stream', 'create', 'room-7']);
  for (const action of ['stream.publish', 'stream.subscribe']) {
    await felix.admin.does(['rbac', 'policy', 'add', 'role:players', 'stream:dev/default/room-*', action]);
  }
  await felix.admin.does(['rbac', 'grouping', 'add', `group:${oidc.issuer}#writers`, 'role:players']);
  behind = await gateway(felix, 'behind-nginx', {
    issuer: oidc.issuer,
    environment: { GATEWAY_OIDC_SCOPES: 'openid profile groups', GATEWAY_PUBLIC_URL: site },
    limits: 'trusted_proxies = 1\nsessions_per_ip = 1\nsessions_per_principal = 0\n',
  });
  ca = certificate(person.home);
  await nginx(person.home, port);
});

after(endAll);

/// A port that nobody has at the moment. nginx does not say which one it got.
async function free() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((listening) => server.on('listening', listening));
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

/// An authority of the test's own and a certificate for this machine; gives the authority's.
function certificate(home) {
  const openssl = (...args) => execFileSync('openssl', args, { cwd: home, stdio: 'pipe' });
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  openssl('req', '-x509', ...curve, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=test authority', '-days', '2');
  openssl('req', ...curve, '-keyout', 'site.key', '-out', 'site.csr', '-subj', '/CN=127.0.0.1');
  writeFileSync(join(home, 'site.ext'), 'subjectAltName = IP:127.0.0.1\n');
  openssl('x509', '-req', '-in', 'site.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-out', 'site.pem',
    '-days', '2', '-extfile', 'site.ext');
  return readFileSync(join(home, 'ca.pem'));
}

async function nginx(home, port) {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((kind) => {
    mkdirSync(join(home, kind));
    return `${kind}_temp_path ${join(home, kind)};`;
  });
  const configuration = `
    ${process.getuid() === 0 ? 'user root;' : ''}
    worker_processes 1; daemon off; pid ${join(home, 'nginx.pid')}; error_log stderr warn;
    events { worker_connections 128; }
    http {
      access_log off;
      ${temporary.join('\n      ')}
      map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
      server {
        listen 127.0.0.1:${port} ssl;
        ssl_certificate ${join(home, 'site.pem')};
        ssl_certificate_key ${join(home, 'site.key')};
        location / {
          proxy_pass ${behind.url};
          proxy_http_version 1.1;
          proxy_set_header Host $http_host;
          proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
          proxy_set_header X-Forwarded-Proto $scheme;
          proxy_set_header Upgrade $http_upgrade;
          proxy_set_header Connection $connection_upgrade;
          proxy_read_timeout 60s;
        }
      }
    }`;
  writeFileSync(join(home, 'nginx.conf'), configuration);
  const child = spawn('nginx', ['-p', home, '-c', join(home, 'nginx.conf'), '-e', 'stderr'], { stdio: ['ignore', 'pipe', 'pipe'] });
  const kept = keep('nginx', child);
  const ended = new Promise((done) => child.on('exit', done));
  endings.push(async () => {
    child.kill('SIGTERM');
    await ended;
  });
  await until('nginx', () => {
    if (child.exitCode !== null) throw new Error(`nginx ended: ${kept.err}`);
    return new Promise((done) => {
      const tried = net.connect(port, '127.0.0.1', () => done(true));
      tried.on('error', () => done(undefined)).on('connect', () => tried.destroy());
    });
  });
}

test('a person signs in over https, his cookie is a secure one, and his page joins over wss', { skip }, async () => {
  const { page: opened, close } = await page({ ignoreHTTPSErrors: true });
  await atCertified(opened, `${site}/auth/login?return_to=/live`, 'ann');
  await opened.waitForURL(`${site}/live`);
  const [held] = (await opened.context().cookies(site)).filter(({ name }) => name === '__Host-felix_session');
  assert.deepEqual([held.secure, held.httpOnly, held.sameSite, held.domain], [true, true, 'Lax', '127.0.0.1']);
  const first = await opened.evaluate(
    () =>
      new Promise((done) => {
        const socket = new WebSocket(`${location.origin.replace('http', 'ws')}/ws`);
        socket.onopen = () => socket.send(JSON.stringify({ type: 'join', room: '7' }));
        socket.onmessage = ({ data }) => done(JSON.parse(data));
        socket.onclose = ({ code }) => done({ type: 'closed', code });
      }),
  );
  assert.equal(first.type, 'hello', JSON.stringify(first));
  await close();
});

test('the address of a client is the one that nginx saw, whatever the client says of itself', { skip }, async () => {
  const Cookie = await signedIn({ url: site }, 'ann', { ignoreHTTPSErrors: true });
  const joined = async (from, forged) => {
    const headers = { Cookie, Origin: site, ...(forged && { 'X-Forwarded-For': forged }) };
    const one = socket(site, { from, ca, headers });
    assert.equal(await one.opened, true, `status ${one.said.status}`);
    one.say({ type: 'join', room: '7' });
    await until('an answer', () => one.said.messages[0]);
    return one;
  };
  const first = await joined('127.0.0.5');
  assert.equal(first.said.messages[0].type, 'hello');
  // One session for each address: another address has room, this one has none, also under a false name.
  const second = await joined('127.0.0.6');
  assert.equal(second.said.messages[0].type, 'hello');
  for (const forged of [undefined, '203.0.113.9', '203.0.113.9, 203.0.113.10']) {
    const third = await joined('127.0.0.5', forged);
    assert.equal(third.said.messages[0].code, 'unavailable', forged);
    third.end();
  }
  first.end();
  second.end();
});

test('the origin is the one of the proxy and no other', { skip }, async () => {
  const Cookie = await signedIn({ url: site }, 'ann', { ignoreHTTPSErrors: true });
  const allowed = [];
  for (const Origin of [site, behind.url, site.replace('https', 'http'), 'https://127.0.0.1', `${site}.evil.example`, 'null']) {
    const one = socket(site, { from: '127.0.0.7', ca, headers: { Cookie, Origin } });
    if (await one.opened) {
      one.say({ type: 'join', room: '7' });
      const answer = await until('an answer', () => one.said.messages[0] ?? (one.said.closed && { type: 'closed' }));
      if (answer.type === 'hello') allowed.push(Origin);
    }
    one.end();
  }
  assert.deepEqual(allowed, [site]);
});
