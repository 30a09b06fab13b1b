import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { afterEach, beforeEach, expect, onTestFailed, test } from 'vitest';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { runCommand, runScript } from '../harness/command.ts';
import { PROJECT } from '../imports.ts';
import { CommandHome } from './cli-harness.ts';

/** `npm start` as a person has it: what is printed, what is there, and that nothing is left afterwards. */

const START_MS_MAX = 60_000;

/** One `npm start`, in a process group of its own. */
class Start {
  readonly #child: ChildProcess;
  readonly #directory: string;
  readonly ended: Promise<number>;
  output = '';

  constructor(home: CommandHome, directory: string) {
    this.#directory = directory;
    // Not a clone's first start: the set-up is what `npm test` has just done.
    this.#child = spawn('npm', ['start', '--silent', '--', directory], {
      cwd: PROJECT,
      detached: true,
      env: { ...process.env, ...home.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.on('data', (text: Buffer) => {
        this.output += text.toString();
      });
    }
    this.ended = new Promise((resolve) =>
      this.#child.once('exit', (code, signal) => resolve(code ?? (signal === null ? -1 : 128))),
    );
  }

  /** Resolves to how long it took. */
  async mounted(): Promise<number> {
    const startedMs = performance.now();
    const early = this.ended.then((code) => {
      throw new Error(`it ended with ${code} before it had mounted:\n${this.output}`);
    });
    const told = expect.poll(() => this.output, { timeout: START_MS_MAX, interval: 10 }).toContain('To stop: ');
    await Promise.race([told, early]);
    early.catch(() => {}); // it ends some time
    return performance.now() - startedMs;
  }

  lines(): string[] {
    return this.output.split('\n').filter((line) => line !== '');
  }

