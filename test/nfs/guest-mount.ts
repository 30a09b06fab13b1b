import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, onTestFailed } from 'vitest';
import type { CommandResult } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';

/** For a test file in user-mode Linux: a mount over NFS, and a directory in memory beside it that should have the same files. */
export class GuestMount {
  #mount: MountFixture | undefined;
  #plain = '';

  /** To be called at the top of the file: the mount exists while its tests run. */
  static ofThisFile(): GuestMount {
    const both = new GuestMount();
    beforeAll(async () => {
      both.#mount = await MountFixture.start({ flags: ['--binding', 'nfs', '--allow-other'] });
      both.#plain = await mkdtemp(join(tmpdir(), 'cfs-plain-'));
    });
    afterAll(async () => {
      await both.#mount?.dispose();
      await rm(both.#plain, { recursive: true, force: true });
    });
    return both;
  }

  get mount(): MountFixture {
    if (this.#mount === undefined) throw new Error('nothing is mounted yet');
    return this.#mount;
  }

  /** The directory in memory. */
  get plain(): string {
    return this.#plain;
  }

  printLogsOnFailure(): void {
    onTestFailed(() => this.mount.printLogs());
  }

  /** Pushes everything. @returns the files and folders of the directory, and how the mount and the service differ from it */
  async compared(): Promise<{ readonly files: number; readonly differences: readonly unknown[] }> {
    const { mount } = this;
    const run = (script: string): Promise<CommandResult> => mount.run(`cd '${this.plain}'; ${script}`);
    const wanted = await treeDigests({ run });
    const onMount = treeDifferences(await treeDigests(mount), wanted);
    await mount.sync();
    return { files: wanted.size, differences: [...onMount, ...treeDifferences(await mount.serverTree(), wanted)] };
  }
}
