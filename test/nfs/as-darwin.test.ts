import { type ChildProcess, spawn } from 'node:child_process';
import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import { DarwinGround } from './darwin-ground.ts';
import type { NfsClient } from './nfs-client.ts';

const START_MS_MAX = 60_000;
const ground = new DarwinGround();
let demo: ChildProcess;
let said = '';
let client: NfsClient;
let root: Buffer;

beforeAll(async () => {
  const [program = '', ...words] = ground.command('cfs', ['demo', ground.directory]);
  demo = spawn(program, words, { env: { ...process.env, ...ground.env }, stdio: ['ignore', 'pipe', 'pipe'] });
  for (const stream of [demo.stdout, demo.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
  ({ client, root } = await ground.accept(() => (demo.exitCode === null ? null : said)));
}, 2 * START_MS_MAX);

afterAll(async () => {
  client?.close();
  if (demo?.exitCode === null) {
    demo.kill('SIGTERM');
    await new Promise((resolve) => demo.once('exit', resolve));
  }
  ground.dispose();
});

test('a mount as on macOS serves files, pushes them, reports its state and unmounts', async () => {
  onTestFailed(() => console.error(said));
  await expect.poll(() => client.names(root)).toContain('Welcome.txt');
  const file = await client.create(root, 'letter.txt', Buffer.from('verifier'));
  await client.create(root, '._letter.txt', Buffer.from('another.'));
  await client.write(file, 0, 'bytes');
  await client.commit(file);

  const sync = await ground.run('cfs', 'sync', '--wait');
  expect(sync.code, sync.stderr + said).toBe(0);
  const status = await ground.run('cfs', 'status');
  expect(status.stdout).toContain(ground.directory);
  await client.rename(root, 'letter.txt', root, 'renamed.txt');
  expect(await client.names(root)).toContain('._renamed.txt');

  const umount = await ground.run('cfs', 'umount');
  expect(umount.code, umount.stderr + said).toBe(0);
  expect(ground.unmounted).toBe(`${ground.directory}\n`);
  await expect.poll(() => demo.exitCode).toBe(0);
  expect(ground.wrong, 'a command of Linux was run').toBe('');
});
