import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/** The open connections of a server and the number of bytes received. */
export class Lines {
  readonly open = new Set<Socket>();
  #bytesOfClosed = 0;

  constructor(http: Server) {
    http.on('connection', (socket: Socket) => {
      this.open.add(socket);
      socket.on('close', () => {
        this.open.delete(socket);
        this.#bytesOfClosed += socket.bytesRead;
      });
      socket.setNoDelay(true);
      // Each queued pipelined response adds a close listener (Exchange), as many as the client pipelines.
      socket.setMaxListeners(0);
    });
  }

  get bytesArrived(): number {
    let bytes = this.#bytesOfClosed;
    for (const socket of this.open) bytes += socket.bytesRead;
    return bytes;
  }
}
