// What the tests of signing in stand on: providers, a node of Felix, people with directories of their own, a browser.
//
// Everything is started here, on this machine's loopback, and ended when the tests are over.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

// Directory of our programs, and of the Go provider's program.
export const PROGRAMS = process.env.FELIX_PROGRAMS ?? join(import.meta.dirname, '../../target/debug');
export const ZITADEL = process.env.FELIX_ZITADEL ?? join(tmpdir(), 'felix-zitadel');
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
// Longer than anything here should take; a test that hangs says so.
const PATIENCE_MS = 60_000;

const directory = mkdtempSync(join(tmpdir(), 'felix-identity-'));
export const endings = [];
// Everything that any program of ours wrote, for the test that looks for secrets in it.
export const written = [];

export async function endAll() {
  for (const end of endings.reverse()) await end();
  rmSync(directory, { recursive: true, force: true });
}

/// Calls until the answer is not undefined.
export async function until(what, attempt) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await attempt();
    if (found !== undefined) return found;
    if (Date.now() > deadline) throw new Error(`${what} did not come about in ${PATIENCE_MS} ms`);
    await new Promise((passed) => setTimeout(passed, 50));
  }
}

export function keep(name, child) {
  const kept = { name, out: '', err: '' };
  written.push(kept);
  child.stdout.on('data', (bytes) => (kept.out += bytes));
  child.stderr.on('data', (bytes) => (kept.err += bytes));
  return kept;
}

/// Environment of a program: ours alone, so that nothing of the machine's gets in.
export function surroundings(home, extra) {
  const { PATH, LANG } = process.env;
  return { PATH, LANG, HOME: home, XDG_CONFIG_HOME: join(home, 'config'), XDG_DATA_HOME: join(home, 'data'), ...extra };
}

/// A provider in a process of its own, which says where it is in its first line.
export async function provider(name, command, args, environment = {}) {
  const child = spawn(command, args, { env: { ...process.env, ...environment }, stdio: ['ignore', 'pipe', 'pipe'] });
  const said = { out: '', err: '' };
  child.stdout.on('data', (bytes) => (said.out += bytes));
  child.stderr.on('data', (bytes) => (said.err += bytes));
  endings.push(() => child.kill());
  // Between its lines of JSON a provider may have warnings of its own.
  const lines = () => said.out.split('\n').slice(0, -1).filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
  const { issuer } = await until(`the provider ${name}`, () => {
    if (child.exitCode !== null) throw new Error(`${name} ended: ${said.err}`);
    return lines()[0];
  });
  // What it gave away later; see provider.mjs.
  return { issuer, given: () => lines().slice(1) };
}

export const certified = (environment) =>
  provider('oidc-provider', process.execPath, [join(import.meta.dirname, 'provider.mjs')], environment);
export const zitadel = () => provider('zitadel', ZITADEL, []);

