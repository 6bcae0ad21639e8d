// Every view and every action of the console shows a felixctl command. Here each of them is pasted into a shell, with names
// and values that a shell or a command line could misread, and must do what the page says.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { as, begin, end, felixctl, ready, shell } from './console.mjs';

const NASTY = `-5 $(touch /tmp/felix-was-here) \`id\` "double" 'single' \\ !x`;
let page;

before(async () => {
  await begin();
  await felixctl(['stream', 'create', 'wild', '--shards', '2', '--max-attempts', '1']).catch(() => felixctl(['stream', 'create', 'wild', '--shards', '2']));
  await felixctl(['pub', 'wild', '--key=-k', '--', NASTY]);
  await felixctl(['pub', 'wild'], Array.from({ length: 30 }, (_, at) => `line ${at}`).join('\n'));
  await felixctl(['stream', 'create', 'plain']);
  await felixctl(['pub', 'plain'], Array.from({ length: 120 }, (_, at) => `{"order": ${at}, "city": "Porto"}`).join('\n'));
  await felixctl(['group', 'create', 'plain', 'billing', '--at', '10']);
  await felixctl(['cache', 'put', 'config', 'theme', 'light']);
  await felixctl(['cache', 'put', 'config', 'theme', 'dark']);
  await felixctl(['namespace', 'create', 'other']);
  await felixctl(['stream', 'create', 'inner', '-n', 'other']);
  await felixctl(['pub', 'inner', 'within', '-n', 'other']);
  page = await as('Ada', '/console/default/streams');
});

after(end);

/// The commands that a view shows, once it is there.
async function shown(path, wait = '.command-text') {
  await page.goto(new URL(`/console/${path}`, ready().console_url).href);
  await page.waitForSelector(`.view ${wait}`);
  await page.waitForFunction(() => document.querySelector('.view .skeleton') === null);
  return page.$$eval('.view .command-text', (all) => all.filter((one) => one.offsetParent !== null).map((one) => one.textContent));
}

/// Pastes a line; one that follows is ended after two seconds, which is how it is meant.
async function pasted(line) {
  const { status, stdout, stderr } = await shell(line, / (sub|watch|consume) /.test(line) ? 2 : 20);
  assert.ok(status === 0 || status === 124, `${line}\nended with ${status}: ${stderr}${stdout}`);
  return stdout;
}

const edits = async () => {
  if ((await page.getAttribute('button.switch', 'aria-checked')) !== 'true') await page.click('button.switch');
  await page.waitForSelector('body.editing');
};

test('what each view shows works in a shell as it is printed', async () => {
  const views = {
    'default/overview': /plain/, 'default/streams': /wild/, 'default/streams/plain?from=57&count=25': /"order": 57/,
    'default/streams/plain': /"order": 119/, 'default/streams/plain?from=-1h': /"order": 0/, 'default/streams/wild?shard=1&from=earliest': /./,
    'default/streams/plain/tail?from=100': /"order": 100/, 'default/streams/plain/groups': /billing/, 'default/streams/plain/settings': /plain/,
    'default/caches': /config/, 'default/caches/config': /theme/, 'default/caches/config?prefix=the': /theme/, 'default/caches/config/settings': /config/,
    'default/groups': /billing/, 'default/groups/plain/billing': /billing|10/, 'default/groups/plain/billing/letters': /^/,
    'access': /dev/, 'other/streams': /inner/, 'other/streams/inner': /within/,
  };
  for (const [view, wanted] of Object.entries(views)) {
    const lines = (await shown(view)).filter((line) => !/ seek /.test(line));
    assert.ok(lines.length > 0, `${view} shows none`);
    const said = [];
    for (const line of lines) said.push(await pasted(line));
    assert.match(said.join('\n'), wanted, `${view}: ${lines.join(' | ')}`);
  }
});

