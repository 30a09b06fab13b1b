import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Command, CommanderError } from 'commander';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { FsError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { cfsProgram } from '../../src/cli/cfs-program.ts';
import { type CommandName, commandRows } from '../../src/cli/command-table.ts';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import type { ControlHandlers } from '../../src/control/methods.ts';
import { ControlServer } from '../../src/control/server.ts';
import { type ExitReason, exitCode } from '../../src/mount/exit-codes.ts';
import { failureOf } from '../../src/mount/failure.ts';
import { idleStatus } from '../control/idle-status.ts';
import { HastyClock } from '../remote/client.ts';
import { CommandHome } from './cli-harness.ts';

/**
 * Bad input for every command that there is: the compiler misses the row of a new one. Each is typed with as little as it takes, where
 * nobody is signed in, where nothing is mounted, where two mounts are running, and with names that no terminal must get.
 */

type Outcome = readonly [ExitReason, string];

interface Row {
  /** What is typed behind its name. `PATH` is one that lies in no mount. */
  readonly typed?: readonly string[];
  readonly nobody: Outcome;
  /** One account is signed in, its service is away, and nothing is mounted. */
  readonly unmounted: Outcome;
  /** Two accounts are mounted, and neither is said. */
  readonly two: Outcome;
}

const DONE: Outcome = ['ok', ''];
const NO_MOUNT: Outcome = ['notMounted', 'no mount is running'];
const OUTSIDE: Outcome = ['notMounted', 'is not in a running mount'];
const SEVERAL: Outcome = ['usage', 'name the directory'];
const AMBIGUOUS: Outcome = ['usage', 'choose one with --account'];
const NOBODY: Outcome = ['signIn', 'not signed in: run cfs login URL'];

const always = (outcome: Outcome, ...typed: readonly string[]): Row => ({
  typed,
  nobody: outcome,
  unmounted: outcome,
  two: outcome,
});
const ofPath = (...typed: readonly string[]): Row => always(OUTSIDE, ...typed);
const ofMount: Row = { nobody: NO_MOUNT, unmounted: NO_MOUNT, two: SEVERAL };
const ofService = (unmounted: Outcome, ...typed: readonly string[]): Row => ({
  typed,
  nobody: NOBODY,
  unmounted,
  two: AMBIGUOUS,
});
const AWAY: Outcome = ['unreachable', 'the service cannot be reached'];

const ROWS: Readonly<Record<CommandName, Row>> = {
  login: always(['usage', 'no service address']),
  logout: ofService(DONE),
  accounts: always(DONE),
  status: always(DONE),
  log: ofMount,
  versions: ofPath('PATH'),
  restore: ofPath('PATH@latest'),
  diff: ofPath('PATH@-1', 'PATH'),
  'trash list': ofService(AWAY),
  'trash restore': ofService(AWAY, 'PATH'),
  'trash empty': ofService(AWAY),
  'share link': ofPath('PATH'),
  'share list': ofService(AWAY),
  sync: ofMount,
  pause: ofMount,
  resume: ofMount,
  limit: ofMount,
  refresh: ofMount,
  pin: ofPath('PATH'),
  evict: ofPath('PATH'),
  unpin: ofPath('PATH'),
  retry: ofMount,
  discard: ofPath('PATH', '--yes'),
  conflicts: ofMount,
  'conflicts diff': ofPath('PATH'),
  'conflicts keep': ofPath('mine', 'PATH'),
  web: always(['usage', 'is not a port'], '--port', 'PATH'),
  umount: ofMount,
  doctor: {
    typed: ['--account', 'zoe'],
    nobody: NOBODY,
    unmounted: ['signIn', 'zoe is not signed in'],
    two: ['signIn', 'zoe is not signed in'],
  },
  'desktop install': always(DONE),
  'desktop uninstall': always(DONE),
  'service install': ofService(['mountPoint', 'does not exist: create the directory first'], 'PATH'),
  'service remove': always(['notMounted', 'no service is installed']),
  export: ofService(DONE, 'PATH'),
  'config show': always(DONE),
  metrics: { nobody: NO_MOUNT, unmounted: NO_MOUNT, two: ['failure', 'counted'] },
  'log-level': ofMount,
  completion: always(['usage', ' is not one of: bash, zsh, fish'], 'PATH'),
  demo: always(['usage', '--settle: "soon" is not a duration'], '--settle', 'soon', 'PATH'),
  serve: always(['usage', '--listen: "nowhere:x" is not HOST:PORT'], '--listen', 'nowhere:x'),
  'serve copy': always(['usage', 'give --from and --to']),
  'serve user add': always(['usage', 'no password'], 'PATH'),
  'serve user list': always(DONE),
  'serve user quota': always(['usage', 'there is no user'], 'PATH', '1GiB'),
  'serve user password': always(['usage', 'there is no user'], 'PATH'),
  'serve user remove': always(['usage', 'repeat it with --yes'], 'PATH'),
  'serve user revoke-tokens': always(['usage', 'there is no user'], 'PATH'),
  'serve key add': always(['usage', 'there is no user'], 'PATH'),
  'serve key revoke': always(['usage', 'there is no key'], 'PATH'),
  'serve application add': always(DONE, 'PATH'),
  'serve application list': always(DONE),
  'serve application disable': always(['usage', 'there is no application'], 'PATH'),
  'serve application enable': always(['usage', 'there is no application'], 'PATH'),
  'serve share add': always(['usage', 'there is no user'], 'PATH', 'PATH', 'PATH'),
  'serve share remove': always(['usage', 'there is no user'], 'PATH', 'PATH', 'PATH'),
};

const names = commandRows().map(({ name }) => name);
/** Those of `cfs serve` know neither accounts nor mounts. */
const ofClients = names.filter((name) => !name.startsWith('serve'));
let home: CommandHome;
let controls: ControlServer[] = [];

beforeEach(() => {
  home = new CommandHome();
  mkdirSync(home.path('state/cfs'));
});

afterEach(async () => {
  for (const control of controls) await control.close();
  controls = [];
  home.dispose();
});

interface Ended {
  readonly code: number;
  readonly said: string;
}

/** A command in this process, at no terminal. */
async function type(words: readonly string[]): Promise<Ended> {
  let said = '';
  let code = 0;
  const say = (text: string): void => {
    said += text;
  };
  const context = {
    paths: pathsOf(home.env),
    clock: new HastyClock(),
    env: home.env,
    print: () => {},
    warn: say,
    redraw: null,
  };
  const setCode = (ended: number): void => {
    code = ended;
  };
  const program = await cfsProgram(context, setCode, words);
  quieten(program, say);
  try {
    await program.parseAsync(['node', 'cfs', ...words]);
  } catch (error) {
    if (error instanceof CommanderError) return { code: exitCode('usage'), said };
    const failure = failureOf(error);
    return { code: failure.exitCode, said: `${said}${failure.sentence}\n` };
  }
  return { code, said };
}

/** As in `newCommand`, but for where it goes. */
function quieten(command: Command, say: (text: string) => void): void {
  command.configureOutput({ ...command.configureOutput(), writeErr: say, writeOut: () => {} });
  for (const inner of command.commands) quieten(inner, say);
}

/** Two accounts, with mounts that can be asked how they are, and nothing else. */
async function mountTwo(): Promise<void> {
  for (const userId of ['17', '18']) {
    const { name } = home.plantAccount({ userId, username: `user${userId}@example.com` });
    const { socketPath } = accountPaths(pathsOf(home.env), name);
    const handlers = {
      status: () => idleStatus({ directory: home.path(`Cloud${userId}`) }),
      metrics: () => {
        throw new FsError('EIO', 'counted');
      },
    } as unknown as ControlHandlers;
    const control = new ControlServer({ socketPath, handlers, clock: systemClock, log: silentLogger });
    controls.push(control);
    await control.listen();
  }
}

function wordsOf(name: CommandName, path: string): string[] {
  return [...name.split(' '), ...(ROWS[name].typed ?? []).map((word) => word.replace('PATH', path))];
}

/** Everything in the home with its bytes; the data of a server are made by whoever asks for them first. */
function everything(folder: string = home.directory): readonly string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !join(entry.parentPath, entry.name).includes('/state/cfs/server'))
    .map((entry) => {
      const path = join(entry.parentPath, entry.name);
      return entry.isFile() ? `${path} ${readFileSync(path, 'hex')}` : path;
    })
    .sort();
}

