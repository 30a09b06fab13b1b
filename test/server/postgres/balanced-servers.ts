import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { FaultPlan, type FaultRule } from '../../../src/server/fault-plan.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import type { AdministrationRules } from '../../../src/server/rules.ts';
import { ServerReader, type SignIn } from '../../harness/server-reader.ts';
import { miscounts } from './miscounts.ts';
import { PostgresServer } from './postgres-server.ts';

const SERVERS = 3;

interface Parts {
  readonly directory: string;
  /** Null: another test closes it. */
  readonly postgres: PostgresServer | null;
  readonly url: string;
  readonly balancer: Server;
  readonly servers: readonly ReferenceServer[];
}

/** Three servers of one database behind a balancer: each request meets the next server. With one user, for a mount. */
export class BalancedServers {
  readonly account: SignIn;
  /** For `MountFixture`: the servers are in this process, and print nothing. */
  readonly log = '';
  readonly #parts: Parts;

  private constructor(account: SignIn, parts: Parts) {
    this.account = account;
    this.#parts = parts;
  }

  /** @param shared a database server that stays when these servers go */
  static async start(shared?: PostgresServer): Promise<BalancedServers> {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-balanced-'));
    const own = shared === undefined ? await PostgresServer.start() : null;
    const url = await ((shared ?? own) as PostgresServer).newDatabase();
    const ports: number[] = [];
    const balancer = await startBalancer(ports);
    const publicOrigin = `http://127.0.0.1:${(balancer.address() as AddressInfo).port}`;
    const open = (number: number) =>
      ReferenceServer.open({
        dataDirectory: join(directory, `${number}`),
        objects: new DirectoryStore(join(directory, 'objects')),
        ...{ publicOrigin, listen: { port: 0 }, database: { url, deletedAfterMs: 0 } },
      });
    const servers = await Promise.all(Array.from({ length: SERVERS }, (_, number) => open(number)));
    ports.push(...servers.map(({ port }) => port));
    const [username, password] = ['someone@example.com', 'a password of some length'];
    const { administration } = servers[0] as ReferenceServer;
    await administration.addUser(username, password, { scryptCost: 2 ** 10 });
    const application = await administration.addApplication('cfs-mount');
    const keys = await administration.addKeyPair(username);
    const account = { url: publicOrigin, username, password, application, ...keys };
    return new BalancedServers(account, { directory, postgres: own, url, balancer, servers });
  }

  get administration(): AdministrationRules {
    return (this.#parts.servers[0] as ReferenceServer).administration;
  }

  /** The rules count the requests of all servers. */
  set faults(rules: readonly FaultRule[]) {
    const plan = new FaultPlan(rules);
    for (const server of this.#parts.servers) server.faults = plan;
  }

  get reader(): ServerReader {
    return new ServerReader(this.account, this.account.url);
  }

  /** Number of requests of each server. */
  get requestCounts(): readonly number[] {
    return this.#parts.servers.map(({ requests }) => requests.entries.length);
  }

  /** @see miscounts */
  miscounts(): Promise<unknown[]> {
    return miscounts(this.#parts.url);
  }

  async dispose(): Promise<void> {
    const { directory, postgres, balancer, servers } = this.#parts;
    balancer.close();
    balancer.closeAllConnections();
    await Promise.all(servers.map((server) => server.close()));
    await postgres?.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** @param ports of the servers, in turn for each request */
async function startBalancer(ports: readonly number[]): Promise<Server> {
  let turn = 0;
  const balancer = createServer((request, response) => {
    turn += 1;
    const { method, url: path, headers } = request;
    const port = ports[turn % ports.length];
    const forwarded = httpRequest({ host: '127.0.0.1', port, method, path, headers, agent: false }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.on('error', () => response.destroy());
      answer.pipe(response);
    });
    forwarded.on('error', () => response.destroy());
    forwarded.on('continue', () => response.writeContinue());
    request.on('error', () => forwarded.destroy());
    response.on('close', () => forwarded.destroy());
    request.pipe(forwarded);
  });
  await new Promise<void>((resolve) => balancer.listen(0, '127.0.0.1', resolve));
  return balancer;
}
