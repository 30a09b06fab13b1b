import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { exitCode } from '../../src/mount/exit-codes.ts';
import type { CommandResult } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { missingPrograms, missingRoot, testUnless } from '../harness/requirement.ts';

/** What was: versions, the trash, public links, as people get at them. One mount for all; each test has files of its own. */

let mount: MountFixture;

/** No `--save-window`: a file that was deleted lies in the trash, also when its name is created again at once. */
beforeAll(async () => {
  mount = await MountFixture.start({ flags: ['--settle', '1h', '--save-window', '0s'] });
});

afterAll(async () => {
  await mount.dispose();
});

const cfs = (...args: string[]): Promise<CommandResult> => mount.cfs(args, { anyExitCode: true, timeoutMs: 60_000 });
const at = (name: string): string => join(mount.directory, name);
const beside = (name: string): string => join(mount.directory, '..', name);
/** Below it lie the versions that are being fetched. */
const spools = (): string => beside('state/cfs/accounts');

/** Saves `texts` one after another, each as a version. @returns their names, oldest first */
async function save(name: string, ...texts: string[]): Promise<readonly string[]> {
  for (const text of texts) {
    await mount.run(`printf %s '${text}' > '${name}'`);
    await mount.sync();
  }
  return (await versionsOf(name)).map((version) => version.name).reverse();
}

async function versionsOf(name: string): Promise<readonly { name: string; sizeBytes: number; isLatest: boolean }[]> {
  const { stdout } = await mount.cfs(['versions', '--json', at(name)]);
  return (JSON.parse(stdout) as { versions: { name: string; sizeBytes: number; isLatest: boolean }[] }).versions;
}

/** [S-history-1] */
test('cfs versions lists the versions on the service, newest first, and reports a pending one', async () => {
  const [first = '', second = ''] = await save('list.txt', 'one', 'three');

  const listed = await cfs('versions', at('list.txt'));

  expect(listed.stdout).toBe(`${second}       5 B  latest\n${first.padEnd(second.length)}       3 B\n`);
  await mount.run("printf 'not pushed' > list.txt");
  expect((await cfs('versions', at('list.txt'))).stdout).toContain('the local version is not on the service yet');
  await mount.run('printf new > new.txt');
  expect((await cfs('versions', at('new.txt'))).stdout).toContain('no version of new.txt is on the service yet');
});

/** [S-history-2] */
test('cfs restore makes an earlier version the next version, and keeps the replaced bytes as a version', async () => {
  const [first] = await save('back.txt', 'first', 'second');
  await mount.run("printf 'never pushed' > back.txt; chmod 640 back.txt");

  const restored = await cfs('restore', `${at('back.txt')}@${first}`);

  expect(restored).toMatchObject({ code: 0, stderr: '' });
  expect((await mount.run('cat back.txt; stat -c " %a" back.txt')).stdout).toBe('first 640\n');
  await mount.sync();
  const versions = await versionsOf('back.txt');
  expect(versions.map(({ sizeBytes }) => sizeBytes)).toEqual([5, 12, 6, 5]);
  const [, replaced] = versions;
  expect((await cfs('restore', `${at('back.txt')}@${replaced?.name}`, '--to', beside('replaced.txt'))).code).toBe(0);
  expect(readFileSync(beside('replaced.txt'), 'utf8')).toBe('never pushed');
  expect((await mount.run('ls -A')).stdout).not.toContain('cfs-restore');
});

/** [S-history-2] */
testUnless(missingRoot() ?? missingPrograms('setfattr', 'getfattr'))(
  'cfs restore leaves a file its owner, its mode and its attributes',
  async () => {
    const kept = `${'a'.repeat(39)}😀 kept.txt`; // as a part of it is in the name of the copy
    const [first] = await save(kept, 'first', 'second');
    await mount.run(`chown 4321:8765 '${kept}'; chmod 4750 '${kept}'; setfattr -n user.note -v mine '${kept}'`);

    expect(await cfs('restore', `${at(kept)}@${first}`)).toMatchObject({ code: 0, stderr: '' });

    const { stdout } = await mount.run(
      `cat '${kept}'; stat -c ' %u %g %a' '${kept}'; getfattr --only-values -n user.note '${kept}'`,
    );
    expect(stdout).toBe('first 4321 8765 4750\nmine');
  },
);

/** [S-history-2] The file that it makes beside `_name` begins with `._`, which never travels. */
test.each(['_begun.txt', '#begun.txt'])('cfs restore makes %s what it was, as its next version', async (name) => {
  const [first] = await save(name, 'first', 'second');

  expect(await cfs('restore', `${at(name)}@${first}`)).toMatchObject({ code: 0, stderr: '' });

  await mount.sync();
  expect((await mount.run(`cat '${name}'`)).stdout).toBe('first');
  expect((await versionsOf(name)).map(({ sizeBytes }) => sizeBytes)).toEqual([5, 6, 5]);
});

