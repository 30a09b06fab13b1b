import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { restoreCommand } from '../../src/cli/commands/restore.ts';
import { ServiceWait } from '../../src/cli/service-wait.ts';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { Names } from '../../src/tree/names.ts';
import { answeringMount } from './answering-mount.ts';
import { SignedInHome } from './signed-in-home.ts';

/** `cfs restore` while somebody goes on working with the file, beside a mount that pushes when it is told to, and only then. */

const OLD = 'as it was';
const SAVED = 'what the service has';

let signedIn: SignedInHome;
let file: string;

beforeEach(async () => {
  signedIn = await SignedInHome.open();
  mkdirSync(signedIn.home.path('Cloud'));
  file = signedIn.home.path('Cloud/letter');
  writeFileSync(file, SAVED);
});

afterEach(() => signedIn.dispose());

/**
 * @param beforeLocate is done before each answer to where the file is, of which it gets the number
 * @returns what became a version beside those that were there
 */
async function mountOf(beforeLocate: (count: number) => void = () => {}): Promise<readonly string[]> {
  const { home, name } = signedIn;
  const resource = await signedIn.upload('letter', OLD, SAVED);
  const pushed: string[] = [];
  const isPending = (): boolean => ![SAVED, ...pushed].includes(readFileSync(file, 'utf8'));
  let count = 0;
  const directory = home.path('Cloud');
  await answeringMount(
    home,
    { name, directory },
    {
      locate: () => {
        beforeLocate(++count);
        return { path: 'letter', kind: 'file', sizeBytes: 0, resource, isPending: isPending() };
      },
      copyAttributes: () => null,
      sync: () => {
        if (isPending()) pushed.push(readFileSync(file, 'utf8'));
        return { pushed: 0, parked: [], open: 0 };
      },
    },
  );
  return pushed;
}

function restore(redraw: (text: string) => void = () => {}, to: string | null = null): Promise<number> {
  const { home } = signedIn;
  const output = { print: () => {}, warn: () => {}, redraw };
  const wait = new ServiceWait({ ...output, clock: systemClock }, null);
  const deps = { ...output, paths: pathsOf(home.env), clock: systemClock, env: home.env, wait };
  return restoreCommand(deps, { what: `${file}@-1`, to });
}

/** [S-history-3] */
test('what is saved while cfs restore fetches becomes a version before it is replaced', async () => {
  const pushed = await mountOf();
  const fetching: string[] = [];
  const code = await restore((text) => {
    fetching.push(text);
    if (text.startsWith('fetching')) writeFileSync(file, 'saved meanwhile');
  });

  expect([code, fetching.length]).toEqual([exitCode('ok'), 2]);
  expect(pushed).toEqual(['saved meanwhile']);
  expect(readFileSync(file, 'utf8')).toBe(OLD);
});

test('what is saved while cfs restore puts the version beside the file becomes a version as well', async () => {
  const pushed = await mountOf((count) => {
    if (count === 2) writeFileSync(file, 'saved at the last moment');
  });

  expect(await restore()).toBe(exitCode('ok'));
  expect(pushed).toEqual(['saved at the last moment']);
  expect(readFileSync(file, 'utf8')).toBe(OLD);
});

test('a file that is saved all the while is not restored, and nothing is left beside it', async () => {
  let last = SAVED;
  await mountOf((count) => {
    last = `saved for the ${count}. time`;
    if (count > 1) writeFileSync(file, last);
  });

  await expect(restore()).rejects.toMatchObject({ exitCode: exitCode('pending') });
  expect(readFileSync(file, 'utf8')).toBe(last);
  expect(readdirSync(signedIn.home.path('Cloud'))).toEqual(['letter']);
});

describe('a signal that ends cfs restore', () => {
  /** What was there already listens on; this process is to go on. */
  const before = new Set(process.listeners('SIGINT'));
  let killed: string[];
  beforeEach(() => {
    killed = [];
    const { kill } = process;
    process.kill = (pid, signal) => {
      if (signal === 0) return kill(pid, 0);
      killed.push(`${pid} ${signal}`);
      return true;
    };
    onTestFinished(() => {
      process.kill = kill;
    });
  });

  function interrupt(): void {
    for (const listener of process.listeners('SIGINT')) if (!before.has(listener)) listener('SIGINT');
  }

  const fetched = (): string => join(accountPaths(pathsOf(signedIn.home.env), signedIn.name).directory, 'fetched');

  test('leaves nothing of what it fetched', async () => {
    await mountOf();
    const seen: number[] = [];
    const ended = restore((text) => {
      if (!text.startsWith('fetching') || killed.length > 0) return;
      seen.push(readdirSync(fetched()).length);
      interrupt();
      seen.push(readdirSync(fetched()).length);
    });

    await expect(ended).rejects.toThrow('ENOENT');
    expect(seen).toEqual([1, 0]);
    expect(killed).toEqual([`${process.pid} SIGINT`]);
    expect(readFileSync(file, 'utf8')).toBe(SAVED);
  });

  test('an interrupted cfs restore leaves no temporary file in the mount', async () => {
    const seen: string[][] = [];
    const look = (): void => void seen.push(readdirSync(signedIn.home.path('Cloud')));
    await mountOf((count) => {
      if (count !== 2) return;
      look();
      interrupt();
      look();
    });

    await expect(restore()).rejects.toThrow('ENOENT');
    expect(seen).toEqual([[expect.stringMatching(/^\._letter\..*\.cfs-restore$/), 'letter'], ['letter']]);
    // Nor is what SIGKILL leaves.
    expect(new Names().staysLocal(seen[0]?.[0] ?? '')).toBe(true);
    expect(killed).toEqual([`${process.pid} SIGINT`]);
  });

  test('leaves what another program made under the name that --to says', async () => {
    await mountOf();
    const to = signedIn.home.path('elsewhere');
    const ended = restore((text) => {
      if (text.startsWith('fetching')) writeFileSync(to, 'somebody else');
      else interrupt();
    }, to);

    await expect(ended).rejects.toThrow(/EEXIST|ENOENT/);
    expect(readFileSync(to, 'utf8')).toBe('somebody else');
  });

  test('cfs restore removes its signal handlers at its end, and the files of a killed one at the next start', async () => {
    await mountOf();
    mkdirSync(fetched(), { recursive: true });
    writeFileSync(join(fetched(), '999999999'), 'of a process that is gone');

    expect(await restore()).toBe(exitCode('ok'));

    interrupt();
    expect(killed).toEqual([]);
    expect(readdirSync(fetched())).toEqual([]);
  });
});
