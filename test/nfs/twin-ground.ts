import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';

/** A mount over NFS, and a directory in memory that a test keeps equal to it. */
export class TwinGround {
  readonly mount: MountFixture;
  readonly plain: string;

  private constructor(mount: MountFixture, plain: string) {
    this.mount = mount;
    this.plain = plain;
  }

  static async start(): Promise<TwinGround> {
    const mount = await MountFixture.start({ flags: ['--binding', 'nfs', '--allow-other'] });
    return new TwinGround(mount, await mkdtemp(join(tmpdir(), 'cfs-plain-')));
  }

  /** Compares the mount with the directory, then pushes everything, and compares the service. @returns the number of files and folders */
  async compare(): Promise<number> {
    const wanted = await treeDigests({ run: (script) => this.mount.run(`cd '${this.plain}'; ${script}`) });
    expect(treeDifferences(await treeDigests(this.mount), wanted), 'the mount').toEqual([]);
    await this.mount.sync();
    const stored = await this.mount.serverTree();
    expect(treeDifferences(stored, wanted), 'the service: conflict copies, drafts and lost files').toEqual([]);
    return wanted.size;
  }

  async dispose(): Promise<void> {
    await this.mount.dispose();
    await rm(this.plain, { recursive: true, force: true });
  }
}
