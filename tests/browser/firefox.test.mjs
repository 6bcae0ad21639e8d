// The board in an unchanged Firefox, beside Chromium: one board, one hash, through a cut, and signed in by either way.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { FIREFOX, Person, agree, company, endAll, until } from './bench.mjs';

const there = existsSync(FIREFOX);
const options = { skip: there ? false : `there is no Firefox at "${FIREFOX}"; Debian's package is firefox-esr` };
if (!there) console.log(`SKIPPED: ${options.skip}`);

let firm, fox, bob, edits = 0;

before(async () => {
  if (!there) return;
  firm = await company(2, ['plans'], { byCookie: 1 });
  fox = await Person.at(firm.cables[0], { browser: 'firefox' });
  bob = await Person.at(firm.cables[1]);
});

after(endAll);

test('two people, one in Firefox and one in Chromium, draw on one board and see the same', options, async () => {
  await fox.opens('plans');
  await fox.signsIn('ann');
  await bob.opens('plans');
  await bob.signsIn('bob');
  await fox.draws(10, 0);
  await bob.draws(10, 2);
  edits += 20;
  const { stateHash, people } = await agree([fox, bob], edits);
  assert.match(stateHash, /^[0-9a-f]{16}$/);
  assert.equal(people, '2');
});

test('Firefox comes back after a cut, and both have what the other drew meanwhile', options, async () => {
  fox.cable.pull();
  await until('Firefox is offline', async () => ['suspended', 'waiting'].includes((await fox.state()).connection));
  await bob.draws(30, 4);
  await fox.draws(5, 6);
  edits += 35;
  await until('what was drawn waits', async () => (await fox.state()).pending === '5');
  fox.cable.plug();
  const { visible } = await agree([fox, bob], edits);
  assert.equal(visible, String(edits));
});

test('undo, redo, a gateway that restarts and a broker that is killed are no different in Firefox', options, async () => {
  await fox.page.keyboard.press('Control+z');
  await fox.page.keyboard.press('Control+Shift+z');
  edits += 2;
  await agree([fox, bob], edits);
  await firm.gateway.stop();
  await fox.draws(3, 7);
  await firm.gateway.start();
  edits += 3;
  await agree([fox, bob], edits);
  await firm.node.kill();
  await fox.draws(3, 8);
  await firm.node.start();
  edits += 3;
  await agree([fox, bob], edits);
});

test('the gateway signs a person of Firefox in, and the page holds no token', options, async () => {
  const gwen = await Person.at(firm.door.cables[0], { browser: 'firefox' });
  await gwen.opens('plans');
  await gwen.signsIn('gwen');
  await gwen.draws(3, 9);
  edits += 3;
  await agree([fox, bob, gwen], edits);
  assert.doesNotMatch(await gwen.page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage })), /eyJ/);
  // It tells a connection that could not be made as if it were a fault of the page's.
  const faults = [...fox.faults, ...bob.faults, ...gwen.faults].filter((one) => !/establish a connection|connection to .* was interrupted/.test(one));
  assert.deepEqual(faults, []);
});
