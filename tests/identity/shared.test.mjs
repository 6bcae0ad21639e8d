// Many people over one connection of the gateway: each acts as himself, with a token that was delegated to the gateway
// for him, and is worth nothing over another certificate.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { certified, endAll, endings, node, until } from './bench.mjs';
import { gateway, signedIn, socket } from './gateway.mjs';

let felix, site, oidc;

before(async () => {
  const home = mkdtempSync(join(tmpdir(), 'felix-shared-'));
  endings.push(() => execFileSync('rm', ['-rf', home]));
  mkdirSync(home, { recursive: true });
  certificates(home);
  oidc = await certified();
  felix = await node('shared-node', {
    FELIX_TLS_CLIENT_CA: join(home, 'ca.pem'),
    FELIX_TLS_CLIENT_CERT_BIND_SUBJECT: 'true',
  });
  await felix.admin.does(['idp', 'add', oidc.issuer, '--audience', 'gateway']);
  await felix.admin.does(['stream', 'create', 'room-7']);
  for (const action of ['stream.publish', 'stream.subscribe']) {
    await felix.admin.does(['rbac', 'policy', 'add', 'role:players', 'stream:dev/default/room-*', action]);
  }
  await felix.admin.does(['rbac', 'grouping', 'add', `group:${oidc.issuer}#writers`, 'role:players']);
  const key = join(home, 'gateway.key.txt');
  await felix.admin.does(['service-account', 'create', 'gateway', '--out', key]);
  await felix.admin.does(['rbac', 'policy', 'add', 'sa:gateway', 'tenant:dev', 'token.delegate']);
  site = await gateway(felix, 'sharing', {
    issuer: oidc.issuer,
    environment: {
      GATEWAY_OIDC_SCOPES: 'openid profile groups',
      GATEWAY_FELIX_CREDENTIAL_FILE: key,
      GATEWAY_FELIX_CLIENT_CERT: join(home, 'gateway.pem'),
      GATEWAY_FELIX_CLIENT_KEY: join(home, 'gateway.key'),
      GATEWAY_FELIX_SHARED_CONNECTIONS: '1',
    },
  });
});

after(endAll);

/// An authority, and the gateway's certificate, which names it as a principal.
function certificates(home) {
  const openssl = (...args) => execFileSync('openssl', args, { cwd: home, stdio: 'pipe' });
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  openssl('req', '-x509', ...curve, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=people', '-days', '2');
  openssl('req', ...curve, '-keyout', 'gateway.key', '-out', 'gateway.csr', '-subj', '/CN=gateway');
  writeFileSync(join(home, 'ext'), 'subjectAltName = URI:felix:principal:sa:gateway\nextendedKeyUsage = clientAuth\n');
  openssl('x509', '-req', '-in', 'gateway.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-out', 'gateway.pem',
    '-days', '2', '-extfile', 'ext');
  assert.match(readFileSync(join(home, 'gateway.pem'), 'utf8'), /BEGIN CERTIFICATE/);
}

async function joins(name) {
  const cookie = await signedIn(site, name);
  const one = socket(site.url, { headers: { Cookie: cookie, Origin: site.url } });
  assert.equal(await one.opened, true);
  one.say({ type: 'join', room: '7' });
  const first = await until('an answer', () => one.said.messages[0]);
  return { ...one, first };
}

/// Connections of clients at the broker. Its own are not among them.
async function connections() {
  const text = await (await fetch(`${felix.broker_admin_url}/metrics`)).text();
  return Number(text.match(/^felix_broker_connections (\d+)/m)?.[1] ?? 0);
}

test('two people act over one connection of the gateway, each with exactly his own rights', async () => {
  const before = await connections();
  const [ann, carol, bob] = [await joins('ann'), await joins('carol'), await joins('bob')];
  assert.equal(ann.first.type, 'hello', JSON.stringify(ann.first));
  assert.equal(carol.first.type, 'hello');
  // Nobody gave bob a right, and the gateway's own do not help him.
  assert.deepEqual([bob.first.type, bob.first.code], ['error', 'forbidden']);
  ann.say({ type: 'subscribe', stream: 'edits', from: 'live' });
  await ann.heard('subscribed');
  carol.say({ type: 'publish', stream: 'edits', payload: 'aGVsbG8=', ack: true, id: 1 });
  assert.equal((await carol.heard('ack')).id, 1);
  assert.equal((await ann.heard('event')).payload, 'aGVsbG8=');
  assert.equal(await connections(), before + 1);
  // One who leaves takes nothing from the others.
  ann.end();
  carol.say({ type: 'publish', stream: 'edits', payload: 'aGVsbG8=', ack: true, id: 2 });
  await until('the second answer', () => carol.said.messages.find(({ type, id }) => type === 'ack' && id === 2));
  carol.end();
});

test('a token that somebody pastes into the console is not held against the certificate of the gateway', async () => {
  const me = (token) => fetch(`${site.url}/console/api/me`, { headers: { authorization: `Bearer ${token}` } });
  const own = await me(felix.token);
  assert.equal(own.status, 200, await own.clone().text());
  assert.equal((await own.json()).via, 'token');
  // One that was made for the gateway is worth nothing without its certificate, and does not get it here.
  const claims = { sub: 'ann', tid: felix.tenant, aud: 'felix-broker', act: { sub: 'sa:gateway' } };
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const delegated = await me(`${part({ alg: 'EdDSA' })}.${part(claims)}.signature`);
  assert.deepEqual([delegated.status, (await delegated.json()).code], [403, 'forbidden']);
});

test('whoever is removed is out while the others on the connection stay', async () => {
  const [ann, carol] = [await joins('ann'), await joins('carol')];
  const principal = (await felix.admin.shows(['session', 'ls'])).items.find(({ principal_id: id }) => /^[0-9a-f]{64}$/.test(id));
  assert.ok(principal, 'people have sessions');
  await felix.admin.does(['revoke', 'principal', principal.principal_id, '--yes']);
  // She may come in again, so it is only her tokens that are replaced, and nobody's socket ends.
  // What is under way while they are replaced may fail, and says so; the gateway repeats no write, its browsers do.
  for (const one of [ann, carol]) {
    let id = 3;
    const publish = () => one.say({ type: 'publish', stream: 'edits', payload: 'aGVsbG8=', ack: true, id });
    publish();
    await until('an acknowledgement under the next token', () => {
      const answer = one.said.messages.find((message) => message.id === id);
      if (answer?.type !== 'error') return answer;
      assert.equal(answer.code, 'publish_failed');
      id += 1;
      publish();
      return undefined;
    });
    assert.equal(one.said.closed, undefined);
  }
  await felix.admin.does(['rbac', 'grouping', 'rm', `group:${oidc.issuer}#writers`, 'role:players', '--yes']);
  for (const one of [ann, carol]) assert.equal(await one.closed(), 4001);
});
