import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/** The lines of a server, and what came over them. */
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
      // Each answer that waits for its turn on a line listens for its end (Exchange): as many as the other side asks for at once.
      socket.setMaxListeners(0);
    });
  }

  get bytesArrived(): number {
    let bytes = this.#bytesOfClosed;
    for (const socket of this.open) bytes += socket.bytesRead;
    return bytes;
  }
}
