import { afterAll, beforeAll, expect, test } from 'vitest';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import { callControl } from '../../src/control/client.ts';
import type { EventRecord, WatchMessage } from '../../src/control/event-model.ts';
import { accountNames } from '../../src/mount/account-file.ts';
import { MountFixture } from '../harness/mount-fixture.ts';

/** The event stream of a mount: what `cfs log` prints, and what `watch` sends. Two mounts of one account. */

let mine: MountFixture;
let theirs: MountFixture;

beforeAll(async () => {
  mine = await MountFixture.start({ flags: ['--dir-ttl', '1s'] });
  theirs = await mine.freshStore();
});

afterAll(async () => {
  await mine.dispose();
});

type Line = { readonly seq: number; readonly atMs: number; readonly type: string; readonly path?: string };

async function logOf(mount: MountFixture, args: readonly string[] = []): Promise<Line[]> {
  const { stdout } = await mount.cfs(['log', '--json', ...args]);
  return stdout
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Line);
}

function socketOf(mount: MountFixture): string {
  const paths = pathsOf(mount.env());
  return accountPaths(paths, accountNames(paths)[0] as string).socketPath;
}

/** [S-events-2] */
test('the log names what was pushed here and what was made, changed, renamed and deleted elsewhere', async () => {
  await mine.run('mkdir docs && printf one > docs/a.txt && printf two > docs/b.txt');
  await mine.sync();
  await mine.cfs(['refresh', `${mine.directory}/docs`]); // confirms what was just made (S-version-8)
  await theirs.cfs(['refresh', theirs.directory]); // a program of another test may have listed it before
  await theirs.run('ls docs && printf longer > docs/a.txt && mv docs/b.txt docs/c.txt && printf new > docs/d.txt');
  await theirs.sync();
  await mine.cfs(['refresh', `${mine.directory}/docs`]);
  await theirs.run('rm docs/d.txt');
  await theirs.sync();
  await mine.cfs(['refresh', `${mine.directory}/docs`]);

  const lines = (await logOf(mine)).map(({ seq: _, atMs: __, ...event }) => event);
  for (const event of [
    { type: 'folder-created', path: 'docs' },
    { type: 'received', change: 'changed', path: 'docs/a.txt', count: 1 },
    { type: 'renamed-elsewhere', from: 'docs/b.txt', to: 'docs/c.txt' },
    { type: 'received', change: 'created', path: 'docs/d.txt', count: 1 },
    { type: 'received', change: 'deleted', path: 'docs/d.txt', count: 1, url: expect.stringMatching(/\/file\/:sc:/) },
  ])
    expect(lines).toContainEqual(event);
  expect(lines).toContainEqual(expect.objectContaining({ type: 'uploaded', path: 'docs/b.txt', sizeBytes: 3 }));
  // What this mount pushed is not received from elsewhere.
  expect(lines.filter(({ type }) => type === 'received')).toHaveLength(3);
  const { stdout } = await mine.cfs(['log', `${mine.directory}/docs/c.txt`]);
  expect(stdout).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d {2}docs\/b.txt was renamed to docs\/c.txt elsewhere\n$/);
});

/** [S-events-1] */
test('the history survives an unmount and a kill of the mount', async () => {
  const before = await logOf(mine);
  await mine.unmount();
  await mine.mount();
  await mine.kill9();
  await mine.mount();

  const after = await logOf(mine);
  expect(after.slice(0, before.length)).toEqual(before);
  expect(after.slice(before.length).map(({ type }) => type)).toEqual(['unmounted', 'mounted', 'mounted']);
  expect(after.map(({ seq }) => seq)).toEqual(after.map((_, at) => at + 1));
});

/** [S-events-3] */
test('a follower gets each new event, the status with its changes, and the end of the mount', async () => {
  const messages: WatchMessage[] = [];
  const params = { since: (await logOf(theirs)).length, follow: true, status: true };
  const ended = callControl(socketOf(theirs), 'watch', params, { onProgress: (message) => messages.push(message) });
  await expect.poll(() => messages.some(({ type }) => type === 'status')).toBe(true);
  expect(messages[0]).toMatchObject({ type: 'transfers', transfers: [] });
  expect(messages[1]).toMatchObject({ type: 'status', changed: { directory: theirs.directory, phase: 'running' } });

  await theirs.run('printf x > followed.txt');
  await theirs.sync();
  const events = (): EventRecord[] => messages.filter((message) => message.type === 'event');
  await expect.poll(() => events().map(({ event }) => event.type)).toContain('uploaded');
  const follower = theirs.cfs(['log', '--follow'], { anyExitCode: true });
  await theirs.unmount();
  expect(events().at(-1)?.event.type).toBe('unmounted');
  expect((await ended).seq).toBe(events().at(-1)?.seq);
  const { code, stdout } = await follower;
  // It may have come too late for the mount; a follower that came in time ends with it.
  if (code === 0) expect(stdout).toContain('unmounted');
  await theirs.mount();
});
