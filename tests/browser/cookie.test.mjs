// People whose gateway signs them in: their pages hold no token, and end at the same board as the pages that do.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Person, agree, company, endAll, until } from './bench.mjs';

let firm, ann, gwen, edits = 0;

before(async () => {
  firm = await company(1, ['plans'], { byCookie: 2 });
  ann = await Person.at(firm.cables[0]);
  gwen = await Person.at(firm.door.cables[0]);
});

after(endAll);

const kept = (person) => person.page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage, cookie: document.cookie }));

test('whoever signs in at the gateway holds no token, and draws with those whose pages hold one', async () => {
  await ann.opens('plans');
  await ann.signsIn('ann');
  await gwen.opens('plans');
  await gwen.signsIn('gwen');
  assert.equal(new URL(gwen.page.url()).search, '?board=plans');
  await ann.draws(5, 0);
  await gwen.draws(5, 1);
  edits += 10;
  const { people } = await agree([ann, gwen], edits);
  assert.equal(people, '2');
  assert.match(await gwen.page.getAttribute('#sign-out', 'title'), /Gwen/);
  const joins = gwen.sent.filter((text) => text.includes('"join"'));
  assert.ok(joins.length > 0 && joins.every((text) => !text.includes('token')));
  assert.doesNotMatch(gwen.sent.join('\n'), /eyJ[A-Za-z0-9_-]+\./);
  assert.doesNotMatch(await kept(gwen), /eyJ|felix_session|gwen/);
  const [cookie] = (await gwen.context.cookies()).filter(({ name }) => name === '__Host-felix_session');
  assert.deepEqual([cookie.httpOnly, cookie.secure, cookie.sameSite], [true, true, 'Lax']);
});

test('a page that is loaded again is still signed in', async () => {
  await gwen.page.reload();
  await gwen.isThere();
  await agree([ann, gwen], edits);
});

test('a cut that outlasts a restart of the gateway asks her to sign in again, and what she drew meanwhile is not lost', async () => {
  await firm.door.stop();
  await until('gwen is offline', async () => ['suspended', 'waiting'].includes((await gwen.state()).connection));
  await gwen.draws(3, 2);
  await ann.draws(2, 3);
  await firm.door.start();
  await until('gwen is asked', () => gwen.page.isVisible('#sign-in'));
  assert.match(await gwen.page.textContent('#sign-in-error'), /3 edits are kept in this tab/);
  // The provider knows her still, and only asks whether she wants it.
  await gwen.page.click('#sign-in-button');
  await gwen.page.click('button:has-text("Continue")');
  await gwen.isThere();
  edits += 5;
  const { visible } = await agree([ann, gwen], edits);
  assert.equal(visible, String(edits), 'each edit is there once');
  assert.doesNotMatch(await kept(gwen), /unsent/);
});

test('signing out ends the other tab too, and the next person is asked who it is and finds nothing', async () => {
  const tab = await gwen.anotherTab();
  await tab.opens('plans');
  await tab.isThere();
  await gwen.page.click('#sign-out');
  await until('the other tab is out', () => tab.page.isVisible('#sign-in'));
  await until('ann is alone', async () => (await ann.state()).people === '1');
  assert.doesNotMatch(await gwen.page.textContent('body'), /Gwen/);
  assert.equal((await gwen.context.cookies()).some(({ name }) => name === '__Host-felix_session'), false);
  await tab.page.close();
  gwen.sent.length = 0;
  await gwen.signsIn('hugo');
  assert.match(await gwen.page.getAttribute('#sign-out', 'title'), /Hugo/);
  await gwen.draws(2, 4);
  edits += 2;
  await agree([ann, gwen], edits);
  await gwen.page.keyboard.press('Control+z');
  edits += 1;
  const { visible } = await agree([ann, gwen], edits);
  assert.equal(visible, String(edits - 2), 'he takes back his own edit');
  assert.doesNotMatch(await kept(gwen), /gwen/i);
});

test('a browser that keeps no such cookie is signed in by its page at the next try', async () => {
  const ivy = await Person.at(firm.door.cables[1]);
  await ivy.opens('plans');
  // Once the page has looked who is here: that takes away what the next line leaves.
  await ivy.page.waitForSelector('#sign-in-button');
  // As it is after coming back from the provider with nothing to show for it.
  await ivy.page.evaluate(() => sessionStorage.setItem('felix.whiteboard.away', '1'));
  await ivy.page.reload();
  await ivy.signsIn('ivy');
  await ivy.draws(2, 5);
  edits += 2;
  await agree([ann, gwen, ivy], edits);
  assert.ok(ivy.sent.some((text) => text.includes('"join"') && text.includes('"token"')));
  assert.deepEqual(ivy.faults, []);
});

test('no page broke a rule of its policy or threw', () => {
  assert.deepEqual([...ann.faults, ...gwen.faults], []);
});
