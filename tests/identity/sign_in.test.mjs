// A person signs in with a provider of each make and does exactly what he was granted; sessions renew themselves and
// end; a workload needs no provider. Real programs, real providers, a real browser.
import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Person, atCertified, atZitadel, certified, endAll, node, page, until, zitadel } from './bench.mjs';
import { AUDIENCE } from './provider.mjs';

const ORDERS = ['stream.publish', 'stream:dev/default/orders'];
const PAYMENTS = ['stream.publish', 'stream:dev/default/payments'];
// Exit statuses of felixctl.
const REFUSED = 4;

let felix, oidc, go;

before(async () => {
  const providers = await Promise.all([certified(), zitadel()]);
  [oidc, go] = providers.map(({ issuer }) => issuer);
  felix = await node('shared');
  await felix.admin.does(['stream', 'create', 'payments']);
  await felix.admin.does(['rbac', 'policy', 'add', 'role:writers', ORDERS[1], ORDERS[0]]);
  await felix.admin.does(['idp', 'add', oidc, '--audience', AUDIENCE, '--audience', 'felixctl']);
  await felix.admin.does(['idp', 'add', go, '--audience', 'felixctl', '--audience', 'felixctl-device']);
  await felix.admin.does(['rbac', 'grouping', 'add', `group:${oidc}#writers`, 'role:writers']);
});

after(endAll);

const toCertified = (more = []) => [
  ...Person.at(felix), '--issuer', oidc, '--client-id', 'felixctl', '--scope', 'openid email groups', ...more,
];
const toZitadel = (more = []) => [...Person.at(felix), '--issuer', go, '--client-id', 'felixctl', ...more];

/// What a person with the role of a writer may do, and nothing else.
async function publishesWithExactlyTheGrantedRights(person) {
  const who = await person.shows(['whoami']);
  assert.deepEqual(who.rights, [ORDERS.join(':')]);
  assert.ok(who.roles.includes('role:writers'), who.roles);
  await person.does(['pub', 'orders', 'hello']);
  const refused = await person.fails(['pub', 'payments', 'hello']);
  assert.equal(refused.exit, REFUSED);
  assert.equal(refused.code, 'forbidden');
  assert.match(refused.error, /stream\.publish/);
  assert.equal((await person.shows(['auth', 'explain', ...ORDERS])).allowed, true);
  const { exit, out } = await person.run(['auth', 'explain', ...PAYMENTS, '--json']);
  assert.equal(exit, REFUSED);
  assert.deepEqual(JSON.parse(out).allowed, false);
  assert.match(JSON.parse(out).because, /only elsewhere/);
  return who;
}

test('a person signs in at a certified provider with the browser and publishes with exactly the granted rights', async () => {
  const ann = new Person('ann');
  const { page: opened, requests, close } = await page();
  const { exit, err } = await ann.signsIn(toCertified(['--audience', AUDIENCE]), async (url) => {
    const asked = new URL(url).searchParams;
    assert.equal(asked.get('code_challenge_method'), 'S256');
    assert.match(asked.get('redirect_uri'), /^http:\/\/127\.0\.0\.1:\d+\/callback$/);
    assert.ok(asked.get('state') && asked.get('nonce'));
    await atCertified(opened, url, 'ann');
    await opened.waitForURL(/\/callback\/done$/);
    assert.match(await opened.textContent('#said'), /You are signed in/);
  });
  assert.equal(exit, 0, err);
  // The code went through the browser once, to this machine, and no page was told where it came from.
  const codes = requests.filter(({ url }) => url.includes('code='));
  assert.ok(codes.length > 0 && codes.every(({ url }) => url.startsWith('http://127.0.0.1:')));
  assert.ok(requests.every(({ headers }) => !/[?&]code=/.test(headers.referer ?? '')));
  await close();
  const who = await publishesWithExactlyTheGrantedRights(ann);
  assert.equal(who.issuer, oidc);
  assert.equal(who.subject, 'ann');
  assert.equal(statSync(ann.credentials).mode & 0o777, 0o600);
});