/** [S-history-2] */
test('a save during cfs restore is in the history, below the restored version', async () => {
  const old = 2 * 1024 ** 2;
  await mount.run(`head -c ${old} /dev/urandom > slow.bin`);
  await mount.sync();
  await save('slow.bin', 'second');
  const { server } = mount;
  await server.setFaults([
    { on: 'GET', path: 'fileVersionData', times: 'always', then: { bandwidthBytesPerSecond: old / 4 } },
  ]);
  try {
    const restored = cfs('restore', `${at('slow.bin')}@-1`);
    const isFetching = (): boolean =>
      readdirSync(spools(), { recursive: true }).some((name) => /fetched\/\d+$/.test(`${name}`));
    await vi.waitUntil(isFetching, { timeout: 60_000, interval: 10 });
    // It is in the middle now, and stays there.
    await server.pause();
    await mount.run("printf 'saved meanwhile' > slow.bin").finally(() => server.resume());

    expect(await restored).toMatchObject({ code: 0, stderr: '' });
  } finally {
    await server.setFaults([]);
  }
  expect((await mount.run('stat -c %s slow.bin')).stdout).toBe(`${old}\n`);
  await mount.sync();
  expect((await versionsOf('slow.bin')).map(({ sizeBytes }) => sizeBytes)).toEqual([old, 15, 6, old]);
});

test('cfs restore --to writes a new file, in a folder under its own name, and never over another', async () => {
  await save('to.txt', 'old', 'new');
  mkdirSync(beside('out'));

  expect((await cfs('restore', `${at('to.txt')}@-1`, '--to', beside('out'))).code).toBe(0);
  expect(readFileSync(join(beside('out'), 'to.txt'), 'utf8')).toBe('old');
  writeFileSync(join(beside('out'), 'taken'), 'mine');
  const refused = await cfs('restore', `${at('to.txt')}@latest`, '--to', join(beside('out'), 'taken'));

  expect(refused.code).toBe(exitCode('usage'));
  expect(refused.stderr).toMatch(/taken already exists and is not overwritten\n$/);
  expect(readFileSync(join(beside('out'), 'taken'), 'utf8')).toBe('mine');
  expect((await mount.run('cat to.txt')).stdout).toBe('new');
});

test.each(['file', 'nowhere'])('cfs restore leaves a link a link (to %s)', async (to) => {
  const name = `link-to-${to}`;
  await mount.run('echo bytes > file');
  for (const target of [to, 'elsewhere']) {
    await mount.run(`ln -sfn ${target} ${name}`);
    await mount.sync();
  }

  expect((await cfs('restore', `${at(name)}@-1`, '--to', beside(name))).code).toBe(0);
  expect((await cfs('restore', `${at(name)}@-1`)).code).toBe(0);

  expect((await mount.run(`readlink ${name}`)).stdout).toBe(`${to}\n`);
  expect(readlinkSync(beside(name))).toBe(to);
  await mount.sync();
  expect(await versionsOf(name)).toHaveLength(3);
});

test("cfs diff hands versions, and the file as it is, to the user's program", async () => {
  const [first, second] = await save('compared @ home.txt', 'same\none', 'same\ntwo');
  const file = at('compared @ home.txt');

  const versions = await cfs('diff', `${file}@${first}`, `${file}@${second}`);
  expect(versions.code).toBe(exitCode('different'));
  expect(versions.stdout).toMatch(/^-one$/m);
  expect(versions.stdout).toMatch(/^\+two$/m);
  expect(versions.stdout).toContain(`${first}-compared @ home.txt`);
  expect(await cfs('diff', `${file}@latest`, file)).toMatchObject({ code: 0, stdout: '' });

  writeFileSync(beside('tool'), '#!/bin/sh\nprintf "[%s]" "$1" "$(cat "$2")" "$(cat "$3")"\n');
  chmodSync(beside('tool'), 0o755);
  const own = await mount.cfs(['diff', `${file}@${first}`, file], {
    env: { CFS_DIFF: `${beside('tool')} --my-flag` },
  });
  expect(own.stdout).toBe('[--my-flag][same\none][same\ntwo]');
  expect((await cfs('diff', '--tool', 'exit 3;', file, file)).stderr).toMatch(
    /failed with exit code 3: see --tool and CFS_DIFF/,
  );

  // Ctrl-C while the program runs: what was fetched for it goes.
  mkdirSync(beside('tmp'));
  const tool = 'kill -INT $PPID; tail -f --pid=$PPID /dev/null; exit';
  const interrupted = mount.cfs(['diff', '--tool', tool, `${file}@${first}`, file], { env: { TMPDIR: beside('tmp') } });
  await expect(interrupted).rejects.toThrow('ended with a signal');
  expect(readdirSync(beside('tmp'))).toEqual([]);
});

