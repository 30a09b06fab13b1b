import fs, { existsSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { logoutCommand } from '../../src/cli/commands/accounts.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { Store } from '../../src/store/environment.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { ownerOf } from '../../src/store/owner-lock.ts';
import { sampleLocal, sampleNode } from '../store/sample-records.ts';
import { CommandHome } from './cli-harness.ts';

let home: CommandHome;
beforeEach(() => {
  home = new CommandHome();
});
afterEach(() => home.dispose());

/** [S-logout-1] [S-start-2] */
test('cfs logout --forget removes no store that a mount may have opened since the check', async () => {
  const { storeDirectory } = home.plantAccount();
  await (await Store.open({ directory: storeDirectory, clock: systemClock, log: silentLogger })).close();
  const owners: (number | null)[] = [];
  const { rmSync } = fs;
  onTestFinished(() => {
    fs.rmSync = rmSync;
    syncBuiltinESMExports();
  });
  fs.rmSync = (path, options) => {
    owners.push(ownerOf(storeDirectory));
    rmSync(path, options);
  };
  syncBuiltinESMExports();

  const output = { print: () => {}, warn: () => {}, redraw: null };
  const deps = { ...output, paths: pathsOf(home.env), clock: systemClock, env: home.env };
  const code = await logoutCommand(deps, { account: null, forget: true });

  expect(code).toBe(0);
  expect(owners.slice(0, 2)).toEqual([process.pid, process.pid]);
  expect(existsSync(storeDirectory)).toBe(false);
});

/** [S-logout-1] */
test('cfs logout --forget refuses while local-only files exist, and names them', async () => {
  const { storeDirectory } = home.plantAccount();
  const store = await Store.open({ directory: storeDirectory, clock: systemClock, log: silentLogger });
  store.transact((tx) => {
    const root = sampleLocal(ROOT_INODE, '');
    writeNode(tx, undefined, sampleNode(ROOT_INODE, { kind: 'folder', local: root }), 0);
    const ino = tx.nextId('inode') as Inode;
    writeNode(tx, undefined, { ...sampleNode(ino), localOnly: true, local: sampleLocal(ROOT_INODE, '.DS_Store') }, 0);
    tx.remove('dirty', ROOT_INODE);
  });
  await store.close();

  const output = { print: () => {}, warn: () => {}, redraw: null };
  const deps = { ...output, paths: pathsOf(home.env), clock: systemClock, env: home.env };
  await expect(logoutCommand(deps, { account: null, forget: true })).rejects.toMatchObject({
    message: expect.stringContaining('1 file stays only on this machine because of their names: .DS_Store'),
    exitCode: exitCode('pending'),
  });

  expect(existsSync(storeDirectory)).toBe(true);
});
