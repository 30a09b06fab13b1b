import { setMaxListeners } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { loadOptions } from '../../src/config/load.ts';
import { capableOptions } from '../../src/mount/capable-options.ts';
import { assembleMount, type MountParts } from '../../src/mount/mount-parts.ts';
import type { RemoteService } from '../../src/remote/contract.ts';
import { createTransfer } from '../../src/transfer/transfer.ts';
import { Tree } from '../../src/tree/tree.ts';
import { InProcessMount } from './in-process-mount.ts';

/** A whole mount in this thread, assembled as in the mounting process: system calls at one end, any service at the other. */
export class AssembledMount {
  readonly parts: MountParts;
  readonly mount: InProcessMount;
  readonly #directory: string;
  readonly #shutdown: AbortController;

  private constructor(parts: MountParts, directory: string, shutdown: AbortController) {
    this.parts = parts;
    this.mount = new InProcessMount(parts.mounted);
    this.#directory = directory;
    this.#shutdown = shutdown;
  }

  static async build(service: RemoteService, flags: Readonly<Record<string, string>> = {}): Promise<AssembledMount> {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-assembled-'));
    const shutdown = new AbortController();
    setMaxListeners(0, shutdown.signal);
    const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
    const { options } = loadOptions({ flags: { settleMs: '1ms', ...flags }, env: {}, file: null });
    const parts = await assembleMount({
      storeDirectory: directory,
      options: capableOptions(options, service),
      owner,
      service: createTransfer({ service, clock: systemClock, log: silentLogger }),
      log: silentLogger,
      clock: systemClock,
      shutdown: shutdown.signal,
      onEvent: () => {},
    });
    Tree.createRoot(parts.store, systemClock, { resource: (await service.user()).home, ...owner });
    parts.sync.start();
    return new AssembledMount(parts, directory, shutdown);
  }

  /** Waits until nothing is left to be pushed. */
  async converge(): Promise<void> {
    await expect.poll(() => this.parts.sync.status()).toMatchObject({ pending: 0, pushing: 0 });
  }

  /** In the order in which the mounting process ends. */
  async close(): Promise<void> {
    const { pins, sync, freshness, contents, store } = this.parts;
    pins.stop();
    await sync.stop();
    freshness.stop();
    this.#shutdown.abort(new Error('the mount is closed'));
    contents.close();
    await store.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