test('a person nobody has given a right is told for whom to ask, and signs in once he has one', async () => {
  const bob = new Person('bob');
  const { page: opened, close } = await page();
  const refused = await bob.signsIn(toCertified(), (url) => atCertified(opened, url, 'bob'));
  assert.equal(refused.exit, REFUSED, refused.err);
  const principal = refused.err.match(/grouping add ([0-9a-f]{64}) ROLE/)?.[1];
  assert.ok(principal, refused.err);
  await felix.admin.does(['rbac', 'grouping', 'add', principal, 'role:writers']);
  // The provider knows the browser by now and asks only whether a native program may; the context was not kept, so all
  // is said again.
  const { exit, err } = await bob.signsIn(toCertified(), async (url) => {
    await opened.goto(url);
    await opened.click('button:has-text("Continue")');
  });
  assert.equal(exit, 0, err);
  await close();
  const who = await publishesWithExactlyTheGrantedRights(bob);
  assert.equal(who.principal, principal);
  assert.equal(who.name, 'bob@example.com');
});

test('a person signs in at a provider of another make and publishes with exactly the granted rights', async () => {
  const user = new Person('user');
  const { page: opened, close } = await page();
  const visit = (url) => atZitadel(opened, url, 'dora');
  const refused = await user.signsIn(toZitadel(), visit);
  const principal = refused.err.match(/grouping add ([0-9a-f]{64}) ROLE/)?.[1];
  assert.ok(principal, refused.err);
  await felix.admin.does(['rbac', 'grouping', 'add', principal, 'role:writers']);
  const { exit, err } = await user.signsIn(toZitadel(), visit);
  assert.equal(exit, 0, err);
  await close();
  assert.equal((await publishesWithExactlyTheGrantedRights(user)).subject, 'dora');
});

test('a person signs in on a machine without a browser with a code', async () => {
  const ann = new Person('ann-remote');
  const { page: opened, close } = await page();
  const { exit, err } = await ann.signsIn(['--device', ...toCertified(['--audience', AUDIENCE])], async (url, said) => {
    const code = said.match(/code ([A-Z0-9-]+)/)[1];
    await opened.goto(url);
    assert.ok((await opened.content()).includes(code), 'the page shows the code to compare');
    await opened.click('button[autofocus]');
    await opened.fill('input[name=login]', 'ann');
    await opened.fill('input[name=password]', 'anything');
    await opened.click('button[type=submit]');
    await opened.click('button:has-text("Continue")');
  });
  assert.equal(exit, 0, err);
  await close();
  await publishesWithExactlyTheGrantedRights(ann);
});

test('a device with a password of its own signs a person in at the other provider', async () => {
  const user = new Person('user-remote');
  const password = join(user.home, 'client-secret');
  writeFileSync(password, 'a password of a device\n', { mode: 0o600 });
  const { page: opened, close } = await page();
  const args = ['--device', ...Person.at(felix), '--issuer', go, '--client-id', 'felixctl-device',
    '--client-secret-file', password];
  const { exit, err } = await user.signsIn(args, async (url) => {
    await opened.goto(url);
    await opened.fill('#username', 'dora');
    await opened.fill('#password', 'verysecure');
    await opened.click('button[type=submit]');
    await opened.click('button.green');
    await opened.getByText('Device authorization allowed').waitFor();
  });
  assert.equal(exit, 0, err);
  await close();
  await publishesWithExactlyTheGrantedRights(user);
});

test('what is no answer to this sign-in does not end it, and the answer after it counts', async () => {
  const ann = new Person('ann-attacked');
  const { page: opened, close } = await page();
  const { exit, err } = await ann.signsIn(toCertified(['--audience', AUDIENCE]), async (url) => {
    const back = new URL(url).searchParams.get('redirect_uri');
    for (const query of ['?code=stolen&state=guessed', '?code=stolen', '?error=access_denied&state=guessed']) {
      const answer = await fetch(back + query, { redirect: 'manual' });
      assert.equal(answer.status, 400, query);
    }
    await atCertified(opened, url, 'ann');
  });
  assert.equal(exit, 0, err);
  await close();
});

test('an answer that names another issuer is refused, and so is one that names none', async () => {
  for (const iss of ['&iss=https%3A%2F%2Fevil.example', '']) {
    const ann = new Person(`ann-mixed-up${iss.length}`);
    const { exit, err } = await ann.signsIn(toCertified(), async (url) => {
      const asked = new URL(url).searchParams;
      await fetch(`${asked.get('redirect_uri')}?code=of-another&state=${asked.get('state')}${iss}`);
    });
    assert.equal(exit, REFUSED, err);
    assert.match(err, /issuer/);
    assert.ok(!err.includes('of-another'), 'the code is not shown');
  }
});