/** [S-share-1] */
test.each(['kill -PIPE $$', 'exec sh -c "kill -PIPE \\$\\$"'])(
  'the output of cfs diff may be read in part (%s)',
  async (tool) => {
    await mount.run('echo bytes > begun');
    await mount.sync();

    const result = await cfs('diff', `${at('begun')}@latest`, at('begun'), '--tool', tool);

    expect(result).toMatchObject({ code: exitCode('different'), stderr: '' });
  },
);

test('cfs share link prints a public link to the file, and --off revokes it', async () => {
  await save('shared.txt', 'for all');

  const { stdout } = await cfs('share', 'link', at('shared.txt'));

  const link = stdout.trim();
  expect(await (await fetch(`${link}?directDownload=true`)).text()).toBe('for all');
  expect((await cfs('share', 'link', at('shared.txt'))).stdout.trim()).toBe(link);
  expect((await cfs('share', 'link', '--off', at('shared.txt'))).code).toBe(0);
  expect((await fetch(link)).status).toBe(404);
});

/** [S-trash-1] */
test('cfs trash lists deleted files, restores them, and deletes them permanently on request', async () => {
  await save('gone.txt', 'gone');
  await mount.run('mkdir deep && printf x > deep/below.txt && mkdir place');
  await mount.sync();
  await mount.run('rm gone.txt; rm -r deep');
  await mount.sync();

  const listed = await cfs('trash', 'list');
  expect(listed.stdout).toMatch(/^\S+ +4 B {2}\d{4}-\d\d-\d\d \d\d:\d\d {2}gone\.txt$/m);

  expect(await cfs('trash', 'restore', 'gone.txt', '--to', at('place'))).toMatchObject({
    code: 0,
    stdout: `gone.txt is back in ${at('place')}\n`,
  });
  expect((await mount.run('cat place/gone.txt')).stdout).toBe('gone');

  const refused = await cfs('trash', 'empty');
  expect(refused.code).toBe(exitCode('usage'));
  expect(refused.stderr).toMatch(/without a terminal, add --yes\n$/);
  expect((await cfs('trash', 'list')).stdout).not.toBe('the trash is empty\n');
  expect((await cfs('trash', 'empty', '--yes')).code).toBe(0);
  expect((await cfs('trash', 'list')).stdout).toBe('the trash is empty\n');
});

test('cfs trash restore puts a thing into the top folder or under a new name, and never beside one of its name', async () => {
  await save('twice.txt', 'first');
  await mount.run('rm twice.txt');
  await mount.sync();
  await save('twice.txt', 'second');

  const refused = await cfs('trash', 'restore', 'twice.txt');
  expect(refused.code).toBe(exitCode('usage'));
  expect(refused.stderr).toMatch(
    /^cfs: twice\.txt already exists: choose another place or name with --to; nothing was changed\n$/,
  );

  expect((await cfs('trash', 'restore', 'twice.txt', '--to', at('other.txt'))).code).toBe(0);
  expect((await mount.run('cat other.txt twice.txt')).stdout).toBe('firstsecond');
  await mount.run('rm twice.txt');
  await mount.sync();
  expect((await cfs('trash', 'restore', 'twice.txt')).stdout).toBe('twice.txt is back in the top folder\n');
  expect((await mount.run('cat twice.txt')).stdout).toBe('second');
});

test('a thing in the trash whose name is there twice is asked for by its id', async () => {
  for (const text of ['one', 'two']) {
    await save('double.txt', text);
    await mount.run('rm double.txt');
    await mount.sync();
  }

  const refused = await cfs('trash', 'restore', 'double.txt');
  expect(refused.code).toBe(exitCode('usage'));
  const ids = /by its id \((\S+), (\S+)\)/.exec(refused.stderr)?.slice(1) ?? [];
  expect(ids).toHaveLength(2);
  expect((await cfs('trash', 'restore', ids[0] ?? '')).code).toBe(0);
  expect(existsSync(beside('out'))).toBe(true);
  expect(['one', 'two']).toContain((await mount.run('cat double.txt')).stdout);
});

