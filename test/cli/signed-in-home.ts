import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { loginCommand } from '../../src/cli/commands/login.ts';
import { ServiceWait } from '../../src/cli/service-wait.ts';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import { accountNames, readAccountFile } from '../../src/mount/account-file.ts';
import { HttpService } from '../../src/remote/http/http-service.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { CommandHome } from './cli-harness.ts';

/** A home in which somebody is signed in to a service of its own, in this process. */
export class SignedInHome {
  readonly home: CommandHome;
  /** The account's name. */
  readonly name: string;
  /** The service as another program of the same person uses it. */
  readonly service: HttpService;
  readonly #server: ReferenceServer;

  private constructor(home: CommandHome, name: string, server: ReferenceServer) {
    this.home = home;
    this.name = name;
    this.#server = server;
    const account = readAccountFile(accountPaths(pathsOf(home.env), name).accountFile);
    this.service = new HttpService({
      baseUrl: server.origin,
      keys: account,
      refreshToken: account.refreshToken,
      userAgent: 'cfs/0.0.0 (test)',
      clock: systemClock,
      log: silentLogger,
    });
  }

  static async open(): Promise<SignedInHome> {
    const home = new CommandHome();
    const paths = pathsOf(home.env);
    const server = await ReferenceServer.open({ dataDirectory: home.path('server') });
    const { administration } = server;
    const username = 'a@example.com';
    const password = 'a password';
    await administration.addUser(username, password, { scryptCost: 2 ** 10 });
    const given = {
      ...{ username, password, application: await administration.addApplication('tests') },
      ...(await administration.addKeyPair(username)),
    };
    const output = { print: () => {}, warn: () => {} };
    const wait = new ServiceWait({ clock: systemClock, ...output }, null);
    const deps = { ...output, paths, clock: systemClock, env: home.env, prompt: null, wait };
    await loginCommand(deps, { url: server.origin, insecure: false, given });
    return new SignedInHome(home, accountNames(paths)[0] ?? '', server);
  }

  /** A file in the top folder, with these versions, oldest first. */
  async upload(name: string, ...texts: readonly string[]): Promise<ResourceUrl> {
    const { service } = this;
    const file = await service.createFile((await service.user()).home, name, 'text/plain');
    for (const text of texts) {
      const bytes = Buffer.from(text);
      const body = {
        length: bytes.byteLength,
        chunks: async function* () {
          yield bytes;
        },
      };
      await service.putFileData(file, body, 'text/plain');
    }
    return file;
  }

  async dispose(): Promise<void> {
    await this.service.close();
    await this.#server.close();
    this.home.dispose();
  }
}
