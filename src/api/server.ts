import { ReferenceServer } from '../server/reference-server.ts';

export { StorageError, UsageError } from '../base/errors.ts';

export interface ServerOptions {
  /** Where users, files and versions are kept; created if it does not exist. */
  readonly dataDirectory: string;
  /** `127.0.0.1` by default. */
  readonly host?: string;
  /** By default the port that this data directory used last, or any free port. */
  readonly port?: number;
  /** PEM texts; without them plain HTTP, which is refused beyond this machine. */
  readonly tls?: { readonly certificate: string; readonly key: string };
  /** Allows plain HTTP beyond this machine: behind a proxy that terminates TLS. */
  readonly insecure?: boolean;
  /** The origin of all URLs if it is not the listening address: `https://cloud.example.com`. */
  readonly publicOrigin?: string;
}

/** A running service. */
export interface Server {
  /** `http://127.0.0.1:PORT`: what clients sign in to. */
  readonly origin: string;
  readonly port: number;
  /** @throws UsageError if the user exists */
  addUser(email: string, password: string): Promise<void>;
  /** Registers an application. @returns its id */
  addApplication(name: string): Promise<string>;
  /** Keys with which an application acts for that user; the private one is shown only here. */
  addKeyPair(email: string): Promise<{ readonly accessKeyId: string; readonly privateAccessKey: string }>;
  /** Waits up to `graceMs` (0 by default) for active requests. Acknowledged data are durable. */
  close(options?: { readonly graceMs?: number }): Promise<void>;
}

/**
 * Starts the reference server of the service (docs/service.md) in this process.
 *
 * @throws UsageError if the port is taken, the directory is in use, or plain HTTP would leave this machine · StorageError if the
 * data cannot be used
 */
export async function createServer(options: ServerOptions): Promise<Server> {
  const { dataDirectory, host, port, tls, insecure, publicOrigin } = options;
  const server = await ReferenceServer.open({
    dataDirectory,
    listen: { ...(host !== undefined && { host }), ...(port !== undefined && { port }) },
    ...(tls !== undefined && { tls }),
    ...(insecure !== undefined && { insecure }),
    ...(publicOrigin !== undefined && { publicOrigin }),
  });
  const { administration } = server;
  return {
    origin: server.origin,
    port: server.port,
    addUser: async (email, password) => {
      await administration.addUser(email, password);
    },
    addApplication: (name) => administration.addApplication(name),
    addKeyPair: (email) => administration.addKeyPair(email),
    close: (how = {}) => server.close(how),
  };
}
