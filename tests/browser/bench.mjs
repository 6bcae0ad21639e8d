// What the tests of the browser stand on: a node of Felix that can be killed, a gateway that can be restarted, people with
// browsers and cables of their own. Everything is on this machine's loopback and is ended when the tests are over.
import { spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium, firefox } from 'playwright-core';
import { Cable } from './cable.mjs';
import { CLIENT, OpenProvider } from './provider.mjs';

const HERE = import.meta.dirname;
const PROGRAMS = process.env.FELIX_PROGRAMS ?? join(HERE, '../../target/debug');
const WHITEBOARD = join(HERE, '../../clients/typescript/examples/whiteboard/dist');
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
/// Firefox as Debian has it. Without it, or with `FIREFOX=`, tests of it are skipped.
export const FIREFOX = process.env.FIREFOX ?? '/usr/bin/firefox-esr';
const PATIENCE_MS = 60_000;
const PORTS = 16;

const directory = mkdtempSync(join(tmpdir(), 'felix-browser-'));
const endings = [];

/// Calls until the answer is truthy.
export async function until(what, attempt) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await attempt();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`${typeof what === 'function' ? await what() : what} did not come about in ${PATIENCE_MS} ms`);
    await new Promise((passed) => setTimeout(passed, 100));
  }
}

