// People sign in at the gateway with a real browser and a provider of each make; their pages hold no token, other pages
// ride no cookie, and whoever signs out or is removed is out at once.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { atCertified, atZitadel, certified, endAll, node, page, until, zitadel } from './bench.mjs';
import { gateway, socket } from './gateway.mjs';

const ROOM = 'stream:dev/default/room-*';

let felix, oidc, go, atOidc, atGo;

before(async () => {
  const providers = await Promise.all([certified(), zitadel()]);
  [oidc, go] = providers;
  felix = await node('gateway-node');
  for (const issuer of [oidc.issuer, go.issuer]) await felix.admin.does(['idp', 'add', issuer, '--audience', 'gateway']);
  await felix.admin.does(['stream', 'create', 'room-7']);
  for (const action of ['stream.publish', 'stream.subscribe']) {
    await felix.admin.does(['rbac', 'policy', 'add', 'role:players', ROOM, action]);
  }
  await felix.admin.does(['rbac', 'grouping', 'add', `group:${oidc.issuer}#writers`, 'role:players']);
  atOidc = await gateway(felix, 'gateway', { issuer: oidc.issuer, environment: { GATEWAY_OIDC_SCOPES: 'openid profile groups' } });
  atGo = await gateway(felix, 'gateway-zitadel', { issuer: go.issuer });
});

after(endAll);

const session = (opened) => opened.evaluate(async () => (await fetch('/auth/session')).json());
/// Signs out here; where it goes on at the provider.
const signsOut = (opened) =>
  opened.evaluate(async () => {
    const answer = await fetch('/auth/logout', { method: 'POST', headers: { 'x-felix-sign-out': '1' } });
    return answer.status === 204 ? null : (await answer.json()).continue_at;
  });

/// Opens a socket in a page, joins with what the browser has, and gives what is heard.
const joins = (opened, url = '') =>
  opened.evaluate(
    (url) =>
      new Promise((done) => {
        const socket = new WebSocket(`${(url || location.origin).replace('http', 'ws')}/ws`);
        window.heard = [];
        socket.onopen = () => socket.send(JSON.stringify({ type: 'join', room: '7' }));
        socket.onmessage = ({ data }) => {
          window.heard.push(JSON.parse(data));
          done(window.heard[0]);
        };
        socket.onclose = ({ code }) => {
          window.left = { code, at: performance.now() };
          done({ type: 'closed', code });
        };
      }),
    url,
  );

test('a person signs in at a certified provider through the gateway and his page holds no token', async () => {
  const { page: opened, requests, close } = await page();
  await atCertified(opened, `${atOidc.url}/auth/login?return_to=/live`, 'ann');
  await opened.waitForURL(`${atOidc.url}/live`);
  const who = await session(opened);
  assert.deepEqual([who.signed_in, who.subject], [true, 'ann']);
  assert.equal((await joins(opened)).type, 'hello');
  // A script of the page sees nothing of it.
  assert.deepEqual(await opened.evaluate(() => [document.cookie, localStorage.length, sessionStorage.length]), ['', 0, 0]);
  const [cookie] = (await opened.context().cookies(atOidc.url)).filter(({ name }) => name === '__Host-felix_session');
  assert.deepEqual([cookie.httpOnly, cookie.secure, cookie.sameSite, cookie.path], [true, true, 'Lax', '/']);
  // The code came by once, to the gateway, and no page was told where the browser had been.
  const given = oidc.given().flatMap(Object.values).filter((one) => typeof one === 'string' && one.length > 20);
  assert.ok(given.length >= 3, 'the provider told what it gave away');
  const codes = requests.filter(({ url }) => url.includes('code='));
  assert.ok(codes.length > 0 && codes.every(({ url }) => url.startsWith(`${atOidc.url}/auth/callback?`)));
  assert.ok(requests.every(({ headers }) => !/[?&]code=/.test(headers.referer ?? '')));
  for (const secret of [...given, cookie.value]) assert.ok(!atOidc.log.err.includes(secret), 'nothing secret is in the log');
  await close();
});

test('a person signs in at a provider of another make through the gateway', async () => {
  const { page: opened, close } = await page();
  await atZitadel(opened, `${atGo.url}/auth/login?return_to=/live`, 'dora');
  await opened.waitForURL(`${atGo.url}/live`);
  assert.equal((await session(opened)).subject, 'dora');
  // Nobody gave her a right: she is known, and stays out.
  const refused = await joins(opened);
  assert.deepEqual([refused.type, refused.code], ['error', 'forbidden']);
  await close();
});

