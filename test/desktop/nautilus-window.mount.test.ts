import { mkdirSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import type { DesktopScreen } from '../harness/desktop-screen.ts';
import { percentiles, tellFigures } from '../harness/figures.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { titled } from '../harness/requirement.ts';
import { stopProcess } from '../harness/stop-process.ts';
import { MainLoopPings } from './main-loop-pings.ts';
import { BuiltExtension } from './nautilus-driver.ts';
import { missingForWalks, screenForWalks, WALKED, walkInWindow } from './window-walk.ts';

/** The extension in Nautilus itself: its emblems on the screen, and its cost for the main loop, beside a mount that hangs. */

const MISSING = missingForWalks();

/** `npm run soak -- desktop` sets more. */
const FILES = Number(process.env.CFS_WINDOW_FILES ?? 40);
/** Of each: a search, the folder above, and back. */
const ROUNDS = Number(process.env.CFS_WINDOW_ROUNDS ?? 2);
const POLL = { timeout: 60_000, interval: 100 };
const timeout = 300_000 + FILES * 100 + ROUNDS * 10_000;

/** The colours of the emblems (desktop/icons). */
const EMBLEMS = {
  attention: [0xe6, 0x61, 0x00],
  conflict: [0xc0, 0x1c, 0x28],
  pending: [0x1c, 0x71, 0xd8],
  pinned: [0x26, 0xa2, 0x69],
} as const;
type Emblem = keyof typeof EMBLEMS;
/** Of one emblem at least. */
const DOTS_MIN = 40;

describe.skipIf(MISSING !== null)(titled('Nautilus with the extension', MISSING), () => {
  let built: BuiltExtension;
  let screen: DesktopScreen;
  let mount: MountFixture;
  let hung: Server;
  const connections: Socket[] = [];

  beforeAll(async () => {
    built = await BuiltExtension.build();
    mount = await MountFixture.start();
    screen = await screenForWalks(mount, FILES, timeout);
    hung = await hungMount(mount);
  }, timeout);

  afterAll(async () => {
    await screen?.dispose();
    for (const socket of connections) socket.destroy();
    hung?.close();
    await mount?.dispose();
    await built?.dispose();
  });

  /** The control socket of a mount that takes questions and never replies. */
  async function hungMount(beside: MountFixture): Promise<Server> {
    const folder = join(beside.env().XDG_RUNTIME_DIR as string, 'cfs/hung@example.com');
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const server = createServer((socket) => {
      connections.push(socket);
      socket.on('error', () => {});
      socket.resume();
    });
    await new Promise<void>((listening) => server.listen(join(folder, 'control.sock'), listening));
    return server;
  }

  function dotsOf(emblem: Emblem): number {
    const [red, green, blue] = EMBLEMS[emblem];
    return screen.dots(red, green, blue);
  }

  /** Waits until the emblem is on the screen, or is not. @returns ms */
  async function shows(emblem: Emblem, isShown: boolean, before = 0): Promise<number> {
    const begunMs = performance.now();
    await expect.poll(() => dotsOf(emblem) - before >= DOTS_MIN, { ...POLL, interval: 20 }).toBe(isShown);
    return performance.now() - begunMs;
  }

  const open = (): Promise<void> => screen.open(`${mount.directory}/${WALKED}`, WALKED);

  /** [S-desktop-6] [S-desktop-7] */
  test('Nautilus shows each state, never waits for a mount, and survives the end of one', { timeout }, async () => {
    onTestFailed(mount.printLogs);
    const pings = new MainLoopPings(screen.env);
    screen.withExtensions(built.folder);
    await open();
    await pings.replies();

    await walkInWindow(screen, ROUNDS);
    const withIt = await pings.replies();
    expect(withIt.failed).toBe(0);
    expect(connections.length).toBeGreaterThan(0);

    await screen.closeAll();
    await open();
    await pings.replies();
    const before = Object.fromEntries(Object.keys(EMBLEMS).map((name) => [name, dotsOf(name as Emblem)]));
    await mount.cfs(['pause']);
    await mount.run('echo new > many/1.txt');
    const ms = { pending: await shows('pending', true, before.pending) };
    await mount.cfs(['resume']);
    await mount.sync();
    const clean = await shows('pending', false, before.pending);
    await mount.server.setFaults([{ on: 'POST', path: 'fileVersions', times: 'always', then: { status: 413 } }]);
    await mount.run('echo newer > many/1.txt');
    await mount.cfs(['sync', '--wait'], { anyExitCode: true });
    const attention = await shows('attention', true, before.attention);
    await mount.server.setFaults([]);
    await mount.cfs(['retry']);
    await mount.sync();
    await shows('attention', false, before.attention);
    await mount.run("echo copy > 'many/1 (conflicted copy 2026-11-20 not from laptop).txt'");
    const conflict = await shows('conflict', true, before.conflict);
    await mount.run('rm many/1\\ *');
    await shows('conflict', false, before.conflict);
    await mount.cfs(['pin', `${mount.directory}/many/1.txt`]);
    const pinned = await shows('pinned', true, before.pinned);
    expect((await pings.replies()).failed).toBe(0);

    await stopProcess(mount.pid);
    await shows('pinned', false, before.pinned);
    const stopped = await pings.replies();
    expect([stopped.ms.length > 0, stopped.failed]).toEqual([true, 0]);
    process.kill(mount.pid, 'SIGCONT');
    await shows('pinned', true, before.pinned);

    await mount.kill9();
    await shows('pinned', false, before.pinned);
    expect((await pings.replies()).failed).toBe(0);
    await pings.dispose();
    await mount.mount();
    await screen.closeAll();
    await open();
    await shows('pinned', true, before.pinned);

    const emblems = Object.entries({ ...ms, clean, attention, conflict, pinned });
    tellFigures(
      `Nautilus, ${FILES} files, ${ROUNDS} rounds: main loop ${percentiles(withIt.ms)}; ` +
        `with a stopped mount ${percentiles(stopped.ms)}; emblems after ms: ${emblems.map(([name, each]) => `${name} ${Math.round(each)}`).join(', ')}`,
    );
  });
});
