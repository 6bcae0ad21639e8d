// What the tests of the console stand on: `felixctl dev`, people who sign in at its provider, and a shell.
import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const PROGRAMS = process.env.FELIX_PROGRAMS ?? join(import.meta.dirname, '../../target/debug');
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const PATIENCE_MS = 60_000;
// Where screenshots for the documentation go; none are made without it.
export const IMAGES = process.env.FELIX_IMAGES;
// The page's files from here instead of those compiled into the program: `gateway/console`, for work on the page.
const PAGE = process.env.FELIX_CONSOLE;
const KINDS = { js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };

const home = mkdtempSync(join(tmpdir(), 'felix-console-'));
const { PATH, LANG } = process.env;
const env = { PATH: `${PROGRAMS}:${PATH}`, LANG, HOME: home, XDG_CONFIG_HOME: join(home, 'config'), XDG_DATA_HOME: join(home, 'data') };
let dev, known, browser;
// Everything the browser complained of; a policy that was violated is among it.
export const complaints = [];

/// What the node says of itself.
export const ready = () => known;

export function felixctl(args, input = '') {
  return new Promise((done, failed) => {
    const child = spawn(join(PROGRAMS, 'felixctl'), args, { env, stdio: ['pipe', 'pipe', 'pipe'] });
    // A command may end before it was written to; its exit status says how.
    child.stdin.on('error', () => {});
    let [out, err] = ['', ''];
    child.stdout.on('data', (bytes) => (out += bytes));
    child.stderr.on('data', (bytes) => (err += bytes));
    child.on('close', (exit) => (exit === 0 ? done(out) : failed(new Error(`felixctl ${args.join(' ')} ended with ${exit}: ${err}`))));
    child.stdin.end(input);
  });
}

/// What a line does in a shell: its status, and what it says. One that follows something is ended after `seconds`.
export function shell(line, seconds = 20) {
  return new Promise((done) => {
    execFile('timeout', [String(seconds), 'sh', '-c', line], { env }, (error, stdout, stderr) => done({ status: error?.code ?? 0, stdout, stderr }));
  });
}

/// Publishes a few lines four times a second; the answer ends it.
export function feeding(stream) {
  const feed = spawn(join(PROGRAMS, 'felixctl'), ['pub', stream], { env, stdio: ['pipe', 'ignore', 'ignore'] });
  feed.stdin.on('error', () => {});
  const timer = setInterval(() => feed.stdin.write('{"order": 1}\n'.repeat(20 + Math.round(Math.random() * 20))), 250);
  return () => {
    clearInterval(timer);
    feed.stdin.end();
  };
}

export async function begin() {
  mkdirSync(home, { recursive: true });
  const file = join(home, 'ready.json');
  dev = spawn(join(PROGRAMS, 'felixctl'), ['dev', '--data-dir', join(home, 'node'), '--port-base', '0', '--ready-file', file], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let err = '';
  dev.stderr.on('data', (bytes) => (err += bytes));
  const deadline = Date.now() + PATIENCE_MS;
  while (!existsSync(file)) {
    if (dev.exitCode !== null || Date.now() > deadline) throw new Error(`the node did not come up: ${err}`);
    await new Promise((passed) => setTimeout(passed, 50));
  }
  known = JSON.parse(readFileSync(file, 'utf8'));
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
}

export async function end() {
  await browser?.close();
  if (dev !== undefined && dev.exitCode === null) {
    const ended = new Promise((done) => dev.on('exit', done));
    dev.kill('SIGTERM');
    await ended;
  }
  rmSync(home, { recursive: true, force: true });
}

/// Answers with a file of the checkout as the gateway would with its own.
async function fromCheckout(route) {
  const name = new URL(route.request().url()).pathname.replace('/console/', '');
  const kind = KINDS[name.split('.').at(-1)];
  const found = ['dist', 'public'].map((part) => join(PAGE, part, name)).find((path) => kind !== undefined && existsSync(path));
  if (found === undefined) return route.continue();
  return route.fulfill({ body: readFileSync(found), contentType: kind });
}

/// A browser of its own, with nobody signed in.
export async function fresh(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, ...options });
  if (PAGE !== undefined) await context.route(/\/console\/(?!api\/)/, fromCheckout);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (said) => {
    if (/Content Security Policy|TrustedHTML|Trusted Type/i.test(said.text())) complaints.push(said.text());
  });
  return page;
}

/// Opens an address of the console as somebody, through the provider if need be.
export async function as(person, path, options) {
  const page = await fresh(options);
  await page.goto(new URL(path, known.console_url).href);
  await page.click('a:has-text("Sign in")');
  await page.click(`button:has-text("${person}")`);
  await page.waitForSelector('.view');
  return page;
}

export async function picture(page, name) {
  if (IMAGES !== undefined) await page.screenshot({ path: join(IMAGES, `console-${name}.png`) });
}
