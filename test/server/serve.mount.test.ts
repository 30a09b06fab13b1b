import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { appAuthorization, RawClient } from './raw-client.ts';

/** `cfs serve` from outside, as the built program (docs/service.md 1). */

const PROGRAM = fileURLToPath(new URL('../../dist/cli/cfs.js', import.meta.url));
let directory: string;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-serve-'));
});

afterAll(() => {
  rmSync(directory, { recursive: true });
});

interface Ended {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

function run(args: string[], env: Record<string, string> = {}, input = ''): Promise<Ended> {
  return new Promise((resolve) => {
    const options = { timeout: 30_000, env: { PATH: process.env.PATH, HOME: directory, ...env } };
    const child = execFile(
      process.execPath,
      [PROGRAM, 'serve', '--data', join(directory, 'data'), ...args],
      options,
      (error, out, err) => {
        resolve({ code: error === null ? 0 : Number(error.code), out, err });
      },
    );
    child.stdin?.end(input);
  });
}

function variables(text: string): Record<string, string> {
  return Object.fromEntries(
    text
      .trim()
      .split('\n')
      .map((line) => line.split(/=(.*)/s).slice(0, 2) as [string, string]),
  );
}

/** @returns the running server once it has said where it listens */
async function start(
  args: string[] = [],
  stderr: 'inherit' | number = 'inherit',
): Promise<{ child: ChildProcess; line: string; ready: string }> {
  const child = spawn(
    process.execPath,
    [PROGRAM, 'serve', '--data', join(directory, 'data'), '--ready-fd', '3', ...args],
    {
      stdio: ['ignore', 'pipe', stderr, 'pipe'],
      env: { PATH: process.env.PATH, HOME: directory },
    },
  );
  const lineOf = async (stream: unknown) =>
    (await once(createInterface(stream as NodeJS.ReadableStream), 'line'))[0] as string;
  const [line, ready] = await Promise.all([lineOf(child.stdout), lineOf(child.stdio[3])]);
  return { child, line, ready };
}

/** @returns the exit code, or the signal that ended it */
async function stop(child: ChildProcess, signal: NodeJS.Signals): Promise<number | NodeJS.Signals> {
  const ended = once(child, 'exit');
  child.kill(signal);
  const [code, by] = (await ended) as [number | null, NodeJS.Signals];
  return code ?? by;
}

test('a user added before the first start can sign in at the address that was printed, also after a restart', async () => {
  const added = await run(['user', 'add', 'a@example.com', '--password-stdin'], {}, 'pass word\n');
  const login = variables(added.out);
  const body = appAuthorization({
    email: login.CFS_USERNAME as string,
    password: 'pass word',
    application: login.CFS_APPLICATION as string,
    accessKeyId: login.CFS_ACCESS_KEY_ID as string,
    privateAccessKey: login.CFS_PRIVATE_ACCESS_KEY as string,
  });

  expect(added.code).toBe(0);
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    const { child, line, ready } = await start();
    expect(line).toBe(`listening on ${login.CFS_URL}`);
    expect(JSON.parse(ready)).toEqual({ origin: login.CFS_URL });
    const { status } = await new RawClient(login.CFS_URL as string).send('POST', '/app-authorization', { body });
    expect(status).toBe(201);
    expect(await stop(child, signal)).toBe(0);
  }
});

test('administration works beside a running server', async () => {
  const { child } = await start();

  const added = await run(['user', 'add', 'beside@example.com', '--quota', '1GiB'], { CFS_PASSWORD: 'secret' });
  const keys = await run(['key', 'add', 'beside@example.com']);
  const revoked = await run(['key', 'revoke', variables(keys.out).CFS_ACCESS_KEY_ID as string]);
  const quota = await run(['user', 'quota', 'beside@example.com', '2GiB']);
  const list = await run(['user', 'list']);
  const check = await run(['--check']);
  await stop(child, 'SIGTERM');

  expect([added.code, keys.code, revoked.code, quota.code, list.code, check.code]).toEqual([0, 0, 0, 0, 0, 0]);
  expect(list.out).toContain(`beside@example.com\t0 B of 2 GiB\t${variables(added.out).CFS_ACCESS_KEY_ID}\n`);
  expect(quota.out).toBe('beside@example.com has a quota of 2 GiB\n');
  expect(check.out).toContain('0 damaged');
});