test('a person who does not agree is not signed in', async () => {
  const ann = new Person('ann-refuses');
  const { page: opened, close } = await page();
  const { exit, err } = await ann.signsIn(toCertified(), async (url) => {
    await opened.goto(url);
    await opened.click('a[href*=abort]');
  });
  assert.equal(exit, REFUSED, err);
  assert.match(err, /access_denied/);
  await close();
});

test('whoever signs out has ended his session, and his tokens are refused', async () => {
  const carol = new Person('carol');
  const { page: opened, close } = await page();
  const { exit, err } = await carol.signsIn(toCertified(), (url) => atCertified(opened, url, 'carol'));
  assert.equal(exit, 0, err);
  await close();
  const stolen = JSON.parse(readFileSync(carol.credentials, 'utf8')).tokens['felix-broker'].token;
  await carol.does(['pub', 'orders', 'hello']);
  await carol.does(['logout']);
  assert.equal((await carol.fails(['pub', 'orders', 'hello'])).exit, REFUSED);
  await until('the end of the session at the broker', async () => {
    const { exit } = await carol.run(['pub', 'orders', 'hello'], { environment: { FELIX_AUTH_TOKEN: stolen } });
    return exit === REFUSED ? true : undefined;
  });
});

test('a workload needs no provider: a service account publishes with its key alone', async () => {
  const key = join(felix.home, 'billing.key');
  await felix.admin.does(['service-account', 'create', 'billing', '--role', 'role:writers', '--out', key]);
  assert.equal(statSync(key).mode & 0o777, 0o600);
  const worker = new Person('worker');
  const by = ['--service-account-key-file', key, ...Person.at(felix)];
  await worker.does(['pub', 'orders', 'hello', ...by]);
  assert.equal((await worker.fails(['pub', 'payments', 'hello', ...by])).exit, REFUSED);
  assert.equal((await worker.shows(['whoami', ...by])).principal, 'sa:billing');
  // A second command uses what the first one got.
  const sessions = await felix.admin.shows(['session', 'ls', '--principal', 'sa:billing']);
  assert.equal(sessions.items.filter(({ audience }) => audience === 'felix-broker').length, 1);
  await felix.admin.does(['service-account', 'disable', 'billing', '--yes']);
  await until('the end of the account at the broker', async () => {
    const { exit } = await worker.run(['pub', 'orders', 'hello', ...by]);
    return exit === REFUSED ? true : undefined;
  });
});

test('a session renews itself after its token has expired, for many commands at once', async () => {
  const short = await node('short', { FELIX_EXCHANGE_TOKEN_TTL_SECONDS: '3' });
  await short.admin.does(['rbac', 'policy', 'add', 'role:writers', ORDERS[1], ORDERS[0]]);
  await short.admin.does(['idp', 'add', oidc, '--audience', AUDIENCE]);
  await short.admin.does(['rbac', 'grouping', 'add', `group:${oidc}#writers`, 'role:writers']);
  const ann = new Person('ann-short');
  const { page: opened, close } = await page();
  const args = [...Person.at(short), '--issuer', oidc, '--client-id', 'felixctl', '--scope', 'openid groups',
    '--audience', AUDIENCE];
  const { exit, err } = await ann.signsIn(args, (url) => atCertified(opened, url, 'ann'));
  assert.equal(exit, 0, err);
  await close();
  const held = () => JSON.parse(readFileSync(ann.credentials, 'utf8')).tokens['felix-broker'];
  const first = held();
  const expired = () => until('the end of the token', () => (Date.now() / 1000 > held().expires_at + 1 ? true : undefined));
  await expired();
  await Promise.all(Array.from({ length: 6 }, (_, number) => ann.does(['pub', 'orders', `hello ${number}`])));
  const second = held();
  assert.notEqual(second.token, first.token);
  assert.notEqual(second.refresh_token, first.refresh_token);

  // A thief spends the token that the person has spent already: the whole family ends.
  const kept = join(ann.home, 'kept.json');
  copyFileSync(ann.credentials, kept);
  await expired();
  await ann.does(['pub', 'orders', 'the newest token works']);
  const newest = join(ann.home, 'newest.json');
  copyFileSync(ann.credentials, newest);
  copyFileSync(kept, ann.credentials);
  const replayed = await ann.fails(['pub', 'orders', 'with a spent token']);
  assert.equal(replayed.exit, REFUSED);
  assert.match(replayed.error, /session has ended/);
  copyFileSync(newest, ann.credentials);
  await expired();
  const family = await ann.fails(['pub', 'orders', 'with the newest token']);
  assert.equal(family.exit, REFUSED);
  assert.match(family.error, /session has ended/);
});
