import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '../../src/base/log.ts';
import { openService } from '../../src/remote/open-service.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { HastyClock } from './client.ts';
import { contractSuite } from './contract-suite.ts';
import { MemoryService } from './memory-service.ts';

contractSuite('the service over HTTP', {
  lacks: [],
  async open() {
    const directory = await mkdtemp(join(tmpdir(), 'cfs-contract-'));
    const server = await ReferenceServer.open({ dataDirectory: directory });
    const [username, password] = ['someone@example.com', 'password'];
    await server.administration.addUser(username, password, { scryptCost: 2 ** 10 });
    const service = openService({
      baseUrl: server.origin,
      keys: {
        application: await server.administration.addApplication('test'),
        ...(await server.administration.addKeyPair(username)),
      },
      refreshToken: null,
      clock: new HastyClock(),
      log: silentLogger,
      userAgent: 'cfs-mount/0.0.0 (test)',
    });
    await service.signIn({ username, password });
    const close = async (): Promise<void> => {
      await service.close();
      await server.close();
      await rm(directory, { recursive: true });
    };
    return { service, close };
  },
});

contractSuite('a service in memory', {
  lacks: ['links', 'pictures', 'downloads', 'wholeAccount'],
  open: async () => ({ service: new MemoryService(), close: async () => {} }),
});
