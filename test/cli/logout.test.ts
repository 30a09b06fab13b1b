import fs, { existsSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { logoutCommand } from '../../src/cli/accounts.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { Store } from '../../src/store/environment.ts';
import { ownerOf } from '../../src/store/owner-lock.ts';
import { CommandHome } from './cli-harness.ts';

let home: CommandHome;
beforeEach(() => {
  home = new CommandHome();
});
afterEach(() => home.dispose());

/** [S-logout-1] [S-start-2] */
test('cfs logout --forget takes no store away that a mount may have opened since it was looked at', async () => {
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
  const deps = { ...output, paths: pathsOf(home.env), clock: systemClock };
  const code = await logoutCommand(deps, { account: null, forget: true });

  expect(code).toBe(0);
  expect(owners.slice(0, 2)).toEqual([process.pid, process.pid]);
  expect(existsSync(storeDirectory)).toBe(false);
});