test('signing out closes the sockets of that sign-in within a second, and somebody else finds nothing of it', async () => {
  const { page: opened, close } = await page();
  await atCertified(opened, `${atOidc.url}/auth/login?return_to=/live`, 'ann');
  await opened.waitForURL(`${atOidc.url}/live`);
  assert.equal((await joins(opened)).type, 'hello');
  const at = await opened.evaluate(() => performance.now());
  assert.equal(await signsOut(opened), '/auth/logout/continue');
  const closed = await until('the end of the socket', () => opened.evaluate(() => window.left));
  assert.equal(closed.code, 4001);
  console.log(`the socket was closed ${Math.round(closed.at - at)} ms after signing out began`);
  assert.deepEqual(await session(opened), { signed_in: false });
  assert.equal((await joins(opened)).code, 'signed_out');
  // The provider still knows the browser; the next person says who he is.
  await atCertified(opened, `${atOidc.url}/auth/login?return_to=/live&prompt=login`, 'carol');
  await opened.waitForURL(`${atOidc.url}/live`);
  assert.equal((await session(opened)).subject, 'carol');
  await close();
});

test('whoever signs out at the provider too is not known there any more, and the page was shown no token', async () => {
  const { page: opened, requests, close } = await page();
  await atCertified(opened, `${atOidc.url}/auth/login?return_to=/live`, 'ann');
  await opened.waitForURL(`${atOidc.url}/live`);
  const on = await signsOut(opened);
  await opened.goto(`${atOidc.url}${on}?return_to=/live`);
  assert.ok(opened.url().startsWith(oidc.issuer), opened.url());
  await opened.click('button[name=logout][value=yes]');
  await opened.waitForURL(`${atOidc.url}/live`);
  const hints = requests.filter(({ url }) => url.includes('id_token_hint='));
  assert.ok(hints.length === 1 && hints[0].url.startsWith(oidc.issuer), 'the provider alone is shown it');
  // Its own pages may say among each other where they are.
  const elsewhere = requests.filter(({ url }) => !url.startsWith(oidc.issuer));
  assert.ok(elsewhere.length > 0 && elsewhere.every(({ headers }) => !(headers.referer ?? '').includes('id_token_hint')));
  const hint = new URL(hints[0].url).searchParams.get('id_token_hint');
  assert.ok(!atOidc.log.err.includes(hint));
  // Another provider's page, and one that asks again, come back to nothing.
  assert.equal((await opened.goto(`${atOidc.url}${on}`)).status(), 400);
  assert.equal((await opened.goto(`${atOidc.url}/auth/logout/done?state=guessed`)).status(), 400);
  await opened.goto(`${atOidc.url}/auth/login?return_to=/live`);
  await opened.waitForSelector('input[name=login]');
  await close();
});

test('a page of another origin rides no cookie, though its site is the same', async () => {
  const { page: opened, close } = await page();
  await atCertified(opened, `${atOidc.url}/auth/login?return_to=/live`, 'ann');
  await opened.waitForURL(`${atOidc.url}/live`);
  // Another port is another origin and the same site: the browser sends the cookie along.
  const evil = http.createServer((_, response) => response.end('<!doctype html>')).listen(0, '127.0.0.1');
  await new Promise((listening) => evil.on('listening', listening));
  await opened.goto(`http://127.0.0.1:${evil.address().port}/`);
  assert.equal((await joins(opened, atOidc.url)).type, 'closed');
  const status = await opened.evaluate(async (url) => {
    const headers = { 'x-felix-sign-out': '1' };
    const asked = fetch(`${url}/auth/logout`, { method: 'POST', headers, credentials: 'include' });
    return asked.then(({ status }) => status, () => 'blocked');
  }, atOidc.url);
  assert.equal(status, 'blocked');
  // The cookie alone, without saying where it comes from, is worth nothing either.
  const cookies = await opened.context().cookies(atOidc.url);
  const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
  const origins = [undefined, 'null', 'https://127.0.0.1', `${atOidc.url}.evil.example`, `http://127.0.0.1:${atOidc.port + 1}`];
  for (const Origin of origins) {
    const silent = socket(atOidc.url, { headers: { Cookie: cookie, ...(Origin && { Origin }) } });
    if (await silent.opened) {
      silent.say({ type: 'join', room: '7' });
      assert.equal((await silent.heard('error')).code, 'forbidden', Origin);
    } else {
      assert.equal(silent.said.status, 403, Origin);
    }
    silent.end();
  }
  await opened.goto(`${atOidc.url}/live`);
  assert.equal((await session(opened)).signed_in, true, 'nobody signed her out');
  evil.close();
  await close();
});

test('whoever loses his role is out within five seconds, idle as he is', async () => {
  const { page: opened, close } = await page();
  await atCertified(opened, `${atOidc.url}/auth/login?return_to=/live`, 'carol');
  await opened.waitForURL(`${atOidc.url}/live`);
  assert.equal((await joins(opened)).type, 'hello');
  await felix.admin.does(['rbac', 'grouping', 'rm', `group:${oidc.issuer}#writers`, 'role:players', '--yes']);
  const began = await opened.evaluate(() => performance.now());
  const closed = await until('the end of the socket', () => opened.evaluate(() => window.left));
  assert.equal(closed.code, 4001);
  console.log(`the socket was closed ${Math.round(closed.at - began)} ms after the control plane's answer`);
  assert.ok(closed.at - began < 5_000, `${closed.at - began} ms`);
  assert.equal((await joins(opened)).code, 'forbidden');
  await close();
});
