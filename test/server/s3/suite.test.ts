import { afterAll, beforeAll, describe } from 'vitest';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { StandInS3 } from './stand-in-s3.ts';

/** The server's own suite, once more: every server that it opens moves its versions to an object store. */

const { open } = ReferenceServer;
/** By data directory: a restart finds its objects again. */
const stores = new Map<string, StandInS3>();

beforeAll(() => {
  ReferenceServer.open = async (options) => {
    const { dataDirectory } = options;
    const store = stores.get(dataDirectory) ?? (await StandInS3.start());
    stores.set(dataDirectory, store);
    return open.call(ReferenceServer, { objects: store.open(), ...options });
  };
});

afterAll(async () => {
  ReferenceServer.open = open;
  for (const store of stores.values()) await store.close();
});

// The suffix makes a module of its own: each file also runs by itself, over the disk.
describe('service', async () => void (await import('../service.test.ts?objects' as string)));
describe('service examples', async () => void (await import('../service-examples.test.ts?objects' as string)));
describe('versions', async () => void (await import('../versions.test.ts?objects' as string)));
describe('shares', async () => void (await import('../shares.test.ts?objects' as string)));
describe('isolation', async () => void (await import('../isolation.test.ts?objects' as string)));
describe('odd requests', async () => void (await import('../odd-requests.test.ts?objects' as string)));
describe('holdings', async () => void (await import('../holdings.test.ts?objects' as string)));
describe('upload order', async () => void (await import('../upload-order.test.ts?objects' as string)));