/** [S-history-4] */
test('cfs restore --at makes each file of a folder what it was at a time, and leaves what was made since', async () => {
  await mount.run('mkdir -p tree/sub');
  await save('tree/changed.txt', 'then');
  await save('tree/sub/same.txt', 'same');
  const versions = [...(await versionsOf('tree/changed.txt')), ...(await versionsOf('tree/sub/same.txt'))];
  const last =
    versions
      .map(({ name }) => name)
      .sort()
      .at(-1) ?? '';
  // Version names count whole seconds: the next save has to have a later one.
  const seconds = Date.parse(last.slice(0, 19).replaceAll('.', ':').concat('Z')) / 1000;
  await vi.waitUntil(() => Date.now() / 1000 > seconds + 1.1, { timeout: 10_000, interval: 20 });
  await save('tree/changed.txt', 'now');
  await save('tree/made.txt', 'made since');

  const restored = await cfs('restore', at('tree'), '--at', `${last.slice(0, 19)}Z`);

  expect(restored.code, restored.stderr).toBe(0);
  expect(restored.stdout).toMatch(/^restored 1 file to .*Z, each as its next version; 1 unchanged since\n$/);
  expect(restored.stderr).toBe('1 file without a version of that time, left as they are:\n  tree/made.txt\n');
  expect((await mount.run('cat tree/changed.txt tree/sub/same.txt tree/made.txt')).stdout).toBe('thensamemade since');
  await mount.sync();
  expect((await versionsOf('tree/changed.txt')).map(({ sizeBytes }) => sizeBytes)).toEqual([4, 3, 4]);
});

/** [S-history-5] */
test('cfs restore --at brings back what was deleted in the folder since, here and elsewhere, and nothing else', async () => {
  await mount.run('mkdir -p lost/kept lost/whole/deep lost/elsewhere outside && printf then > lost/kept/file.txt');
  await mount.run('printf deep > lost/whole/deep/a && printf there > lost/elsewhere/b && printf out > outside/c');
  await mount.run('printf taken > lost/taken.txt && printf early > lost/early.txt');
  await mount.sync();
  await mount.run('rm lost/early.txt');
  await mount.sync();
  const then = Math.ceil(Date.now() / 1000);
  await vi.waitUntil(() => Date.now() / 1000 > then + 1.1, { timeout: 10_000, interval: 20 });

  const other = await mount.freshStore();
  await other.run('rm lost/elsewhere/b');
  await other.sync();
  await mount.cfs(['refresh', at('lost/elsewhere')]);
  await mount.run(
    'printf now > lost/kept/file.txt && mv lost/kept lost/renamed && mv lost/renamed/file.txt lost/other',
  );
  await mount.sync();
  await mount.run('printf since > lost/made.txt');
  await mount.sync();
  await mount.run('rm -r lost/made.txt lost/whole lost/other lost/taken.txt outside/c');
  await mount.sync();
  await mount.run('mkdir lost/taken.txt lost/kept && rmdir lost/renamed');

  const restored = await cfs(
    'restore',
    at('lost'),
    '--at',
    new Date(then * 1000).toISOString().slice(0, 19).concat('Z'),
  );

  expect(restored.stdout).toContain('back from the trash: lost/elsewhere/b, lost/kept/file.txt, lost/whole\n');
  expect(restored.stderr).toContain('left in the trash, because the name is taken or the folder is gone');
  expect(restored.stderr).toContain(': lost/taken.txt\n');
  const shown = await mount.run('cat lost/elsewhere/b lost/kept/* lost/whole/deep/a; ls lost lost/kept outside');
  expect(shown.stdout).toBe(
    'therethendeeplost:\nelsewhere\nkept\ntaken.txt\nwhole\n\nlost/kept:\nfile.txt\n\noutside:\n',
  );
});

/** [S-share-2] */
test('cfs share list shows each file that has a public link by its path in the mount, until the link is off', async () => {
  await mount.run('mkdir links');
  await save('links/one.txt', 'for all');
  const { stdout: link } = await cfs('share', 'link', at('links/one.txt'));
  const listed = async (): Promise<string> => (await cfs('share', 'list')).stdout;

  const { stdout } = await cfs('share', 'list', '--json');
  const { links } = JSON.parse(stdout) as { links: readonly { name: string; link: string; path: string | null }[] };
  const entry = { name: 'one.txt', link: link.trim(), sizeBytes: 7, path: at('links/one.txt') };
  expect(links).toMatchObject([entry]);
  expect(await listed()).toBe(`${link.trim()}        7 B  ${at('links/one.txt')}\n`);
  await mount.run('mv links/one.txt links/two.txt');
  expect(await listed()).toBe(`${link.trim()}        7 B  ${at('links/two.txt')}\n`);
  await mount.run('rm links/two.txt');
  expect(await listed()).toBe(`${link.trim()}        7 B  one.txt\n`);
  await cfs('discard', at('links'), '--yes');
  await cfs('share', 'link', '--off', at('links/one.txt'));
  expect(await listed()).toBe('no file has a public link\n');
});
