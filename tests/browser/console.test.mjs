// The console in a real browser on a real node: what users of other consoles asked for in vain, and what a hostile
// payload must not be able to do.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { IMAGES, as, begin, complaints, end, feeding, felixctl, fresh, picture, ready } from './console.mjs';

const HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script><svg onload="window.hacked=1">';

before(async () => {
  await begin();
  const records = Array.from({ length: 100 }, (_, at) => JSON.stringify({ order: at, city: ['Porto', 'Kraków', 'Nagoya'][at % 3], total: at * 7 }));
  await felixctl(['stream', 'create', 'small', '--sync', 'on_commit']);
  await felixctl(['pub', 'small'], `${records.slice(0, 60).join('\n')}\n`);
  await felixctl(['pub', 'small', HOSTILE, '--key', HOSTILE, '-H', `evil=${HOSTILE}`, '-H', 'trace=needle-in-a-header']);
  await felixctl(['pub', 'small'], `${records.slice(61).join('\n')}\n`);
  await felixctl(['group', 'create', 'small', 'billing', '--at', '10']);
  // A namespace that is lived in: several shards, groups that are behind, and what they set aside.
  await felixctl(['stream', 'create', 'clicks', '--shards', '4']);
  await felixctl(['stream', 'create', 'invoices', '--shards', '2']);
  for (const [stream, many] of [['clicks', 600], ['invoices', 150], ['orders', 400]]) {
    const lines = Array.from({ length: many }, (_, at) => JSON.stringify({ id: at, page: `/offer/${at % 37}`, total: (at * 7919) % 20000 }));
    await felixctl(['pub', stream], `${lines.join('\n')}\n`);
  }
  await felixctl(['group', 'create', 'orders', 'shipping', '--at', '120']);
  await felixctl(['group', 'create', 'clicks', 'sessionizer']);
  await felixctl(['group', 'create', 'invoices', 'mailer', '--at', 'latest']);
  await felixctl(['cache', 'put', 'config', 'theme', '"light"']);
  await felixctl(['cache', 'put', 'config', 'theme', '"dark"']);
});

after(end);

const offsets = (page) => page.$$eval('table.records tr[data-offset]', (rows) => rows.map((row) => Number(row.dataset.offset)));

test('a person signs in, comes back to the view she asked for, and can only look', async () => {
  const page = await as('Ada', '/console/default/streams');
  await page.waitForSelector('tr:has-text("small")');
  assert.equal(new URL(page.url()).pathname, '/console/default/streams');
  assert.equal(await page.getAttribute('button.switch', 'aria-checked'), 'false');
  await page.goto(new URL('/console/default/streams/small/publish', ready().console_url).href);
  await page.waitForSelector('text=Switch editing on at the top to publish.');
  assert.ok(await page.isDisabled('button[type=submit]:has-text("Publish")'));
  await page.context().close();
});

test('a jump to offset 57 of 100 begins with row 57 and says so, and pages go both ways', async () => {
  const page = await as('Ada', '/console/default/streams/small');
  await page.selectOption('select[aria-label="Begin with"]', 'offset');
  await page.fill('input[aria-label=Start]', '57');
  await page.selectOption('select[aria-label=Rows]', '25');
  await page.click('button:has-text("Show")');
  await page.waitForSelector('b[data-from="57"]');
  assert.match(await page.textContent('.said'), /From offset 57/);
  assert.deepEqual((await offsets(page)).slice(0, 2), [57, 58]);
  await page.keyboard.press('Escape');
  await page.click('[data-page=next]');
  await page.waitForSelector('b[data-from="82"]');
  assert.equal((await offsets(page))[0], 82);
  await page.click('[data-page=back]');
  await page.waitForSelector('b[data-from="57"]');
  await page.click('tr[data-offset="58"]');
  await picture(page, 'records');
  // Where it begins is in the address: whoever gets the link sees the same.
  const link = page.url();
  await page.goto(link);
  await page.waitForSelector('b[data-from="57"]');
  await page.context().close();
});

test('an offset that is not there yet is refused in words, with its code and what to do', async () => {
  const page = await as('Ada', '/console/default/streams/small?from=5000');
  await page.waitForSelector('.problem');
  const said = await page.textContent('.problem');
  assert.match(said, /offset_in_future/);
  assert.match(said, /Request [0-9a-f]{16}/);
  assert.match(said, /100/);
  await page.context().close();
});

