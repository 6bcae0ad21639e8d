// No secret that was issued or used in a whole run appears in a log, an error, an output, an address or a stored file.
// Every program logs all it can (RUST_LOG=trace); the run signs in, exchanges, renews, is refused, rotates keys and
// uses a service account.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Person, PROGRAMS, atCertified, certified, endAll, node, page, until, written } from './bench.mjs';
import { AUDIENCE } from './provider.mjs';

const TRACE = { RUST_LOG: 'trace' };
const POSTGRES_PASSWORD = 'pg-pass-7d1f0c';
const PEER_TOKEN = 'peer-token-93bc1a-long-enough-for-a-token';

// What must not be seen, by what it is.
const secrets = new Map();
// What was seen besides the output of programs, by where.
const seen = new Map();
let felix, oidc;

const secret = (what, text) => {
  if (typeof text !== 'string') return;
  assert.ok(text.length >= 8, `${what} is too short to look for`);
  secrets.set(`${what} ${secrets.size}`, text);
  // Whoever has the last part of a compound secret has the secret.
  const last = text.split('.').at(-1);
  if (last !== text && last.length >= 8) secrets.set(`last part of ${what} ${secrets.size}`, last);
};

const keepIssued = (person) => {
  for (const { token, refresh_token } of Object.values(JSON.parse(readFileSync(person.credentials, 'utf8')).tokens)) {
    secret('Felix token', token);
    secret('refresh token', refresh_token);
  }
};

before(async () => {
  oidc = await certified();
  felix = await node('traced', { ...TRACE, FELIX_EXCHANGE_TOKEN_TTL_SECONDS: '4' });
  secret('token of the ready file', felix.token);
  secret('control plane token of the ready file', felix.controlplane_token);
  secret('bootstrap secret', readFileSync(join(felix.home, 'node/bootstrap.secret'), 'utf8').trim());
  await wholeRun();
});

after(endAll);

async function wholeRun() {
  const traced = { environment: TRACE };
  const { admin } = felix;
  await admin.does(['idp', 'add', oidc.issuer, '--audience', AUDIENCE], traced);
  await admin.does(['rbac', 'policy', 'add', 'role:writers', 'stream:dev/default/orders', 'stream.publish'], traced);
  await admin.does(['rbac', 'grouping', 'add', `group:${oidc.issuer}#writers`, 'role:writers'], traced);

  // A person signs in, works, renews, is refused, and signs out.
  const ann = new Person('ann');
  const { page: opened, requests, close } = await page();
  const args = ['-vv', ...Person.at(felix), '--issuer', oidc.issuer, '--client-id', 'felixctl',
    '--scope', 'openid email groups', '--audience', AUDIENCE];
  const { exit, err } = await ann.signsIn(args, (url) => atCertified(opened, url, 'ann'));
  assert.equal(exit, 0, err);
  await opened.waitForURL(/\/callback\/done$/).catch(() => {});
  // The address of a page, and what each page was told of the one before, are where codes leak.
  seen.set('Referer headers', requests.map(({ headers }) => headers.referer ?? '').join('\n'));
  seen.set('the address the browser ends at', opened.url());
  await close();
  keepIssued(ann);
  const spent = readFileSync(ann.credentials, 'utf8');
  await ann.does(['pub', 'orders', 'hello', '-vv'], traced);
  await ann.run(['pub', 'payments', 'hello', '-vv'], traced);
  const expires = JSON.parse(spent).tokens['felix-broker'].expires_at;
  await until('the end of the token', () => (Date.now() / 1000 > expires + 1 ? true : undefined));
  await ann.does(['pub', 'orders', 'after a renewal', '--json', '-vv'], traced);
  keepIssued(ann);
  for (const command of [['whoami'], ['context', 'show'], ['auth', 'explain', 'stream.publish', 'stream:dev/default/x']]) {
    await ann.run([...command, '--json', '-vv'], traced);
    await ann.run([...command, '-vv'], traced);
  }

  // A workload signs in with its key; a key that was made up is refused.
  const key = join(felix.home, 'billing.key');
  await admin.does(['service-account', 'create', 'billing', '--role', 'role:writers', '--out', key, '-vv'], traced);
  secret('key of a service account', readFileSync(key, 'utf8').trim());
  const worker = new Person('worker');
  const by = (file) => ['--service-account-key-file', file, ...Person.at(felix), '-vv'];
  await worker.does(['pub', 'orders', 'hello', ...by(key)], traced);
  const wrong = join(felix.home, 'wrong.key');
  writeFileSync(wrong, 'fsk_dev.nobody.bWFkZS11cC1zZWNyZXQtb2YtYS1rZXk\n', { mode: 0o600 });
  secret('key that was made up', 'fsk_dev.nobody.bWFkZS11cC1zZWNyZXQtb2YtYS1rZXk');
  await worker.run(['pub', 'orders', 'hello', ...by(wrong)], traced);
  // Damaged ones end up in parsers, which like to quote what they do not understand.
  writeFileSync(wrong, 'fsk_dev.nobody', { mode: 0o600 });
  await worker.run(['pub', 'orders', 'hello', ...by(wrong)], traced);
  for (const damaged of [felix.token.slice(0, -9), `${felix.token}xx`, felix.token.split('.').reverse().join('.')]) {
    await worker.run(['pub', 'orders', 'x', ...Person.at(felix), '-vv'], { environment: { ...TRACE, FELIX_AUTH_TOKEN: damaged } });
    await fetch(`${felix.controlplane_url}/v1/tenants`, { headers: { authorization: `Bearer ${damaged}` } });
  }

  // A replay ends the family; the spent token must not turn up in the record of it.
  writeFileSync(ann.credentials, spent, { mode: 0o600 });
  await ann.run(['pub', 'orders', 'with a spent token', '--json', '-vv'], traced);
  await ann.run(['logout', '-vv'], traced);

  // Keys change hands, and everything there is to see is looked at.
  await admin.does(['keys', 'rotate', '--settle', '1s', '-vv'], traced);
  await admin.does(['keys', 'ls', '--json'], traced);
  for (const command of [['session', 'ls'], ['idp', 'ls'], ['service-account', 'ls'], ['service-account', 'show', 'billing'],
    ['audit', 'ls'], ['audit', 'verify'], ['quota', 'ls'], ['context', 'show'], ['context', 'ls'], ['rbac', 'policy', 'ls']]) {
    await admin.does([...command, '--json'], traced);
    await admin.does(command, traced);
  }
  for (const url of [`${felix.broker_admin_url}/metrics`, `${felix.controlplane_url}/v1/openapi.json`,
    `${felix.controlplane_url}/v1/tenants/dev/.well-known/jwks.json`]) {
    seen.set(url, await (await fetch(url)).text());
  }
  for (const { code, code_verifier, access_token, id_token } of oidc.given()) {
    secret('authorization code', code);
    secret('PKCE verifier', code_verifier);
    secret("provider's access token", access_token);
    secret("provider's ID token", id_token);
  }

  // Settings that hold secrets are printed without them.
  secret('Postgres password', POSTGRES_PASSWORD);
  secret('peer token', PEER_TOKEN);
  const printer = new Person('printer');
  const printed = settings(printer);
  for (const program of ['felix-controlplane', 'felix-broker']) await printer.prints(join(PROGRAMS, program), printed);
  const raft = { ...printed, FELIX_CONTROLPLANE_STORAGE_BACKEND: 'raft', FELIX_CONTROLPLANE_RAFT_PEER_TOKEN: PEER_TOKEN };
  await printer.prints(join(PROGRAMS, 'felix-controlplane'), raft);
  // What is wrong with an address is told without the address.
  for (const address of [`postgres://felix:${POSTGRES_PASSWORD}@127.0.0.1:1/felix?passwrod=x`, `felix:${POSTGRES_PASSWORD}@x`]) {
    const environment = { ...printed, FELIX_CONTROLPLANE_POSTGRES_URL: address };
    await printer.prints(join(PROGRAMS, 'felix-controlplane'), environment);
  }
}

