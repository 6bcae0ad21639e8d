// The pictures of docs/images: the whiteboard and the console on a real node, with what a node that is used has on it.
//
//   FELIX_PROGRAMS=target/debug node tests/browser/pictures.mjs docs/images
//
// Pages are this checkout's, whatever the programs were built with.
import { join, resolve } from 'node:path';

const HERE = import.meta.dirname;
const WHITEBOARD = join(HERE, '../../clients/typescript/examples/whiteboard/dist');
process.env.FELIX_CONSOLE ??= join(HERE, '../../gateway/console');
const [images = 'docs/images'] = process.argv.slice(2);
const { as, begin, end, feeding, felixctl, fresh, ready, shell } = await import('./console.mjs');
const { Person, company, endAll } = await import('./bench.mjs');
const { scribble } = await import(join(WHITEBOARD, 'examples/whiteboard/src/demo_strokes.js'));
const { writeEdit } = await import(join(WHITEBOARD, 'examples/whiteboard/src/edits.js'));

const only = process.env.ONLY?.split(',');
// `ONLY=whiteboard` or `console`; `ONLY=more` makes one of every view, to look through.
const wanted = (name) => (only === undefined ? name !== 'more' : only.some((one) => name.startsWith(one)));
const taken = (page, name) => page.screenshot({ path: resolve(images, `${name}.png`) });

/// Somebody who moves a cursor about and has the page drawn on, until he is stopped.
async function moves(page, places) {
  for (const [x, y] of places) await page.mouse.move(x, y, { steps: 4 });
}

async function whiteboard() {
  const firm = await company(0, ['release-plan', 'nothing-yet'], { byCookie: 1 });
  const arrives = async (name, options, board = 'release-plan') => {
    const person = await Person.at(firm.door.cables[0], options);
    await person.opens(board);
    await person.signsIn(name);
    return person.page;
  };
  const plan = scribble('sketch').map((edit) => JSON.stringify({ value: JSON.stringify(writeEdit(edit)) }));
  for (const line of plan) await firm.node.does('pub', 'board-release-plan-edits', '--', JSON.parse(line).value);
  const [ann, kofi, linus] = [await arrives('ada'), await arrives('kofi'), await arrives('linus')];
  const shown = async (page, name) => {
    await moves(kofi, [[600, 420], [650, 470]]);
    await moves(linus, [[900, 360], [960, 330]]);
    await page.waitForTimeout(400);
    await taken(page, name);
  };
  await shown(ann, 'whiteboard');
  const small = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };
  const phone = await arrives('grace', { ...small, deviceScaleFactor: 2 });
  await shown(phone, 'whiteboard-phone');
  const dark = await arrives('grace', { colorScheme: 'dark' });
  await dark.click('#history');
  await dark.waitForFunction((wanted) => Number(document.querySelector('#slider').max) >= wanted, plan.length);
  await dark.fill('#slider', String(Math.round(plan.length * 0.7)));
  await dark.waitForTimeout(300);
  await taken(dark, 'whiteboard-history-dark');
  if (wanted('more')) await more(firm, arrives, dark, small);
}

async function more(firm, arrives, dark, small) {
  const darkPhone = await arrives('grace', { ...small, colorScheme: 'dark' });
  await taken(darkPhone, 'more-phone-dark');
  await darkPhone.tap('#history');
  await darkPhone.waitForTimeout(500);
  await taken(darkPhone, 'more-phone-history');
  const none = await arrives('zoe', {}, 'nothing-yet');
  await taken(none, 'more-empty');
  const nobody = await Person.at(firm.door.cables[0]);
  await nobody.opens('release-plan');
  await nobody.page.waitForSelector('#sign-in[open]');
  await taken(nobody.page, 'more-sign-in');
  await none.context().setOffline(true);
  firm.door.cables[0].pull();
  await none.waitForSelector('#retry:not([hidden])', { timeout: 20_000 });
  await moves(none, [[300, 300]]);
  await none.mouse.down();
  await moves(none, [[500, 380], [700, 250]]);
  await none.mouse.up();
  await none.waitForTimeout(300);
  await taken(none, 'more-offline');
  await none.setViewportSize({ width: 390, height: 844 });
  await none.waitForTimeout(300);
  await taken(none, 'more-offline-phone');
  await dark.click('#history-close');
  await dark.keyboard.press('?');
  await taken(dark, 'more-help-dark');
}