test('a fault file brings the trouble it says', async () => {
  const file = join(directory, 'faults.json');
  writeFileSync(file, '[{"on": "GET", "path": "^/user", "times": "always", "then": {"status": 503}}]');
  const { child, line } = await start(['--fault-file', file]);

  const { status } = await new RawClient(line.slice('listening on '.length)).get('/user');
  await stop(child, 'SIGTERM');

  expect(status).toBe(503);
});

test('with a fault file SIGHUP reads that again; without one it ends nothing where there is no terminal, as under nohup', async () => {
  const file = join(directory, 'again.json');
  writeFileSync(file, '[]');
  const ordering = await start(['--fault-file', file]);
  const lines = createInterface(ordering.child.stdout as NodeJS.ReadableStream);

  ordering.child.kill('SIGHUP');
  const [said] = await once(lines, 'line');
  await stop(ordering.child, 'SIGTERM');
  const plain = await start([], openSync('/dev/null', 'w'));
  plain.child.kill('SIGHUP');

  expect(said).toBe('fault rules loaded: 0');
  expect((await new RawClient(plain.line.slice('listening on '.length)).get('/user')).status).toBe(401);
  expect(await stop(plain.child, 'SIGTERM')).toBe(0);
});

test('a terminal that is closed ends the server', async () => {
  const command = `exec '${process.execPath}' '${PROGRAM}' serve --data '${join(directory, 'data')}'`;
  const terminal = spawn('script', ['-qec', command, '/dev/null'], {
    stdio: 'pipe',
    env: { PATH: process.env.PATH, HOME: directory },
  });
  const [line] = (await once(createInterface(terminal.stdout), 'line')) as [string];
  const client = new RawClient(line.trim().slice('listening on '.length));
  expect((await client.get('/user')).status).toBe(401);

  terminal.kill('SIGKILL');

  await expect.poll(() => client.get('/user').then(String, () => 'gone'), { timeout: 20_000 }).toBe('gone');
});

test('a log that cannot be written does not end the server', async () => {
  const full = openSync('/dev/full', 'w');
  const { child, line } = await start(['--log-level', 'debug'], full);
  closeSync(full);
  const client = new RawClient(line.slice('listening on '.length));

  const first = await client.get('/user');
  const second = await client.get('/user');

  expect([first.status, second.status]).toEqual([401, 401]);
  expect(await stop(child, 'SIGTERM')).toBe(0);
});

test('mistakes are one sentence and a code', async () => {
  const faults = join(directory, 'no.json');
  writeFileSync(faults, '{}');
  const nobody = join(directory, 'nobody');
  const cases: [args: string[], code: number, sentence: RegExp][] = [
    [['user', 'add', 'a@example.com', '--password-stdin'], 2, /there is a user/],
    [
      ['user', 'add', 'c@example.com'],
      2,
      /no password: set CFS_PASSWORD or CFS_PASSWORD_FILE, or use --password-stdin/,
    ],
    [['key', 'add', 'nobody@example.com'], 2, /there is no user/],
    [['--listen', '0.0.0.0'], 2, /can be overheard/],
    [['--listen', '127.0.0.1:99999'], 2, /not HOST:PORT/],
    [['--fault-file', faults], 2, /not a JSON array of rules/],
    [['--fault-file', nobody], 2, /cannot read/],
    [['--tls-cert', nobody], 2, /must be used together/],
    [['--token-life', '5'], 2, /not a duration/],
    [['--log-level', 'loud'], 2, /loud is not one of: /],
  ];

  for (const [args, code, sentence] of cases) {
    const ended = await run(args, {}, 'x\n');
    expect([ended.code, ended.err], args.join(' ')).toEqual([code, expect.stringMatching(sentence)]);
    expect(ended.err.trim().split('\n'), args.join(' ')).toHaveLength(1);
  }
});
