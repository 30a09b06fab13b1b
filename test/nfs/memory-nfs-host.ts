/**
 * A process that serves a MemoryFileSystem over NFS, for the bench. Argument: the number of files in the folder `many`. It prints one JSON line,
 * `{ port, root }` with the root's handle in hexadecimal, and ends with its standard input.
 */
import { systemClock } from '../../src/base/clock.ts';
import { createLogger } from '../../src/base/log.ts';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { MemoryFileSystem } from '../kernel/memory-file-system.ts';
import { NfsClient } from './nfs-client.ts';

const fileSystem = new MemoryFileSystem();
const many = fileSystem.plantFolder(ROOT_INODE, 'many');
for (let file = 0; file < Number(process.argv[2]); file++) fileSystem.plant(many, `file-${file}`, new Uint8Array(0));
const log = createLogger({ level: 'warn' });
const server = await NfsServer.start(fileSystem, { readOnly: false, allowOther: false }, { log, clock: systemClock });
const { path, port } = server.exported;
const client = await NfsClient.connect(port);
const root = await client.mnt(path);
server.admit();
client.close();
console.log(JSON.stringify({ port, root: root.toString('hex') }));
process.stdin.resume().on('end', () => process.exit());