test('a search looks into headers, and its filters are kept in the address', async () => {
  const page = await as('Ada', '/console/default/streams/small?from=earliest');
  await page.waitForSelector('table.records');
  await page.keyboard.press('/');
  await page.keyboard.type('needle-in-a-header');
  await page.uncheck('label.check:has-text("key") input');
  await page.uncheck('label.check:has-text("value") input');
  await page.click('button:has-text("Show")');
  await page.waitForSelector('text=1 match');
  assert.deepEqual(await offsets(page), [60]);
  const saved = new URL(page.url());
  assert.equal(saved.searchParams.get('in'), 'headers');
  const other = await as('Ada', saved.pathname + saved.search);
  await other.waitForSelector('text=1 match');
  assert.deepEqual(await offsets(other), [60]);
  await other.context().close();
  await page.context().close();
});

test('offsets of a group are set after a dry run that shows where it is, where it goes, and the end', async () => {
  const page = await as('Ada', '/console/default/groups/small/billing');
  await page.selectOption('select[aria-label="Move to"]', 'offset');
  await page.fill('input[aria-label="Where to"]', '57');
  await page.click('button:has-text("Dry run")');
  await page.waitForSelector('.moves');
  const row = async () => (await page.$$eval('.moves tbody tr td', (cells) => cells.map((cell) => cell.textContent))).slice(0, 4);
  assert.deepEqual(await row(), ['0', '10', '57', '100']);
  assert.ok(await page.isDisabled('button:has-text("Apply this")'));
  const where = async () => JSON.parse(await felixctl(['group', 'describe', 'small', 'billing', '--json'])).items[0].committed;
  assert.equal(await where(), 10);
  await page.click('button.switch');
  await page.waitForSelector('body.editing');
  await page.click('button:has-text("Dry run")');
  await page.waitForSelector('.moves');
  await picture(page, 'group');
  await page.click('button:has-text("Apply this")');
  const agree = page.locator('dialog button:has-text("Move it")');
  assert.ok(await agree.isDisabled());
  await page.fill('dialog input', 'billing');
  await agree.click();
  await page.waitForSelector('text=The group was moved.');
  assert.equal(await where(), 57);
  await page.context().close();
});

test('a hostile payload stays text wherever it is shown', async () => {
  const page = await as('Ada', '/console/default/streams/small?from=60&count=1');
  await page.click('tr[data-offset="60"]');
  await page.waitForSelector('.payload-text');
  assert.equal(await page.textContent('.payload-text'), HOSTILE);
  for (const how of ['text', 'json', 'hex', 'base64']) await page.selectOption('select[aria-label=Decoder]', how);
  const alone = async () => {
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.$$eval('main img, main script, main [onerror], main [onload]', (all) => all.length), 0);
  };
  await alone();
  await page.goto(new URL('/console/default/streams/small/tail?from=60', ready().console_url).href);
  await page.waitForSelector('.tail-line[data-offset="60"]');
  await page.click('.tail-line[data-offset="60"]');
  await page.waitForSelector('dialog .payload-text');
  await alone();
  // Not even a script that is run on purpose can make markup of text here.
  const refused = await page.evaluate(() => {
    try {
      document.createElement('div').innerHTML = '<b>x</b>';
      return false;
    } catch (error) {
      return error instanceof TypeError;
    }
  });
  assert.ok(refused);
  complaints.splice(0, complaints.length, ...complaints.filter((one) => !/innerHTML|TrustedHTML/.test(one)));
  const answer = await fetch(ready().console_url);
  assert.match(answer.headers.get('content-security-policy'), /default-src 'self'.*frame-ancestors 'none'/);
  assert.equal(answer.headers.get('access-control-allow-origin'), null);
  await page.context().close();
});

