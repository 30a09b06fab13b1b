import type { ReferenceServer } from '../../src/server/reference-server.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { signUp, type TestUser, texts } from './raw-client.ts';
import { until } from './until.ts';

export interface FilledInstallation {
  readonly users: readonly TestUser[];
  /** A version whose upload was cut, with its bytes, of which the first are stored. */
  readonly unfinished: { readonly version: string; readonly bytes: Buffer };
  /** Files that no folder lists. */
  readonly orphans: readonly string[];
}

const CUT_AFTER = 70_000;

/** Makes everything that an installation may contain. @param longBytes of the longest version */
export async function fillInstallation(server: ReferenceServer, longBytes: number): Promise<FilledInstallation> {
  const random = new SeededRandom(11);
  const users = [
    await signUp(server, 'ann@example.com'),
    await signUp(server, 'bob@example.com', 900_000_000),
    await signUp(server, 'never-used@example.com'),
  ];
  const [ann, bob] = users as [TestUser, TestUser];
  const { client } = ann;
  const { administration } = server;
  await administration.setApplicationEnabled(await administration.addApplication('disabled'), false);
  await administration.addWorkspace(ann.email, 'Computer', { syncFolders: ['Documents', 'Bilder äöü 😀'] });
  const removed = await signUp(server, 'removed@example.com');
  await removed.client.createFilled(removed.folder('2'), 'of a removed account', 'gone');
  await administration.removeUser(removed.email);

  const folder = await client.createFolder(ann.folder('2'), 'ä &amp; 😀');
  const shared = await client.createFolder(folder, 'shared');
  await administration.share(ann.email, localOf(shared), bob.email, { writeAllowed: true });
  await administration.share(bob.email, '2', ann.email, { writeAllowed: false });
  await client.createFile(folder, 'no data');
  await client.createFilled(folder, 'empty', '');
  const long = await client.createFilled(folder, 'long', pattern(longBytes), 'video/mp4');
  await client.createFilled(folder, 'longest in a row', pattern(16_384));
  await client.createFilled(folder, 'shortest in a file', pattern(16_385));
  const often = await client.createFilled(shared, 'often', '1', 'text/plain');
  for (let times = 2; times <= 12; times += 1)
    await client.send('PUT', `${often}/data`, { body: times % 3 === 0 ? pattern(20_000 + times) : `${times}` });
  for (let at = 0; at < 80; at += 1) await client.createFilled(folder, `file ${at}`, random.bytes(random.below(400)));
  await bob.client.createFilled(shared, 'of a receiver', 'bob');
  const picture = await client.createFilled(folder, 'picture', 'no picture', 'image/jpeg');
  await client.send('PUT', picture, { body: '<file><publicLink enabled="true"/></file>' });
  await client.create(folder, `<fileCopy source="${long}"><displayName>a copy</displayName></fileCopy>`);
  const trashed = await client.createFilled(folder, 'in the trash', 'old');
  await client.send('PUT', trashed, {
    body: `<file><displayName>in the trash</displayName><parent>${ann.folder('9')}</parent></file>`,
  });
  const deleted = await client.createFolder(folder, 'deleted');
  const orphans = [await client.createFilled(deleted, 'left behind', pattern(30_000))];
  await client.send('DELETE', deleted);

  const interrupted = await client.createFilled(folder, 'interrupted', 'whole');
  await client.send('POST', `${interrupted}/version`);
  const { headers } = await client.send('POST', `${interrupted}/version`);
  const version = new URL(headers.location as string).pathname;
  const bytes = pattern(200_000);
  await client.send('PUT', `${version}/data`, { body: bytes, cutAfter: CUT_AFTER }).catch(() => {});
  await until(
    async () =>
      Number(texts((await client.get(version)).text, 'storedSize')[0]) >= CUT_AFTER && server.uploadsUnderWay === 0,
  );
  return { users, unfinished: { version, bytes }, orphans: orphans.map((url) => new URL(url).pathname) };
}

function localOf(url: string): string {
  return url.split(':').at(-1) as string;
}

/** Bytes that differ in every block. */
export function pattern(length: number): Buffer {
  const bytes = Buffer.alloc(length, 'cfs-mount');
  for (let at = 0; at + 4 <= length; at += 4096) bytes.writeUInt32LE(at, at);
  return bytes;
}