/// `felixctl dev`, kept in a directory of its own, with more in its environment if need be.
export async function node(name, environment = {}) {
  const home = join(directory, name);
  mkdirSync(home, { recursive: true });
  const ready = join(home, 'ready.json');
  const child = spawn(
    join(PROGRAMS, 'felixctl'),
    ['dev', '--data-dir', join(home, 'node'), '--port-base', '0', '--ready-file', ready],
    { env: surroundings(home, environment), stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const kept = keep(`${name}: felixctl dev`, child);
  const ended = new Promise((done) => child.on('exit', done));
  endings.push(async () => {
    child.kill('SIGTERM');
    await ended;
  });
  await until(`the node ${name}`, () => {
    if (child.exitCode !== null) throw new Error(`the node ended: ${kept.err}`);
    return existsSync(ready) ? true : undefined;
  });
  const fields = JSON.parse(readFileSync(ready, 'utf8'));
  // The context `dev` was written into the node's own home: whoever lives there administers the tenant.
  return { ...fields, home, log: kept, admin: new Person(`${name}-admin`, home) };
}

/// Somebody at a terminal, with a home of his own.
export class Person {
  constructor(name, home = join(directory, name)) {
    this.name = name;
    this.home = home;
    mkdirSync(home, { recursive: true });
  }

  /// Flags that say where a node is and nothing about who asks.
  static at(node) {
    return [
      '--brokers', node.brokers.join(','), '--ca-file', node.ca_file, '--server-name', node.server_name,
      '--controlplane-url', node.controlplane_url, '--tenant', node.tenant,
    ];
  }

  get credentials() {
    return join(this.home, 'config/felixctl/credentials/default.json');
  }

  /// Starts a command and gives its process and what it has written so far.
  begin(args, environment = {}) {
    const child = spawn(join(PROGRAMS, 'felixctl'), args, {
      env: surroundings(this.home, environment),
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    // A command may end before it was written to; its exit status says how.
    child.stdin.on('error', () => {});
    const kept = keep(`${this.name}: felixctl ${args.join(' ')}`, child);
    const ended = new Promise((done) => child.on('close', (exit) => done({ exit, ...kept })));
    return { child, kept, ended };
  }

  /// Carries a command out and gives its exit status and output.
  async run(args, { input = '', environment = {} } = {}) {
    const { child, ended } = this.begin(args, environment);
    child.stdin.end(input);
    return ended;
  }

  /// The same, and the exit status must be 0.
  async does(args, options) {
    const { exit, out, err } = await this.run(args, options);
    if (exit !== 0) throw new Error(`felixctl ${args.join(' ')} ended with ${exit}: ${err}${out}`);
    return out;
  }

  /// The settings another program prints, and what it says of them; whether it likes them does not matter.
  async prints(program, environment) {
    const child = spawn(program, ['--print-config'], {
      env: surroundings(this.home, environment),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const kept = keep(`${program} --print-config`, child);
    await new Promise((done) => child.on('close', done));
    return kept;
  }

  /// The JSON that a command prints.
  async shows(args, options) {
    return JSON.parse(await this.does([...args, '--json'], options));
  }

  /// The failure of a command as `--json` prints it.
  async fails(args, options) {
    const { exit, out, err } = await this.run([...args, '--json'], options);
    if (exit === 0) throw new Error(`felixctl ${args.join(' ')} was not refused: ${out}`);
    return { exit, ...JSON.parse(err.trim().split('\n').at(-1)) };
  }

  /// Signs in with the browser: `visit` does what the person does on the provider's pages.
  async signsIn(args, visit) {
    const { child, kept, ended } = this.begin(['login', '--no-browser', ...args]);
    child.stdin.end();
    const url = await until('the address to open', () => {
      if (child.exitCode !== null) return null;
      return kept.err.match(/^ +(http\S+)$/m)?.[1];
    });
    if (url !== null) await visit(url, kept.err);
    return ended;
  }
}

let browser;

/// A page of a browser that knows nobody, and every request it made with its headers.
export async function page(options = {}) {
  browser ??= await chromium.launch({
    executablePath: CHROMIUM,
    args: [
      // The sandbox needs another user than root.
      ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
      '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync',
    ],
  });
  if (endings.at(-1) !== close) endings.push(close);
  const context = await browser.newContext(options);
  const opened = await context.newPage();
  opened.setDefaultTimeout(PATIENCE_MS);
  const requests = [];
  opened.on('request', (request) => requests.push({ url: request.url(), headers: request.headers() }));
  return { page: opened, requests, close: () => context.close() };
}

async function close() {
  await browser?.close();
  browser = undefined;
}

/// Signs in at the certified provider's own pages and agrees.
export async function atCertified(opened, url, name) {
  await opened.goto(url);
  await opened.fill('input[name=login]', name);
  await opened.fill('input[name=password]', 'anything');
  await opened.click('button[type=submit]');
  await opened.click('button:has-text("Continue")');
}

/// Signs in at the other provider's own page, which asks for no consent.
export async function atZitadel(opened, url, name) {
  await opened.goto(url);
  await opened.fill('#username', name);
  await opened.fill('#password', 'verysecure');
  await opened.click('button[type=submit]');
}
