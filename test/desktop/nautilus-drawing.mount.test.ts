import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { titled } from '../harness/requirement.ts';
import { answerStates } from './answered-states.ts';
import { BuiltExtension, missingForExtension, NautilusDriver, type SourceEdit } from './nautilus-driver.ts';

/** How often the extension makes Nautilus look at a file again, with its safeguard and without. */

const MISSING = missingForExtension();
const FILES = 1_000;
const WITHOUT_COMPARISON: SourceEdit = {
  file: 'nautilus/cfs-nautilus.c',
  text: 'emblem_of(was) != emblem_of(is)',
  by: 'was != is',
};

describe.skipIf(MISSING !== null)(titled('a folder of 1,000 files in Nautilus', MISSING), () => {
  const home = mkdtempSync(join(tmpdir(), 'cfs-drawn-'));
  const directory = join(home, 'mnt');
  const sockets: Socket[] = [];
  let server: Server;
  /** Paths that the extension knows the state of. */
  const known = new Set<string>();

  beforeAll(async () => {
    const place = join(home, 'cfs', 'ann@example.com');
    mkdirSync(place, { recursive: true });
    server = createServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => {});
      answerStates(socket, directory, (path) => {
        known.add(path);
        return path.startsWith('new') ? 'pending' : 'clean';
      });
    });
    await new Promise<void>((listening) => server.listen(join(place, 'control.sock'), listening));
  });

  afterAll(() => {
    for (const socket of sockets) socket.destroy();
    server?.close();
    rmSync(home, { recursive: true, force: true });
  });

  /** Shows clean files, and then one with an emblem. @returns how often the extension invalidated a file */
  async function invalidations(edit?: SourceEdit): Promise<number> {
    const built = await BuiltExtension.build(edit);
    const driver = new NautilusDriver(built, { XDG_RUNTIME_DIR: home, XDG_STATE_HOME: home });
    await driver.showsInTheEnd(join(directory, 'new'), 'cfs-pending');
    const before = await driver.invalidations();
    known.clear();
    for (let nth = 0; nth < FILES; nth++) driver.send('show', join(directory, String(nth)));
    await expect.poll(() => known.size, { timeout: 60_000 }).toBeGreaterThanOrEqual(FILES);
    // Told after all of them.
    driver.send('show', join(directory, 'newer'));
    await driver.shows(join(directory, 'newer'), 'cfs-pending');
    const after = await driver.invalidations();
    expect(driver.lines.filter((line) => /\/\d+\t$/.test(line)).length).toBe(FILES);
    await driver.dispose();
    await built.dispose();
    return after - before;
  }

  /** [S-desktop-6] */
  test('a clean file is drawn once, and a file with an emblem again', { timeout: 120_000 }, async () => {
    expect(await invalidations()).toBe(1); // `newer`
  });

  test('ablation: without the comparison of emblems each clean file is drawn twice', { timeout: 120_000 }, async () => {
    expect(await invalidations(WITHOUT_COMPARISON)).toBeGreaterThan(FILES);
  });
});
