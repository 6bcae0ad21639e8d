// A network cable of one browser: TCP to the gateway that can be pulled out, or go dead with nobody told.
import net from 'node:net';

export class Cable {
  static async laid() {
    const cable = new Cable();
    await new Promise((listening) => cable.server.listen(0, '127.0.0.1', listening));
    cable.port = cable.server.address().port;
    cable.origin = `http://127.0.0.1:${cable.port}`;
    return cable;
  }

  constructor() {
    this.pulled = false;
    this.target = null;
    this.sockets = new Set();
    this.server = net.createServer((outside) => this.#carry(outside));
  }

  #carry(outside) {
    if (this.pulled || this.target === null) return outside.destroy();
    const inside = net.connect(this.target, '127.0.0.1');
    const pair = [outside, inside];
    for (const [from, to] of [pair, [inside, outside]]) {
      this.sockets.add(from);
      from.pipe(to);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        this.sockets.delete(from);
        to.destroy();
      });
    }
  }

  /// Every connection breaks, and none is made.
  pull() {
    this.pulled = true;
    for (const socket of this.sockets) socket.destroy();
  }

  /// Nothing passes any more, and nobody is told; `plug` breaks what hung on it.
  deaden() {
    for (const socket of this.sockets) {
      socket.unpipe();
      socket.pause();
    }
  }

  plug() {
    for (const socket of this.sockets) if (socket.isPaused()) socket.destroy();
    this.pulled = false;
  }

  close() {
    this.pull();
    this.server.close();
  }
}
