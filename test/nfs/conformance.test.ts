import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { DOCUMENTED_DIFFERENCES } from '../conformance/documented-differences.ts';
import { InProcessApi } from '../conformance/in-process-api.ts';
import { conformanceSuite } from '../conformance/suite.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { NfsClient } from './nfs-client.ts';
import { NfsClientOps } from './nfs-client-ops.ts';
import { NFS_LIMITS } from './nfs-limits.ts';

// The file system on its real store, through the NFS server and a client in this process.
let side: FileSystemSide;
let server: NfsServer;
let client: NfsClient;
conformanceSuite('the file system over NFS', {
  can: [],
  differs: DOCUMENTED_DIFFERENCES,
  fails: NFS_LIMITS,
  async open() {
    side = await FileSystemSide.build();
    const deps = { log: silentLogger, clock: systemClock, platform: 'linux' as const };
    server = await NfsServer.start(side.fileSystem, { readOnly: false, allowOther: true }, deps);
    client = await NfsClient.connect(server.exported.port);
    const root = await client.mnt(server.exported.path);
    server.admit();
    return new InProcessApi(new InProcessMount(new NfsClientOps(client, root)));
  },
  async close() {
    client.close();
    await server.close();
    await side.close();
  },
});
