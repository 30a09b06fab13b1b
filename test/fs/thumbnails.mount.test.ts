import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed } from 'vitest';
import { installDesktop } from '../../src/cli/commands/desktop.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { callControl } from '../../src/control/client.ts';
import { runningMounts } from '../../src/mount/running-mounts.ts';
import { PERL } from '../../src/mount/thumbnailer-entry.ts';
import { runCommand } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';
import { missingFile, testUnless, titled } from '../harness/requirement.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';

/** Thumbnails as a desktop makes them: by the entry that `cfs desktop install` writes. The server's log counts the requests. */

// A type of its own: without the package its declarations are missing too.
const name: string = 'sharp';
// biome-ignore lint/suspicious/noExplicitAny: as above
const sharp: any = await import(name).then(
  (library) => library.default,
  () => null,
);
const MISSING = missingForMounts() ?? missingFile(PERL) ?? (sharp === null ? 'the optional package sharp' : null);
const testHere = testUnless(MISSING);

/** `npm run soak -- desktop` sets more. */
const PICTURES = Number(process.env.CFS_PICTURES ?? 12);
const AHEAD = Math.max(2, Math.min(PICTURES, 2_000) - 12);
/** What `fs/thumbnails-ahead` fetches at most. */
const AHEAD_MAX = 200;
/** A thumbnail each, by a process each, on a machine that other tests keep busy. */
const timeout = 120_000 + PICTURES * 1_000;

