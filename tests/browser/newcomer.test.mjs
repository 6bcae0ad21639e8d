// What a newcomer does: packs the package, installs it into an empty project, and follows its README to the letter, in Node
// and in a page, against `felixctl dev`.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { Node, Person, endAll, until } from './bench.mjs';

const PACKAGE = join(import.meta.dirname, '../../clients/typescript');
const WS = join(PACKAGE, 'node_modules/ws');
const TSC = join(PACKAGE, 'node_modules/.bin/tsc');
const without = (path, what) => ({ skip: existsSync(path) ? false : `${what} is not installed: npm ci --prefix clients/typescript` });

const project = mkdtempSync(join(tmpdir(), 'felix-newcomer-'));
const run = (program, args) => promisify(execFile)(program, args, { cwd: project });
let node, server;

before(async () => {
  await run('npm', ['pack', PACKAGE, '--silent', '--pack-destination', project]);
  await run('npm', ['init', '-y']);
  await run('npm', ['install', './felix-web-0.1.0.tgz', '--offline', '--no-audit', '--no-fund']);
  const readme = readFileSync(join(project, 'node_modules/@felix/web/README.md'), 'utf8');
  for (const [, block] of readme.matchAll(/```(?:js|html)\n([\s\S]*?)```/g)) {
    const name = /^(?:\/\/|<!--) (\S+)/.exec(block)?.[1];
    if (name !== undefined) writeFileSync(join(project, name), block);
  }
  node = await Node.started();
});

after(async () => {
  server?.kill();
  await endAll();
  rmSync(project, { recursive: true, force: true });
});

test('the package brings its licence, its types and nothing that it does not need', async () => {
  const { stdout } = await run('npm', ['ls', '--all', '--parseable']);
  assert.equal(stdout.trim().split('\n').length, 2, stdout);
  const there = (name) => existsSync(join(project, 'node_modules/@felix/web', name));
  assert.ok(there('LICENSE') && there('README.md') && there('dist/index.d.ts') && there('dist/react/index.js'));
  assert.ok(!there('src') && !there('test') && !there('examples'));
});

test("the README's program runs in Node, and the second one hears the first", without(WS, 'the package ws'), async () => {
  cpSync(WS, join(project, 'node_modules/ws'), { recursive: true });
  const talk = async (name) => (await run(process.execPath, ['talk.mjs', node.ready.gateway_url, name])).stdout.trim().split('\n');
  assert.deepEqual(await talk('Ada'), ["0 { name: 'Ada', text: 'hello' }"]);
  assert.equal((await talk('Grace')).length, 2);
});

test("the README's page signs in by cookie, shows what was said, and says something", async () => {
  server = spawn(process.execPath, ['serve.mjs', node.ready.gateway_url, '0'], { cwd: project, stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  server.stdout.on('data', (bytes) => (said += bytes));
  const origin = await until("the newcomer's server", () => /http:\/\/127\.0\.0\.1:\d+/.exec(said)?.[0]);
  const { page, faults } = await Person.at({ origin });
  await page.goto(origin);
  await page.click('button:has-text("Linus")');
  await page.waitForURL(`${origin}/`);
  await page.waitForSelector('#state:has-text("connected")');
  await page.fill('#say input', 'from a page');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#said li:has-text("from a page")');
  assert.deepEqual(faults, []);
});

test('its types hold under a strict compiler that looks into them, with the DOM and without', without(TSC, 'TypeScript'), async () => {
  mkdirSync(join(project, 'typed'));
  writeFileSync(join(project, 'typed/use.ts'), `
    import { connect, FelixError, type Event } from "@felix/web";
    import { FakeGateway } from "@felix/web/fake";
    import { GatewaySignIn, SignIn } from "@felix/web/sign-in";
    export async function use(): Promise<number | null> {
      const gateway = new FakeGateway({ field: "room", streams: [{ alias: "edits" }] });
      const client = await connect({ url: "ws://any/ws", scope: { field: "room", value: "r" }, token: "ann", webSocket: gateway.WebSocket });
      client.subscribe("edits", { onEvent: (event: Event) => void event.json() });
      const offset = await client.publish("edits", new Float32Array(2)).catch((error: unknown) => { throw error instanceof FelixError ? error : new Error("other"); });
      await client.counter("n").add("k");
      client.close();
      return offset;
    }
    export const ways = [SignIn, GatewaySignIn];
  `);
  const page = ['--types', ''];
  const program = ['--types', 'node', '--typeRoots', join(PACKAGE, 'node_modules/@types')];
  for (const around of [['--lib', 'ES2022,DOM', ...page], ['--lib', 'ESNext,DOM', ...page], ['--lib', 'ES2022', ...program]]) {
    for (const resolution of [['--module', 'NodeNext'], ['--module', 'ESNext', '--moduleResolution', 'bundler']]) {
      const args = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--skipLibCheck', 'false', '--target', 'ES2022', ...around, ...resolution];
      await run(TSC, [...args, 'typed/use.ts']).catch(({ stdout }) => assert.fail(`${around} ${resolution}:\n${stdout}`));
    }
  }
});