async function expectOutcome(name: CommandName, [reason, sentence]: Outcome): Promise<void> {
  const before = everything();
  const { code, said } = await type(wordsOf(name, home.path('nowhere')));

  expect(said).toContain(sentence);
  expect(code, said).toBe(exitCode(reason));
  if (reason === 'ok') return;
  expect(said.trimEnd().split('\n'), said).toHaveLength(1);
  expect(everything()).toEqual(before);
}

test.each(names)('cfs %s where nobody is signed in', (name) => expectOutcome(name, ROWS[name].nobody));

test.each(ofClients)('cfs %s where nothing is mounted', async (name) => {
  home.plantAccount();
  await expectOutcome(name, ROWS[name].unmounted);
});

test.each(ofClients)('cfs %s where two mounts are running', async (name) => {
  await mountTwo();
  await expectOutcome(name, ROWS[name].two);
});

test.each(names)('cfs %s with a name that would draw on the terminal', async (name) => {
  home.plantAccount();
  const odd = home.path('no\nsuch\u001b[2J');
  const row = commandRows().find((each) => each.name === name);
  const typed = [wordsOf(name, odd)];
  if (row?.flags.some(({ flag }) => flag === '--account')) typed.push([...wordsOf(name, odd), `--account=${odd}`]);
  for (const words of typed) {
    const { code, said } = await type(words);

    expect(said).not.toMatch(/[^\P{Cc}\n]/u);
    expect(said.split('\n').length, said).toBeLessThanOrEqual(2);
    if (words.at(-1)?.startsWith('--account=')) expect(code, said).not.toBe(0);
  }
  expect(existsSync(odd)).toBe(false);
});

test.each(names)('cfs %s refuses what it does not know, in one line', async (name) => {
  for (const word of ['--no-such-flag', '--no\u001bsuch\nflag']) {
    const { code, said } = await type([...wordsOf(name, home.path('nowhere')), word]);

    expect(code).toBe(exitCode('usage'));
    expect(said).toMatch(/^\S+: unknown option '--no\P{Cc}*\n$/u);
  }
});