test('a live tail pauses, counts, and goes on', async () => {
  const page = await as('Ada', '/console/default/streams/orders/tail');
  await page.waitForSelector('.live-dot.live');
  await felixctl(['pub', 'orders', 'first']);
  await page.waitForSelector('.tail-line:has-text("first")');
  await page.click('[data-pause]');
  await felixctl(['pub', 'orders', 'second']);
  await page.waitForSelector('[data-tail=numbers]:has-text("1 held")');
  assert.equal(await page.locator('.tail-line:has-text("second")').count(), 0);
  await page.click('[data-pause]');
  await page.waitForSelector('.tail-line:has-text("second")');
  assert.match(await page.textContent('[data-tail=numbers]'), /2 received · 0 dropped/);
  await page.context().close();
});

test('what is published on the page is confirmed by name and lands where it says', async () => {
  const page = await as('Ada', '/console/default/streams/orders/publish');
  await page.click('button.switch');
  await page.waitForSelector('body.editing');
  await page.fill('input[name=key]', 'cust-7');
  await page.fill('textarea[name=headers]', 'source=console');
  await page.fill('textarea[name=value]', '{"from": "the page"}');
  assert.match(await page.textContent('.command-text'), /felixctl pub orders '\{"from": "the page"\}' --key cust-7 -H source=console/);
  await page.click('button[type=submit]:has-text("Publish")');
  assert.match(await page.textContent('dialog'), /stream orders under key cust-7/);
  await page.click('dialog button:has-text("Publish")');
  await page.waitForSelector('.notice.good');
  const last = (await felixctl(['read', 'orders', '--json'])).trim().split('\n').at(-1);
  const read = JSON.parse(last);
  assert.deepEqual([read.key, read.headers], ['cust-7', JSON.parse(last).headers]);
  assert.match(last, /the page/);
  await page.context().close();
});

test('an entry that somebody changed meanwhile is not overwritten, and its history is shown', async () => {
  const page = await as('Ada', '/console/default/caches/config?key=theme');
  await page.waitForSelector('.card:has-text("History") tbody tr');
  assert.equal(await page.locator('.card:has-text("History") tbody tr').count(), 2);
  await page.click('button.switch');
  await page.waitForSelector('label:has-text("New value") textarea');
  await picture(page, 'cache');
  await felixctl(['cache', 'put', 'config', 'theme', '"meanwhile"']);
  await page.fill('label:has-text("New value") textarea', '"mine"');
  await page.click('button:has-text("Set if version")');
  await page.click('dialog button:has-text("Set")');
  await page.waitForSelector('.problem:has-text("version_mismatch")');
  assert.match(await felixctl(['cache', 'get', 'config', 'theme']), /meanwhile/);
  await page.click('button:has-text("Load what stands there now")');
  await page.waitForSelector('.payload-text:has-text("meanwhile")');
  await page.context().close();
});

test('a person without rights is shown none of it, and who signs out leaves nothing on the page', async () => {
  const page = await as('Ada', '/console/access');
  await page.waitForSelector('.facts');
  assert.match(await page.textContent('.facts'), /ada|[0-9a-f]{64}/i);
  await page.click('button:has-text("Sign out")');
  await page.waitForSelector('.sign-in');
  assert.match(await page.getAttribute('.sign-in a', 'href'), /&prompt=login$/);
  assert.equal((await page.evaluate(async () => (await fetch('/console/api/me')).status)), 401);
  assert.doesNotMatch(await page.textContent('body'), /Ada|[0-9a-f]{64}/);
  await page.context().close();
});

test('the page fits a telephone and the dark, and no view breaks its own rules', async () => {
  const phone = await as('Ada', '/console/default/overview', { viewport: { width: 380, height: 780 }, colorScheme: 'dark' });
  for (const path of ['overview', 'streams', 'streams/small', 'streams/small/tail', 'streams/small/settings', 'caches', 'caches/config?key=theme', 'groups', 'groups/small/billing', 'groups/small/billing/letters', 'kafka']) {
    await phone.goto(new URL(`/console/default/${path}`, ready().console_url).href);
    await phone.waitForSelector('.view > *:not(.notice-slot)');
    const wider = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wider <= 0, `${path} is ${wider} px too wide`);
  }
  await phone.context().close();
  const dark = await as('Ada', '/console/default/overview', { colorScheme: 'dark' });
  const stop = feeding('orders');
  await dark.waitForSelector('.chart polyline');
  if (IMAGES !== undefined) await dark.waitForTimeout(20_000);
  await picture(dark, 'overview');
  stop();
  await dark.context().close();
  assert.deepEqual(complaints, []);
});
