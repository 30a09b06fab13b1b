import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { exitCode } from '../../src/cli/exit-codes.ts';
import { restoreCommand } from '../../src/cli/restore.ts';
import { pathsOf } from '../../src/config/paths.ts';
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
      sync: () => {
        if (isPending()) pushed.push(readFileSync(file, 'utf8'));
        return { pushed: 0, parked: [], open: 0 };
      },
    },
  );
  return pushed;
}

function restore(redraw: (text: string) => void = () => {}): Promise<number> {
  const { home } = signedIn;
  const deps = { paths: pathsOf(home.env), clock: systemClock, env: home.env, print: () => {}, warn: () => {}, redraw };
  return restoreCommand(deps, { what: `${file}@-1`, to: null });
}

/** [S-history-2] */
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
