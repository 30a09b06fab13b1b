import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { BLOCK_BYTES, type ContentId, type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { doctorCommand } from '../../src/cli/commands/doctor.ts';
import { examineStore } from '../../src/cli/doctor/store-examination.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { Store } from '../../src/store/environment.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { sampleLocal, sampleNode } from '../store/sample-records.ts';
import { CommandHome } from './cli-harness.ts';

/** `cfs doctor --store`, over stores that no mount has open. */

const WHO = 'ann@example.com at http://127.0.0.1:9';
let home: CommandHome;

beforeEach(() => {
  home = new CommandHome();
});

afterEach(() => home.dispose());

async function doctor(account: string | null = null): Promise<{ code: number; text: string }> {
  let text = '';
  const print = (more: string): void => {
    text += more;
  };
  const deps = { paths: pathsOf(home.env), env: home.env, examine: examineStore, print, warn: () => {} };
  const code = await doctorCommand(deps, { store: true, account });
  return { code, text };
}

/** A root and a file of two blocks that never travels, so that nothing waits to be sent. @returns where its bytes lie */
async function fillStore(directory: string): Promise<string> {
  mkdirSync(directory, { recursive: true });
  const store = await Store.open({ directory, clock: systemClock, log: silentLogger });
  const contents = new ContentStore({
    store,
    directory,
    clock: systemClock,
    log: silentLogger,
    options: { inlineMaxBytes: 4096, cacheBytes: 1e9 },
  });
  const draft = store.transact((tx) => {
    writeNode(
      tx,
      undefined,
      sampleNode(ROOT_INODE, { kind: 'folder', localOnly: true, local: sampleLocal(ROOT_INODE, '') }),
      0,
    );
    const content = contents.createDraft(tx, null);
    const ino = tx.nextId('inode') as Inode;
    const local = sampleLocal(ROOT_INODE, 'letter', { content });
    writeNode(tx, undefined, { ...sampleNode(ino), localOnly: true, local }, 0);
    return content;
  });
  contents.write(draft, 0, new Uint8Array(2 * BLOCK_BYTES).fill(7));
  store.transact((tx) => contents.seal(tx, draft));
  await expect.poll(() => [...store.scan('blocks', draft)].length, { interval: 5, timeout: 5000 }).toBe(1);
  contents.close();
  await store.close();
  return join(directory, 'drafts', (draft % 256).toString(16).padStart(2, '0'), String(draft));
}

test('a sound store is called sound, and stays as it is', async () => {
  await fillStore(home.plantAccount().storeDirectory);

  const sound = {
    code: exitCode('ok'),
    text: `store of ${WHO}: sound (2 entries and 1 content\n  checked)\nnothing is wrong\n`,
  };
  expect(await doctor()).toEqual(sound);
  expect(await doctor('ann@example.com')).toEqual(sound);
});

test('a damaged block is named, and the exit code says so', async () => {
  const path = await fillStore(home.plantAccount().storeDirectory);
  const bytes = readFileSync(path);
  bytes[BLOCK_BYTES + 9] = 0;
  writeFileSync(path, bytes);

  const { code, text } = await doctor();

  expect(code).toBe(exitCode('store'));
  expect(text.replace(/\n +/g, ' ')).toContain(
    `store of ${WHO}: problem: block 1 of content 1 is damaged, and in no version [store-damaged]`,
  );
  expect(text).toMatch(/\n1 problem\n$/);
});

test('rows that are not what was written are named', async () => {
  const { storeDirectory: directory } = home.plantAccount();
  await fillStore(directory);
  const index = join(directory, 'index', 'data.mdb');
  const bytes = readFileSync(index);
  for (let at = bytes.indexOf('letter'); at >= 0; at = bytes.indexOf('letter', at + 1)) bytes.write('better', at);
  writeFileSync(index, bytes);

  const { code, text } = await doctor();

  expect(code).toBe(exitCode('store'));
  const words = text.replace(/\n +/g, ' ');
  expect(words).toContain('2 of its rows have a wrong checksum: node 2, name [1,"better"]');
});

test('a broken index is named', async () => {
  const { storeDirectory: directory } = home.plantAccount();
  await fillStore(directory);
  const store = await Store.open({ directory, clock: systemClock, log: silentLogger });
  store.transact((tx) => tx.remove('name', [ROOT_INODE, 'letter']));
  store.transact((tx) => tx.put('garbage', 99 as ContentId, true));
  await store.close();

  const { code, text } = await doctor();

  expect(code).toBe(exitCode('store'));
  const lines = text.replace(/\n +/g, ' ');
  expect(lines).toContain('is missing from table name');
  expect(lines).toContain('garbage 99 does not exist');
  expect(text).toMatch(/\n2 problems\n$/);
});

test('a store that a process has open is left alone, and the process is named', async () => {
  const { storeDirectory: directory } = home.plantAccount();
  await fillStore(directory);
  const store = await Store.open({ directory, clock: systemClock, log: silentLogger });

  const { code, text } = await doctor();
  expect(code).toBe(exitCode('alreadyMounted'));
  expect(text.replace(/\n +/g, ' ')).toMatch(
    new RegExp(`problem: the store in .* is in use by process ${process.pid} `),
  );
  await store.close();
  expect((await doctor()).code).toBe(exitCode('ok'));
});

test('cfs doctor creates nothing on a machine without a mount', async () => {
  const { storeDirectory } = home.plantAccount();

  expect(await doctor()).toMatchObject({
    code: exitCode('ok'),
    text: expect.stringContaining('nothing is stored here'),
  });
  expect(existsSync(storeDirectory)).toBe(false);
  await expect(doctor('somebody')).rejects.toMatchObject({ exitCode: exitCode('signIn') });
});
