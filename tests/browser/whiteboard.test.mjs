// People draw on one board in real browsers, over a real gateway and broker, signed in at a real provider, and end with
// the same board whatever breaks on the way.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Person, agree, company, endAll, until } from './bench.mjs';
import { SHORT_S } from './provider.mjs';

let firm, ann, bob, edits = 0;

before(async () => {
  firm = await company(6, ['plans', 'other']);
  ann = await Person.at(firm.cables[0]);
  bob = await Person.at(firm.cables[1]);
});

after(endAll);

test('two people sign in, draw on one board, and see the same', async () => {
  await ann.opens('plans');
  await ann.shot('whiteboard-sign-in.png');
  await ann.signsIn('ann');
  assert.ok(!/code=|state=|token/.test(ann.page.url()), ann.page.url());
  await bob.opens('plans');
  await bob.signsIn('bob');
  await ann.draws(10, 0);
  await bob.draws(10, 2);
  edits += 20;
  const { stateHash, people } = await agree([ann, bob], edits);
  assert.match(stateHash, /^[0-9a-f]{16}$/);
  assert.equal(people, '2');
  await ann.shot('whiteboard.png');
});

test('30 s without a network and 100 edits of the other one: everything arrives once, and what was drawn offline goes out', async () => {
  await ann.context.setOffline(true);
  ann.cable.pull();
  await until('ann is offline', async () => ['suspended', 'waiting'].includes((await ann.state()).connection));
  const began = Date.now();
  await bob.draws(100, 3);
  await ann.draws(5, 1);
  edits += 105;
  await until('what ann drew waits', async () => (await ann.state()).pending === '5');
  await until('30 s', async () => Date.now() - began > 30_000);
  ann.cable.plug();
  await ann.context.setOffline(false);
  const { visible } = await agree([ann, bob], edits);
  assert.equal(visible, String(edits), 'each edit is there once');
});

test('a tab that slept catches up when it is looked at', async () => {
  const remote = await ann.context.newCDPSession(ann.page);
  await remote.send('Page.setWebLifecycleState', { state: 'frozen' });
  ann.cable.deaden();
  await bob.draws(20, 6);
  edits += 20;
  ann.cable.plug();
  await remote.send('Page.setWebLifecycleState', { state: 'active' });
  await agree([ann, bob], edits);
});

test('a gateway that is restarted is come back to, and what was drawn meanwhile is there', async () => {
  await firm.gateway.stop();
  await ann.draws(5, 7);
  await bob.draws(5, 8);
  edits += 10;
  await firm.gateway.start();
  const { visible } = await agree([ann, bob], edits);
  assert.equal(visible, String(edits));
});

test('a broker that is killed and started again loses nothing, and nobody signs in anew', async () => {
  await firm.node.kill();
  await ann.draws(5, 9);
  await bob.draws(5, 10);
  edits += 10;
  await firm.node.start();
  const { visible } = await agree([ann, bob], edits);
  assert.equal(visible, String(edits));
  await ann.draws(3, 11);
  edits += 3;
  await agree([ann, bob], edits);
});

test('whoever joins later reads the snapshot and not the whole log', async () => {
  await ann.draws(60, 12);
  edits += 60;
  await agree([ann, bob], edits);
  const head = await until('a snapshot', async () => {
    const carol = await Person.at(firm.cables[2]);
    await carol.opens('plans');
    await carol.signsIn('carol');
    await agree([ann, bob, carol], edits);
    const from = carol.sent.map((text) => /"stream":"edits","from":(\d+)/.exec(text)?.[1]).find(Boolean);
    await carol.context.close();
    return Number(from) > 0 ? Number(from) : undefined;
  });
  assert.ok(head <= edits + 1, `${head}`);
});

test('the slider shows the board as it was, on a connection of its own, and the way back', async () => {
  await ann.page.click('#history');
  await until('the whole history', async () => Number(await ann.page.getAttribute('#slider', 'max')) >= edits);
  await ann.page.fill('#slider', '15');
  await until('an earlier moment', async () => /^Edit 15 of/.test(await ann.page.textContent('#moment')));
  await ann.shot('whiteboard-history.png');
  await bob.draws(2, 13);
  edits += 2;
  await ann.page.click('#history-close');
  await agree([ann, bob], edits);
});

test('a token that runs out is renewed without anybody noticing; without the means to it is asked for again', async () => {
  const erin = await Person.at(firm.cables[3]);
  await erin.opens('plans');
  await erin.signsIn('short-erin');
  const fred = await Person.at(firm.cables[4]);
  await fred.opens('plans');
  await fred.signsIn('short-once');
  await new Promise((passed) => setTimeout(passed, (SHORT_S + 5) * 1000));
  for (const { cable } of [erin, fred]) {
    cable.pull();
    cable.plug();
  }
  await erin.draws(3, 14);
  edits += 3;
  await agree([ann, bob, erin], edits);
  await until('fred is asked to sign in', async () => fred.page.isVisible('#sign-in'));
  assert.match(await fred.page.textContent('#sign-in-error'), /signed out/);
  assert.equal(await fred.page.evaluate(() => sessionStorage.getItem('felix.sign-in.session')), null);
  await erin.context.close();
  await fred.context.close();
});

test('after signing out and in as another person on the same page nothing of the first is left', async () => {
  const token = await ann.page.evaluate(() => JSON.parse(sessionStorage.getItem('felix.sign-in.session')).idToken);
  const [, claims] = token.split('.');
  const before = ann.sent.length;
  assert.ok(ann.sent.some((text) => text.includes(claims)), 'her token was in her join');
  await ann.page.click('#sign-out');
  await until('bob is alone', async () => (await bob.state()).people === '1');
  const logout = ann.page.locator('button[value=yes], button:has-text("Yes, sign me out")');
  await logout.first().click();
  await ann.page.waitForURL(`${ann.cable.origin}/**`);
  assert.equal(await ann.page.evaluate(() => sessionStorage.length), 0);
  await ann.opens('plans');
  await ann.signsIn('zoe');
  await ann.draws(3, 15);
  edits += 3;
  await agree([ann, bob], edits);
  const later = ann.sent.slice(before).filter((text) => text.includes('"join"') || text.includes('token'));
  assert.ok(later.length > 0 && later.every((text) => !text.includes(claims)));
  assert.equal(await ann.page.evaluate(() => JSON.stringify({ ...sessionStorage }).includes('"ann"')), false);
  await ann.page.keyboard.press('Control+z');
  edits += 1;
  const { visible } = await agree([ann, bob], edits);
  assert.equal(visible, String(edits - 2), 'she takes back her own edit');
});

test('no page broke a rule of its policy or threw', () => {
  assert.deepEqual([...ann.faults, ...bob.faults], []);
});