test('a page of records and its command are the same records', async () => {
  const [line] = await shown('default/streams/plain');
  const there = await page.$$eval('table.records tr[data-offset]', (rows) => rows.map((row) => row.querySelector('.preview').textContent));
  assert.deepEqual((await pasted(line)).trim().split('\n').map((one) => JSON.parse(one.replace(/^[^{]*/, ''))), there.map((one) => JSON.parse(one)));
});

test('a search is the same search, and nothing of what was searched for is run', async () => {
  const q = '$(touch /tmp/felix-was-here)';
  const [line] = await shown(`default/streams/wild?shard=0&from=earliest&q=${encodeURIComponent(q)}`, '.said b');
  const other = await shown(`default/streams/wild?shard=1&from=earliest&q=${encodeURIComponent(q)}`, '.said b');
  const said = [await shell(line), await shell(other[0])].map(({ stdout }) => stdout).join('');
  assert.ok(said.includes(q), `${line}\n${said}`);
  assert.equal((await shell('test -e /tmp/felix-was-here')).status, 1);
});

test('publishing by its command is publishing, whatever the words are', async () => {
  await page.goto(new URL('/console/default/streams/plain/publish', ready().console_url).href);
  await edits();
  for (const [key, header, value] of [['-k', '-h=-v', NASTY], ['', '', ''], ['a b', 'source=', 'two\nlines'], ['--', 'x=--', '--help']]) {
    await page.fill('input[name=key]', key);
    await page.fill('textarea[name=headers]', header);
    await page.fill('textarea[name=value]', value);
    const line = await page.textContent('.view .command-text');
    await pasted(line);
    const last = JSON.parse((await felixctl(['read', 'plain', '--json'])).trim().split('\n').at(-1));
    assert.equal(last.value, value, line);
    assert.equal(last.key ?? '', key, line);
    assert.deepEqual((last.headers ?? []).map((one) => `${one.name}=${one.value}`), header === '' ? [] : [header], line);
  }
});

test('setting, removing and counting by their commands is what the page says', async () => {
  await shown('default/caches/config?key=theme', 'form .command-text');
  await edits();
  await page.waitForSelector('label:has-text("New value") textarea');
  await page.fill('label:has-text("New value") textarea', NASTY);
  await page.fill('label:has-text("Seconds to live") input', '600');
  await pasted(await page.textContent('form.view .command-text'));
  assert.equal((await felixctl(['cache', 'get', 'config', 'theme'])).replace(/\n$/, ''), NASTY);
  await shown('default/caches/config?key=theme', 'form .command-text');
  await edits();
  await page.click('button:has-text("Remove")');
  const line = await page.textContent('dialog .command-text');
  await page.keyboard.press('Escape');
  await pasted(line);
  await assert.rejects(felixctl(['cache', 'get', 'config', 'theme']));
  await page.goto(new URL('/console/default/caches/config/counters?key=n', ready().console_url).href);
  await edits();
  await page.fill('input[aria-label=Add]', '-7');
  await page.click('button:has-text("Add")');
  await pasted(await page.textContent('dialog .command-text'));
  await page.keyboard.press('Escape');
  assert.match(await felixctl(['counter', 'get', 'config', 'n']), /-7/);
});

test('moving a group and working its dead letters by their commands is what the page says', async () => {
  const [first] = await shown('default/groups/plain/billing?to=offset&at=57', 'form');
  assert.ok(first !== undefined);
  const seek = (await page.$$eval('.view .command-text', (all) => all.map((one) => one.textContent))).find((line) => / seek /.test(line));
  await pasted(seek);
  assert.equal(JSON.parse(await felixctl(['group', 'describe', 'plain', 'billing', '--json'])).items[0].committed, 57);
  // A worker that fails every time, until the group gives up on two records.
  await shell('felixctl group consume plain billing --exec false --delay 1ms --visibility 5s --count 2', 30);
  const letters = async () => JSON.parse(await felixctl(['group', 'dead-letters', 'ls', 'plain', 'billing', '--json'])).items.map(({ offset }) => offset);
  for (let tries = 0; (await letters()).length < 2 && tries < 60; tries += 1) await shell('felixctl group consume plain billing --exec false --delay 1ms', 2);
  const [one, two] = await letters();
  assert.ok(two !== undefined, 'two dead letters');
  for (const [offset, button] of [[one, 'Redrive'], [two, 'Discard']]) {
    await shown('default/groups/plain/billing/letters', `[data-offset="${offset}"]`);
    await edits();
    await page.check(`input[aria-label="Choose ${offset}"]`);
    await page.click(`button:has-text("${button}")`);
    const line = await page.textContent('dialog .command-text');
    await page.keyboard.press('Escape');
    await pasted(line);
    assert.ok(!(await letters()).includes(offset), line);
  }
});