describe.skipIf(MISSING !== null)(titled('thumbnails', MISSING), () => {
  let mount: MountFixture;
  let calls: SyscallProcess;
  /** Home of the desktop: its data directory, and that of the "system" with a thumbnailer that copies. */
  let home: string;
  let env: Readonly<Record<string, string>>;
  /** The picture, some hundred KB. */
  let original: Buffer;
  let exec: string;

  beforeAll(async () => {
    home = mkdtempSync(join(tmpdir(), 'cfs-thumbnails-'));
    mkdirSync(join(home, 'system/thumbnailers'), { recursive: true });
    writeFileSync(join(home, 'copy'), '#!/bin/sh\ncat "$1" > "$2"\n');
    chmodSync(join(home, 'copy'), 0o755);
    const entry = ['[Thumbnailer Entry]', `Exec=${join(home, 'copy')} %i %o`, 'MimeType=image/jpeg;', ''];
    writeFileSync(join(home, 'system/thumbnailers/copy.thumbnailer'), entry.join('\n'));
    env = { HOME: home, PATH: '/usr/bin:/bin', XDG_DATA_HOME: join(home, 'data'), XDG_DATA_DIRS: join(home, 'system') };
    installDesktop({ env, print: () => {} });
    exec = /^Exec=(.*)$/m.exec(readFileSync(join(home, 'data/thumbnailers/cfs-mount.thumbnailer'), 'utf8'))?.[1] ?? '';

    const noise = { type: 'gaussian', mean: 128, sigma: 50 };
    original = await sharp({ create: { width: 900, height: 600, channels: 3, background: 'grey', noise } })
      .jpeg()
      .toBuffer();
    mkdirSync(join(home, 'programs'));
    symlinkSync('/usr/bin/cat', join(home, 'programs/cat'));
    const fusermount = (process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, 'fusermount3'));
    for (const path of fusermount.filter((each) => existsSync(each)).slice(0, 1))
      symlinkSync(path, join(home, 'programs/fusermount3'));
    mount = await MountFixture.start({
      serverFlags: ['--log-level', 'debug'],
      flags: ['--settle', '1h'],
      // Without bubblewrap, in whose sandbox the thumbnailer of this test would not exist; and with a cache of its own.
      env: { PATH: join(home, 'programs'), XDG_CACHE_HOME: join(home, 'cache') },
    });
    const other = await OtherProgram.signIn(mount.server.account);
    const folder = await other.client.createFolder(other.systemFolder('2'), 'photos');
    for (let at = 0; at < PICTURES; at++)
      await other.client.createFilled(folder, `IMG ${at}.jpg`, original, 'image/jpeg');
    await other.client.createFilled(folder, 'broken.jpg', Buffer.alloc(5_000, 'x'), 'image/jpeg');
    await other.client.createFilled(folder, 'notes.txt', Buffer.from('notes'), 'text/plain');
    await mount.cfs(['refresh']);
    await mount.run('ls -l photos');
    calls = await SyscallProcess.start(mount.directory);
  }, timeout);

  afterAll(async () => {
    await calls?.dispose();
    await mount?.dispose();
    rmSync(home, { recursive: true, force: true });
  });

  /** As a desktop runs an entry: split into words, then the codes are replaced. @returns the exit code and the thumbnail */
  async function thumbnailOf(path: string): Promise<{ readonly code: number | null; readonly bytes: string | null }> {
    const out = join(home, 'out.png');
    rmSync(out, { force: true });
    const [, program = '', script = '', rest = ''] = /^(\S+) -e '(.*?)' (.*)$/.exec(exec) ?? [];
    const values: Readonly<Record<string, string>> = { u: `file://${encodeURI(path)}`, i: path, o: out, s: '256' };
    const words = rest.split(' ').map((word) => word.replace(/%([uios])/g, (_all, code: string) => values[code] ?? ''));
    const { code } = await runCommand([program, '-e', script, ...words], { env, anyExitCode: true, timeoutMs: 60_000 });
    const isThere = statSync(out, { throwIfNoEntry: false }) !== undefined;
    return { code, bytes: isThere ? readFileSync(out, 'base64') : null };
  }

  const inMount = (path: string): string => join(mount.directory, path);

  /** Requests for bytes since request `from`, without their resources. */
  async function dataRequests(from: number): Promise<{ readonly files: number; readonly versions: number }> {
    const asked = (await mount.server.requestsSoFar()).slice(from).filter((each) => /^GET .*\/data(\?|$)/.test(each));
    const versions = asked.filter((each) => each.includes('/version/')).length;
    return { files: asked.length - versions, versions };
  }

  async function requestCount(): Promise<number> {
    return (await mount.server.requestsSoFar()).length;
  }

  async function fetchedBytes(): Promise<number> {
    const [running] = await runningMounts(pathsOf(mount.env()));
    if (running === undefined) throw new Error('nothing is mounted');
    return (await callControl(running.socketPath, 'metrics', {})).bytes.fetched;
  }

  /** [S-desktop-2] [S-xattr-8] */
  testHere(
    'a folder of pictures gets its thumbnails by one small request each, and 0 bytes of the files',
    { timeout },
    async () => {
      onTestFailed(mount.printLogs);
      const from = await requestCount();

      for (let at = 0; at < PICTURES; at++) {
        const { code, bytes } = await thumbnailOf(inMount(`photos/IMG ${at}.jpg`));
        expect(code).toBe(0);
        expect(await sharp(Buffer.from(bytes ?? '', 'base64')).metadata()).toMatchObject({
          format: 'jpeg',
          width: 256,
        });
      }

      expect(await dataRequests(from)).toEqual({ files: PICTURES, versions: 0 });
      expect(await fetchedBytes()).toBe(0);
      expect((await mount.run('ls -A photos')).stdout).not.toContain('cfs.jpg');
    },
  );

  /** [S-desktop-2] */
  testHere('find, a backup and an indexer that lists attributes cause no thumbnail', async () => {
    onTestFailed(mount.printLogs);
    const from = await requestCount();

    expect((await mount.run('find photos -type f -printf "%p %s\\n" | wc -l')).stdout.trim()).toBe(`${PICTURES + 2}`);
    for (let at = 0; at < PICTURES; at++) expect(await calls.listxattr(`photos/IMG ${at}.jpg`)).toEqual([]);

    expect(await dataRequests(from)).toEqual({ files: 0, versions: 0 });
  });

  /** [S-desktop-3] */
  testHere('a picture outside the mount goes to the thumbnailer of the system', async () => {
    const path = join(home, 'outside %41.jpg');
    writeFileSync(path, original);

    expect(await thumbnailOf(path)).toEqual({ code: 0, bytes: original.toString('base64') });
  });

  /** [S-desktop-3] [S-xattr-8] */
  testHere('a file of which the service makes no small form goes to the thumbnailer of the system', async () => {
    onTestFailed(mount.printLogs);
    await expect(calls.getxattr('photos/broken.jpg', 'user.cfs.thumbnail')).rejects.toMatchObject({ errno: 'ENODATA' });
    await expect(calls.getxattr('photos/notes.txt', 'user.cfs.thumbnail')).rejects.toMatchObject({ errno: 'ENODATA' });
    await expect(calls.getxattr('photos', 'user.cfs.thumbnail')).rejects.toMatchObject({ errno: 'ENODATA' });

    expect(await thumbnailOf(inMount('photos/broken.jpg'))).toEqual({
      code: 0,
      bytes: Buffer.alloc(5_000, 'x').toString('base64'),
    });
  });

  /** [S-xattr-8] */
  testHere('a picture whose bytes are here, or were changed here, has no attribute and causes no request', async () => {
    onTestFailed(mount.printLogs);
    await mount.run('cat "photos/IMG 0.jpg" > /dev/null; printf x >> "photos/IMG 1.jpg"');
    await mount.run('cat > new.jpg', { input: original });
    const from = await requestCount();

    for (const path of ['photos/IMG 0.jpg', 'photos/IMG 1.jpg', 'new.jpg'])
      await expect(calls.getxattr(path, 'user.cfs.thumbnail')).rejects.toMatchObject({ errno: 'ENODATA' });
    expect(await thumbnailOf(inMount('photos/IMG 0.jpg'))).toEqual({ code: 0, bytes: original.toString('base64') });
    expect(await dataRequests(from)).toEqual({ files: 0, versions: 0 });
  });

  /** [S-desktop-4] */
  testHere(
    'a mount whose user has installed the entry fetches the rest of a folder ahead, and caches it',
    { timeout },
    async () => {
      onTestFailed(mount.printLogs);
      const other = await OtherProgram.signIn(mount.server.account);
      const folder = await other.client.createFolder(other.systemFolder('2'), 'ahead');
      const names = Array.from({ length: AHEAD }, (_, at) => `b ${String(at).padStart(4, '0')}.jpg`);
      for (const each of ['a.jpg', ...names]) await other.client.createFilled(folder, each, original, 'image/jpeg');
      await mount.cfs(['refresh']);
      await mount.run('ls -l ahead');
      // The thumbnailer of the system: makes a PNG, whatever its input is.
      const png = join(home, 'made.png');
      writeFileSync(
        png,
        await sharp({ create: { width: 4, height: 4, channels: 3, background: 'grey' } })
          .png()
          .toBuffer(),
      );
      writeFileSync(join(home, 'copy'), `#!/bin/sh\ncat ${png} > "$2"\n`);
      const { HOME = '', XDG_DATA_HOME = '' } = mount.env();
      installDesktop({ env: { ...env, HOME, XDG_DATA_HOME }, print: () => {} });
      const from = await requestCount();

      expect((await calls.getxattr('ahead/a.jpg', 'user.cfs.thumbnail')).byteLength).toBeGreaterThan(0);

      const large = join(home, 'cache/thumbnails/large');
      const cached = (): readonly string[] => {
        const files = names.map((each) => {
          const uri = `file://${encodeURI(inMount(`ahead/${each}`))}`;
          return `${createHash('md5').update(uri).digest('hex')}.png`;
        });
        return files.filter((each) => existsSync(join(large, each)));
      };
      const expected = Math.min(AHEAD, AHEAD_MAX);
      await expect.poll(cached, { timeout: 60_000, interval: 100 }).toHaveLength(expected);
      expect(await dataRequests(from)).toEqual({ files: 1 + expected, versions: 0 });
    },
  );
});