/// Every setting that holds a secret or names one.
function settings(person) {
  const token = join(person.home, 'token');
  writeFileSync(token, `${PEER_TOKEN}\n`, { mode: 0o600 });
  return {
    ...TRACE,
    FELIX_CONTROLPLANE_DATA_DIR: join(person.home, 'data'),
    FELIX_BOOTSTRAP_ENABLED: 'true',
    FELIX_BOOTSTRAP_TOKEN: PEER_TOKEN,
    FELIX_BOOTSTRAP_TOKEN_PREVIOUS: PEER_TOKEN,
    FELIX_CONTROLPLANE_STORAGE_BACKEND: 'postgres',
    FELIX_CONTROLPLANE_POSTGRES_URL: `postgres://felix:${POSTGRES_PASSWORD}@127.0.0.1:1/felix`,
    FELIX_NODE_TOKEN: felix.token,
  };
}

function* files(directory) {
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) yield* files(path);
    else if (entry.isFile()) yield path;
  }
}

test('there was something to look for and somewhere to look', () => {
  assert.ok(secrets.size > 20, `${secrets.size} secrets`);
  const log = felix.log.err + felix.log.out;
  assert.ok(log.length > 10_000, 'the node logs at its loudest');
  const { host } = new URL(felix.controlplane_url);
  assert.ok(written.some(({ name, err }) => name.includes('login') && err.includes(host)), 'what is no secret is found');
  assert.ok(written.some(({ name, err }) => name.includes('login') && /DEBUG|TRACE/.test(err)), 'felixctl does, too');
});

test('no secret is in a log, an error, an output or an address', () => {
  const found = [];
  const everywhere = [...written.flatMap(({ name, out, err }) => [[`${name} (out)`, out], [`${name} (err)`, err]]), ...seen];
  for (const [where, text] of everywhere) {
    for (const [what, secret] of secrets) if (text.includes(secret)) found.push(`${what} in ${where}`);
  }
  assert.deepEqual(found, []);
});

test('no secret of a person or a workload is stored by the servers', () => {
  const found = [];
  const personal = [...secrets].filter(([what]) => /refresh token|service account|access token|ID token|code|Felix token/.test(what));
  for (const path of files(join(felix.home, 'node'))) {
    const bytes = readFileSync(path);
    for (const [what, secret] of personal) if (bytes.includes(secret)) found.push(`${what} in ${path}`);
  }
  assert.deepEqual(found, []);
});