async function lived() {
  for (const [stream, shards] of [['clicks', 4], ['invoices', 2], ['telemetry', 3]]) await felixctl(['stream', 'create', stream, '--shards', String(shards)]);
  const cities = ['Porto', 'Kraków', 'Nagoya', 'Tromsø', 'Ljubljana'];
  for (const [stream, many] of [['clicks', 9000], ['invoices', 700], ['orders', 2400], ['telemetry', 4000]]) {
    const line = (at) => JSON.stringify({ value: JSON.stringify({ id: 10_000 + at, customer: `cust-${at % 37}`, city: cities[at % 5], total: ((at * 7919) % 20000) / 100, paid: at % 3 !== 0 }), key: `cust-${at % 37}`, headers: [{ name: 'source', value: at % 2 ? 'web' : 'app' }] });
    await felixctl(['pub', stream, '--ndjson'], `${Array.from({ length: many }, (_, at) => line(at)).join('\n')}\n`);
  }
  for (const [stream, group, at] of [['orders', 'billing', '2100'], ['orders', 'shipping', 'latest'], ['clicks', 'sessionizer', '400'], ['invoices', 'mailer', 'latest'], ['telemetry', 'alerts', '900']]) {
    await felixctl(['group', 'create', stream, group, '--at', at]);
  }
  await shell("felixctl group poll orders billing --max 4 && for at in 1 2 3 4 5 6; do felixctl group nack orders billing 2100 2101 2102; felixctl group poll orders billing --max 3; done", 20);
  for (const value of ['"light"', '"dark"', '"auto"', '"dark"']) await felixctl(['cache', 'put', 'config', 'theme', value]);
  await felixctl(['cache', 'put', 'config', 'limits', '{"rate": 100, "burst": 400}']);
  await felixctl(['cache', 'put', 'config', 'banner', '{"text": "We move on Sunday", "until": "2026-12-06"}', '--ttl', '2h']);
}

async function console_() {
  await lived();
  const stops = ['clicks', 'orders', 'telemetry'].map(feeding);
  const at = async (page, path) => {
    await page.goto(new URL(`/console/${path}`, ready().console_url).href);
    await page.waitForFunction(() => document.querySelector('.view') !== null && document.querySelector('.view .skeleton') === null);
    await page.waitForTimeout(600);
  };
  const dark = await as('Ada', '/console/default/overview', { viewport: { width: 1280, height: 800 }, colorScheme: 'dark' });
  await dark.waitForSelector('.chart polyline');
  await dark.waitForTimeout(only === undefined ? 50_000 : 12_000);
  await taken(dark, 'console-overview');
  const page = await as('Ada', '/console/default/streams', { viewport: { width: 1280, height: 800 } });
  await at(page, 'default/streams/invoices?from=57');
  await page.click('tr[data-offset="58"]');
  await page.waitForTimeout(300);
  await taken(page, 'console-records');
  await at(page, 'default/groups/orders/billing?to=offset&at=1800');
  await page.click('button.switch');
  await page.waitForSelector('body.editing');
  await page.waitForTimeout(500);
  await page.click('button:has-text("Dry run")');
  await page.waitForSelector('.moves');
  await taken(page, 'console-group');
  await at(page, 'default/caches/config?key=theme');
  await page.click('button.switch');
  await page.waitForSelector('label:has-text("New value") textarea');
  await page.waitForTimeout(500);
  await taken(page, 'console-cache');
  if (wanted('more')) {
    const views = { streams: 'default/streams', settings: 'default/streams/clicks/settings', tail: 'default/streams/orders/tail', publish: 'default/streams/orders/publish', caches: 'default/caches', groups: 'default/groups', letters: 'default/groups/orders/billing/letters', kafka: 'default/kafka', access: 'access', watch: 'default/caches/config/watch', counters: 'default/caches/config/counters?key=n' };
    const phone = await as('Ada', '/console/default/overview', { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
    for (const [name, path] of Object.entries(views)) {
      await at(page, path);
      await taken(page, `more-${name}`);
      await at(phone, path);
      await taken(phone, `more-phone-${name}`);
    }
    await phone.click('.menu-button');
    await phone.waitForTimeout(300);
    await taken(phone, 'more-phone-menu');
    const nobody = await fresh({ viewport: { width: 1280, height: 800 } });
    await nobody.goto(ready().console_url);
    await nobody.waitForSelector('.sign-in');
    await taken(nobody, 'more-console-sign-in');
  }
  for (const stop of stops) stop();
}

try {
  if (wanted('whiteboard') || wanted('more')) await whiteboard();
  await endAll();
  if (wanted('console') || wanted('more')) {
    await begin();
    await console_();
  }
} finally {
  await end();
  await endAll();
}