  async run(script: string): Promise<string> {
    const { stdout } = await runScript(script, { directory: this.#directory });
    return stdout;
  }

  /** Ctrl-C: the terminal sends it to every process of its foreground group. */
  interrupt(): void {
    process.kill(-(this.#child.pid ?? 0), 'SIGINT');
  }

  kill9(): void {
    try {
      process.kill(-(this.#child.pid ?? 0), 'SIGKILL');
    } catch {
      // It has ended by itself.
    }
  }
}

let home: CommandHome;
let directory: string;
let starts: Start[];

beforeEach(() => {
  home = new CommandHome();
  directory = home.path('home/Cloud');
  starts = [];
});

afterEach(async () => {
  for (const start of starts) start.kill9();
  await killAll();
  if (isMounted()) await runCommand(['fusermount3', '-uz', directory], { anyExitCode: true });
  home.dispose();
});

function start(): Start {
  const started = new Start(home, directory);
  starts.push(started);
  onTestFailed(() => console.error(started.output));
  return started;
}

function isMounted(): boolean {
  return readFileSync('/proc/mounts', 'utf8').includes(` ${directory} `);
}

/** Processes of ours, and of this test's home only: its directories are in their environment. */
async function processes(): Promise<number[]> {
  const script = `grep -lzF "XDG_STATE_HOME=${home.env.XDG_STATE_HOME}" /proc/[0-9]*/environ 2> /dev/null | cut -d/ -f3`;
  const { stdout } = await runCommand(['sh', '-c', script], { anyExitCode: true });
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map(Number);
}

function commandLineOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1');
  } catch {
    return ''; // it has ended
  }
}

async function killAll(): Promise<void> {
  for (const pid of await processes()) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended meanwhile.
    }
  }
  await expect.poll(processes, { timeout: 60_000 }).toEqual([]);
}

async function expectNothingLeft(): Promise<void> {
  expect(isMounted()).toBe(false);
  await expect.poll(processes, { timeout: 60_000 }).toEqual([]);
}

test('the demo account is mounted, a change becomes a version, and Ctrl-C ends everything in order', async () => {
  const first = start();
  await first.mounted();

  const told = first.lines();
  expect(told.length).toBeLessThanOrEqual(8);
  expect(told).toContainEqual(`mounted demo@example.com at ${directory}`);
  expect((await first.run('find . -type f | sort')).split('\n')).toEqual([
    './Letters/To the reader.txt',
    './Letters/Ünïcode – 手紙.txt',
    './Photos/2026/Evening over the hills.png',
    './Recipes/Bread.md',
    './Recipes/Soups/Lentils.md',
    './Reports/Report.txt',
    './Welcome.txt',
    '',
  ]);
  expect(await first.run('head -c 8 "Photos/2026/Evening over the hills.png" | od -An -tx1')).toBe(
    ' 89 50 4e 47 0d 0a 1a 0a\n',
  );
  expect(await first.run('tail -n 1 Reports/Report.txt')).toBe('Third draft, with the right number: 42.\n');

  await first.run('echo "Fourth draft." > Reports/Report.txt');
  await expect.poll(() => first.output, { timeout: 20_000 }).toContain('uploaded Reports/Report.txt (version 4, 14 B)');

  first.interrupt();
  expect(await first.ended).toBe(0);
  expect(first.lines().at(-1)).toBe(`unmounted ${directory}`);
  await expectNothingLeft();
});

/** At the first sign of life: the server has begun, the mount has not. */
test('Ctrl-C while it still starts leaves nothing behind', async () => {
  for (const sign of ['state/cfs/demo-server/server.log', 'state/cfs/demo-server/demo.json']) {
    const early = start();
    await expect.poll(() => existsSync(home.path(sign)), { timeout: START_MS_MAX, interval: 5 }).toBe(true);

    early.interrupt();

    await early.ended;
    await expectNothingLeft();
  }
});

test('fusermount3 -u ends it as well, and the next start finds everything as it was', async () => {
  const first = start();
  await first.mounted();
  await first.run('rm Welcome.txt; mkdir mine; echo kept > mine/note.txt');
  await runCommand(['fusermount3', '-u', directory]);
  expect(await first.ended).toBe(0);
  await expectNothingLeft();

  const second = start();
  await second.mounted();

  expect(await second.run('cat mine/note.txt; ls')).toBe('kept\nLetters\nPhotos\nRecipes\nReports\nmine\n');
  second.interrupt();
  expect(await second.ended).toBe(0);
  await expectNothingLeft();
});

test('after SIGKILL of everything the next start goes on: the dead mount is taken away, what was closed is there', async () => {
  const first = start();
  await first.mounted();
  await first.run('echo survives > survivor.txt');
  await killAll();
  await first.ended;
  expect(isMounted()).toBe(true);

  const second = start();
  const mountedMs = await second.mounted();

  expect(await second.run('cat survivor.txt')).toBe('survives\n');
  console.log(`mounted ${Math.round(mountedMs)} ms after SIGKILL of everything`);
  second.interrupt();
  expect(await second.ended).toBe(0);
  await expectNothingLeft();
});

/** The server must outlive nobody; the mount stays until it is unmounted, so that nobody loses what is open. */
test('when only npm start is killed, its server ends too', async () => {
  const first = start();
  await first.mounted();

  first.kill9();

  const servers = (): string[] =>
    readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && isServer(commandLineOf(pid)));
  const isServer = (line: string): boolean => line.includes('demo-server-process.js') && line.includes(home.directory);
  await expect.poll(servers, { timeout: 60_000 }).toEqual([]);
});

test('a second start on the same directory, or beside the first, is refused in one sentence', async () => {
  const first = start();
  await first.mounted();

  const again = await home.run('cfs', ['demo', directory]);
  expect(again).toMatchObject({ code: exitCode('alreadyMounted'), stdout: '' });
  expect(again.stderr).toMatch(/^cfs: \S+ is mounted already \([^\n]+\)\n$/);
  const elsewhere = await home.run('cfs', ['demo', home.path('elsewhere')]);
  expect(elsewhere.code).not.toBe(0);
  expect(elsewhere.stderr.trim().split('\n')).toHaveLength(1);

  expect(await first.run('ls Reports')).toBe('Report.txt\n');
});

test('a port that another program took is named, with its own exit code', async () => {
  const first = start();
  await first.mounted();
  first.interrupt();
  await first.ended;
  const { origin } = JSON.parse(readFileSync(home.path('state/cfs/demo-server/demo.json'), 'utf8')) as {
    origin: string;
  };
  const { port } = new URL(origin);
  const squatter: Server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => squatter.listen(Number(port), '127.0.0.1', resolve));

  const { code, stderr } = await home.run('cfs', ['demo', directory]);
  await new Promise((resolve) => squatter.close(resolve));

  expect(code).toBe(exitCode('portTaken'));
  expect(stderr).toMatch(new RegExp(`^cfs: port ${port} [^\n]* is taken by another program\n$`));
  await expectNothingLeft();
});
