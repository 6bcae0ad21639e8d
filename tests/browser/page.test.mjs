// The whiteboard's page against the gateway in its own memory (`demo.html`): tools, keys, fingers, and a large board. No
// program of ours runs here; the page is under the policy that the gateway serves it with.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { Person, endAll, until } from './bench.mjs';

const DIST = join(import.meta.dirname, '../../clients/typescript/examples/whiteboard/dist');
const KINDS = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
const POLICY = "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; object-src 'none'; " +
  "form-action 'self'; require-trusted-types-for 'script'";

let server, origin;

before(async () => {
  server = createServer(async ({ url }, answer) => {
    const path = new URL(url, 'http://page').pathname;
    const body = await readFile(join(DIST, path)).catch(() => null);
    answer.writeHead(body === null ? 404 : 200, { 'content-type': KINDS[extname(path)] ?? 'text/plain', 'content-security-policy': POLICY });
    answer.end(body);
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  origin = `http://127.0.0.1:${server.address().port}`;
});

after(async () => {
  await endAll();
  server.closeAllConnections();
  server.close();
});

async function demo(edits, options) {
  const person = await Person.at({ origin }, options);
  await person.page.goto(`${origin}/demo.html?board=try&people=&edits=${edits}`);
  await person.isThere();
  return person;
}

async function drag({ mouse, keyboard }, [x0, y0], [x1, y1], held) {
  if (held) await keyboard.down(held);
  await mouse.move(x0, y0);
  await mouse.down();
  await mouse.move(x1, y1, { steps: 6 });
  await mouse.up();
  if (held) await keyboard.up(held);
}

/// Waits until so many edits are in the log and so many things can be seen; the hash.
async function shows(person, edits, visible) {
  let state;
  await until(() => `${visible} things after ${edits} edits (${JSON.stringify(state)})`, async () => {
    state = await person.state();
    return state.offset === String(edits) && state.visible === String(visible) && state.pending === '0';
  });
  return state.stateHash;
}

test('shapes, text, marker, moving, erasing, undo and redo by keys and mouse', async () => {
  const person = await demo('none');
  const { page } = person;
  assert.ok(await page.isVisible('#empty'));
  await page.keyboard.press('r');
  await drag(page, [200, 200], [400, 320]);
  await page.keyboard.press('o');
  await drag(page, [500, 200], [640, 280], 'Shift');
  await page.keyboard.press('a');
  await drag(page, [400, 260], [500, 260]);
  await page.keyboard.press('t');
  await page.mouse.click(250, 250);
  await page.waitForSelector('textarea.writing:focus');
  await page.keyboard.type('two');
  await page.keyboard.press('Enter');
  await page.keyboard.type('lines');
  await page.keyboard.press('Escape');
  await page.keyboard.press('m');
  await drag(page, [200, 400], [600, 420]);
  const drawn = await shows(person, 5, 5);
  assert.ok(!(await page.isVisible('#empty')));
  await page.keyboard.press('v');
  await page.mouse.click(200, 260);
  await drag(page, [200, 260], [220, 460]);
  assert.notEqual(await shows(person, 6, 5), drawn);
  await page.keyboard.press('e');
  await drag(page, [560, 150], [560, 330]);
  await shows(person, 7, 4);
  await page.keyboard.press('Control+z');
  await shows(person, 8, 5);
  await page.keyboard.press('Control+z');
  const back = await shows(person, 9, 5);
  await page.keyboard.press('Control+Shift+z');
  assert.notEqual(await shows(person, 10, 5), back);
  await page.keyboard.press('Control+a');
  await page.keyboard.press('Delete');
  await shows(person, 11, 0);
  assert.ok(await page.isVisible('#empty'));
  await page.keyboard.press('Control+z');
  await shows(person, 12, 5);
  assert.deepEqual(person.faults, []);
});

test('one finger draws, two zoom and draw nothing', async () => {
  const person = await demo('none', { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  const remote = await person.context.newCDPSession(person.page);
  const touch = (type, ...places) => remote.send('Input.dispatchTouchEvent', { type, touchPoints: places.map(([x, y], id) => ({ x, y, id })) });
  await touch('touchStart', [100, 300]);
  for (let at = 0; at < 20; at += 1) await touch('touchMove', [100 + at * 8, 300 + Math.sin(at / 2) * 40]);
  await touch('touchEnd');
  await shows(person, 1, 1);
  await touch('touchStart', [150, 400]);
  await touch('touchStart', [150, 400], [250, 400]);
  for (let at = 0; at < 10; at += 1) await touch('touchMove', [150 - at * 5, 400], [250 + at * 5, 400]);
  await touch('touchEnd');
  await until('another scale', async () => (await person.page.textContent('#zoom-reset')) !== '100 %');
  await shows(person, 1, 1);
});

test('a board of 10,000 strokes is read, drawn on, and written down as a snapshot', async () => {
  const person = await demo(10_000);
  await shows(person, 10_000, 10_000);
  await drag(person.page, [300, 300], [500, 350]);
  await shows(person, 10_001, 10_001);
  await until('a snapshot', () => person.page.evaluate(() => window.demo.gateway.room('try').caches.get('snapshot').entries.has('head')));
  assert.deepEqual(person.faults, []);
});

test('everything that can be pressed has a name, and the keys are told', async () => {
  const { page } = await demo('sketch');
  const nameless = await page.$$eval('button, input', (all) => all
    .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length)).map((one) => one.outerHTML));
  assert.deepEqual(nameless, []);
  await page.keyboard.press('?');
  assert.ok(await page.isVisible('#help'));
  await page.keyboard.press('Escape');
  await page.click('#theme');
  assert.equal(await page.getAttribute('html', 'data-theme'), 'dark');
});
