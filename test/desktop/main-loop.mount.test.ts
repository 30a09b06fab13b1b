import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import type { DesktopScreen } from '../harness/desktop-screen.ts';
import { tellFigures } from '../harness/figures.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { titled } from '../harness/requirement.ts';
import { MainLoopPings } from './main-loop-pings.ts';
import { MainLoopTurns } from './main-loop-turns.ts';
import { BuiltExtension } from './nautilus-driver.ts';
import { missingForWalks, screenForWalks, WALKED, walkInWindow } from './window-walk.ts';

/** The main loop of Nautilus without and with the extension, in turn. `npm run bench -- desktop` compares more turns. */

const MISSING = missingForWalks();
const FILES = Number(process.env.CFS_LOOP_FILES ?? 40);
const ROUNDS = Number(process.env.CFS_LOOP_ROUNDS ?? 1);
/** Of each window in a round. */
const WALKS = Number(process.env.CFS_LOOP_WALKS ?? 1);
const timeout = 300_000 + FILES * 100 + ROUNDS * WALKS * 60_000;

describe.skipIf(MISSING !== null)(titled('the main loop of Nautilus', MISSING), () => {
  let built: BuiltExtension;
  let screen: DesktopScreen;
  let mount: MountFixture;

  beforeAll(async () => {
    built = await BuiltExtension.build();
    mount = await MountFixture.start();
    screen = await screenForWalks(mount, FILES, timeout);
  }, timeout);

  afterAll(async () => {
    await screen?.dispose();
    await mount?.dispose();
    await built?.dispose();
  });

  /** [S-desktop-7] */
  test('the main loop replies to every question during searches and folder changes', { timeout }, async () => {
    onTestFailed(mount.printLogs);
    const pings = new MainLoopPings(screen.env);
    const counted = await MainLoopTurns.build(screen.home);
    screen.withManagerEnv(counted.env);
    const none = join(screen.home, 'no-extensions');
    mkdirSync(none);
    for (let round = 0; round < ROUNDS; round++) {
      const both = [
        ['without', none],
        ['with', built.folder],
      ] as const;
      for (const [name, folder] of round % 2 === 0 ? both : both.toReversed()) {
        screen.withExtensions(folder);
        await screen.open(`${mount.directory}/${WALKED}`, WALKED);
        // The first search of a process loads what later ones have.
        await walkInWindow(screen, 1);
        for (let walk = 1; walk <= WALKS; walk++) {
          await pings.replies();
          counted.turns();
          await walkInWindow(screen, 1, walk);
          const { ms, failed } = await pings.replies();
          const turns = counted.turns();
          expect([failed, ms.length > 0, turns.length > 0]).toEqual([0, true, true]);
          tellFigures(JSON.stringify({ name, ms, turns }));
        }
        await screen.closeAll();
      }
    }
    await pings.dispose();
  });
});