function start(name, args, environment) {
  const { PATH, LANG } = process.env;
  const home = join(directory, 'home');
  mkdirSync(home, { recursive: true });
  const env = { PATH, LANG, HOME: home, XDG_CONFIG_HOME: join(home, 'config'), XDG_DATA_HOME: join(home, 'data'), ...environment };
  const child = spawn(join(PROGRAMS, name), args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const said = { out: '', err: '' };
  child.stdout.on('data', (bytes) => (said.out += bytes));
  child.stderr.on('data', (bytes) => (said.err += bytes));
  const ended = new Promise((done) => child.on('close', done));
  return { child, said, ended, async stop(signal = 'SIGTERM') { child.kill(signal); await ended; } };
}

/// A port that can be had, and the ones after it: a broker that is killed has to come back where it was.
async function freePorts() {
  for (;;) {
    const base = 20_000 + Math.floor(Math.random() * 30_000);
    const tries = await Promise.all(Array.from({ length: PORTS }, (_, at) => new Promise((told) => {
      const server = createServer().once('error', () => told(false));
      server.listen(base + at, '127.0.0.1', () => server.close(() => told(true)));
    })));
    if (tries.every(Boolean)) return base;
  }
}

export class Node {
  static async started() {
    const node = new Node();
    node.base = await freePorts();
    await node.start();
    endings.push(() => node.process.stop());
    return node;
  }

  async start() {
    const ready = join(directory, 'ready.json');
    rmSync(ready, { force: true });
    this.process = start('felixctl', ['dev', '--data-dir', join(directory, 'node'), '--port-base', String(this.base), '--ready-file', ready], {});
    const { child, said } = this.process;
    await until('the node', () => {
      if (child.exitCode !== null) throw new Error(`the node ended: ${said.err}`);
      return existsSync(ready);
    });
    this.ready = JSON.parse(readFileSync(ready, 'utf8'));
  }

  async kill() {
    await this.process.stop('SIGKILL');
  }

  /// What felixctl says to the node's administrator.
  async does(...args) {
    const { child, said, ended } = start('felixctl', args, {});
    await ended;
    if (child.exitCode !== 0) throw new Error(`felixctl ${args.join(' ')} ended with ${child.exitCode}: ${said.err}${said.out}`);
    return said.out;
  }

  /// Makes what a board is of, and lets `role:drawers` at it.
  async board(name) {
    const { tenant } = this.ready;
    await this.does('stream', 'create', `board-${name}-edits`);
    await this.does('stream', 'create', `board-${name}-cursors`, '--durable', 'false');
    for (const stream of ['edits', 'cursors']) {
      for (const action of ['publish', 'subscribe']) {
        await this.does('rbac', 'policy', 'add', 'role:drawers', `stream:${tenant}/default/board-${name}-${stream}`, `stream.${action}`);
      }
    }
    for (const cache of ['presence', 'snapshot', 'seq']) {
      await this.does('cache', 'create', `board-${name}-${cache}`);
      for (const action of ['read', 'write']) {
        await this.does('rbac', 'policy', 'add', 'role:drawers', `cache:${tenant}/default/board-${name}-${cache}`, `cache.${action}`);
      }
    }
  }
}

/// The whiteboard with another way to sign in: what somebody who serves it changes in its page.
function signingIn(way) {
  const there = join(directory, `whiteboard-${way}`);
  cpSync(WHITEBOARD, there, { recursive: true });
  const page = join(there, 'index.html');
  const changed = readFileSync(page, 'utf8').replace('name="felix-sign-in" content="auto"', `name="felix-sign-in" content="${way}"`);
  writeFileSync(page, changed);
  return there;
}

export class Gateway {
  /// At the ends of these cables; `way` is how the page signs people in.
  constructor(node, issuer, cables, way = 'page') {
    Object.assign(this, { node, issuer, cables, pages: way === 'auto' ? WHITEBOARD : signingIn(way) });
    endings.push(() => this.process?.stop());
  }

  async start() {
    const { ready } = this.node;
    this.process = start('felix-gateway', [], {
      GATEWAY_LISTEN: '127.0.0.1:0', GATEWAY_SCOPE_FILE: join(HERE, 'scope.toml'), GATEWAY_TENANT: ready.tenant,
      GATEWAY_OIDC_ISSUER: this.issuer, GATEWAY_OIDC_CLIENT_ID: CLIENT, GATEWAY_OIDC_SCOPES: 'openid profile groups',
      GATEWAY_FELIX_BROKERS: ready.brokers.join(','), GATEWAY_FELIX_CA_FILE: ready.ca_file, GATEWAY_FELIX_SERVER_NAME: ready.server_name,
      GATEWAY_FELIX_CONTROL_PLANE: ready.controlplane_url, GATEWAY_WEB_DIR: this.pages, RUST_LOG: 'info',
    });
    const { child, said } = this.process;
    const address = await until('the gateway', () => {
      if (child.exitCode !== null) throw new Error(`the gateway ended: ${said.err}${said.out}`);
      return /127\.0\.0\.1:(\d+)/.exec(said.err.replace(/\x1b\[[0-9;]*m/g, ''))?.[1];
    });
    for (const cable of this.cables) cable.target = Number(address);
  }

  async stop(signal) {
    await this.process.stop(signal);
  }
}

const browsers = {};
const launch = {
  chromium: () => chromium.launch({
    executablePath: CHROMIUM,
    args: [
      // The sandbox needs another user than root.
      ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
      '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
    ],
  }),
  // An unchanged Firefox, over WebDriver BiDi.
  firefox: async () => {
    const launched = await firefox.launch({ channel: 'moz-firefox', executablePath: FIREFOX });
    // The one command that Playwright always gives and that this Firefox does not know; nothing here depends on it.
    const session = Object.getPrototypeOf(launched._connection.toImpl(launched)._browserSession);
    const { send } = session;
    session.send = function (method, params) {
      return method === 'emulation.setMediaFeaturesOverride' ? Promise.resolve({}) : send.call(this, method, params);
    };
    return launched;
  },
};

/// A person with a browser that knows nobody, at the end of a cable.
export class Person {
  static async at(cable, { browser = 'chromium', ...options } = {}) {
    browsers[browser] ??= await launch[browser]();
    const context = await browsers[browser].newContext({ viewport: { width: 1280, height: 800 }, ...options });
    return Person.in(context, cable);
  }

  /// The same person in another tab.
  anotherTab() {
    return Person.in(this.context, this.cable);
  }

  static async in(context, cable) {
    const person = new Person();
    person.cable = cable;
    person.context = context;
    person.page = await person.context.newPage();
    person.page.setDefaultTimeout(PATIENCE_MS);
    person.sent = [];
    person.faults = [];
    person.page.on('pageerror', (error) => person.faults.push(error.message));
    person.page.on('console', (message) => {
      if (/Content Security Policy|Trusted/i.test(message.text())) person.faults.push(message.text());
    });
    person.page.on('websocket', (socket) => socket.on('framesent', ({ payload }) => person.sent.push(payload.toString())));
    return person;
  }

  async opens(board) {
    await this.page.goto(`${this.cable.origin}/?board=${board}`);
  }

  /// Signs in at the provider's own pages.
  async signsIn(name) {
    await this.page.click('#sign-in-button');
    await this.page.fill('input[name=login]', name);
    await this.page.fill('input[name=password]', 'anything');
    await this.page.click('button[type=submit]');
    await this.page.click('button:has-text("Continue")');
    await this.isThere();
  }

  async isThere() {
    await until(async () => `a board that is read (${JSON.stringify(await this.state())})`, async () => {
      const { loaded, connection } = await this.state();
      return loaded === 'true' && connection === 'connected';
    });
  }

  state() {
    return this.page.evaluate(() => ({ ...document.documentElement.dataset })).catch(() => ({}));
  }

  /// Draws so many short lines with the mouse, at places of their own.
  async draws(count, row = 0) {
    const { mouse } = this.page;
    for (let at = 0; at < count; at += 1) {
      const [x, y] = [130 + (at % 40) * 22, 120 + row * 40 + Math.floor(at / 40) * 40];
      await mouse.move(x, y);
      await mouse.down();
      await mouse.move(x + 14, y + 18, { steps: 3 });
      await mouse.up();
    }
  }

  async shot(name) {
    if (process.env.FELIX_SCREENSHOTS) await this.page.screenshot({ path: join(process.env.FELIX_SCREENSHOTS, name) });
  }
}

/// Waits until everybody has read the same offsets, nothing waits to be sent, and gives the hash that all show.
export async function agree(people, edits) {
  let states = [];
  await until(() => `one board for all (${JSON.stringify(states)})`, async () => {
    states = await Promise.all(people.map((person) => person.state()));
    const [first] = states;
    return Number(first.offset) >= edits && states.every((state) => state.pending === '0' && state.loaded === 'true' &&
      state.offset === first.offset && state.stateHash === first.stateHash && state.stateHash !== '');
  });
  return states[0];
}

/// A node, a provider, a gateway, and cables for so many people; and another gateway that signs people in itself.
export async function company(people, boards, { byCookie = 0 } = {}) {
  const provider = await OpenProvider.listening();
  endings.push(() => provider.close());
  const cables = await Promise.all(Array.from({ length: people + byCookie }, () => Cable.laid()));
  endings.push(() => cables.forEach((cable) => cable.close()));
  provider.allow(cables.map(({ origin }) => origin));
  const node = await Node.started();
  for (const board of boards) await node.board(board);
  await node.does('idp', 'add', provider.issuer, '--audience', CLIENT);
  await node.does('rbac', 'grouping', 'add', `group:${provider.issuer}#drawers`, 'role:drawers');
  const gateway = new Gateway(node, provider.issuer, cables.slice(0, people));
  await gateway.start();
  const door = byCookie === 0 ? null : new Gateway(node, provider.issuer, cables.slice(people), 'auto');
  await door?.start();
  return { provider, node, gateway, cables: gateway.cables, door };
}

export async function endAll() {
  for (const [name, browser] of Object.entries(browsers)) {
    await browser.close();
    delete browsers[name];
  }
  for (const end of endings.reverse()) await end();
  rmSync(directory, { recursive: true, force: true });
}
