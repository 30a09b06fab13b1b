import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { pinCommand } from '../../src/cli/commands/pin.ts';
import { statusCommand } from '../../src/cli/commands/status.ts';
import { syncCommand } from '../../src/cli/commands/sync.ts';
import { lookedText } from '../../src/cli/doctor/report.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { eventLine } from '../../src/mount/mount-event.ts';
import { idleStatus } from '../control/idle-status.ts';
import { answeringMount } from './answering-mount.ts';
import { CommandHome } from './cli-harness.ts';

/** A refusal is told in the words of the service, or of whoever answers in its place: they do nothing to a terminal. */

const WORDS = 'PUT /file: 403 \u001b]0;owned\u0007\u009b2Jno';
const SHOWN = 'PUT /file: 403 \\x1b]0;owned\\x07\\x9b2Jno';
const PARKED = [{ path: 'a', kind: 'upload', reason: WORDS, sinceMs: 1 }] as const;
const PINNED = { path: 'a', files: 1, bytes: 1, filesHere: 0, bytesHere: 0, isComplete: false, trouble: WORDS };

let home: CommandHome;
let said = '';

beforeEach(async () => {
  home = new CommandHome();
  said = '';
  const directory = home.path('Cloud');
  await answeringMount(
    home,
    { name: home.plantAccount().name, directory },
    {
      status: () => idleStatus({ directory, parked: PARKED }),
      sync: () => ({ pushed: 0, parked: PARKED, open: 0 }),
      pin: () => PINNED,
    },
  );
});
afterEach(() => home.dispose());

test.each([
  ['status', (deps: Deps) => statusCommand(deps, { json: false })],
  ['sync', (deps: Deps) => syncCommand(deps, { file: null, account: null, wait: true, timeoutMs: null })],
  ['pin', (deps: Deps) => pinCommand(deps, { file: home.path('Cloud/a'), account: null })],
] as const)('cfs %s', async (_, run) => {
  await run(deps());

  expect(said.replace(/\s+/g, ' ')).toContain(SHOWN);
  expect(said).not.toMatch(/[^\P{Cc}\n]/u);
});

test('cfs doctor, which tells where it is mounted as well', () => {
  const about = { area: 'mount', subject: null } as const;
  const text = [
    lookedText({ ...about, note: null, findings: [{ name: 'changes-parked', what: WORDS, cure: 'look' }] }),
    lookedText({ ...about, note: WORDS, findings: [] }),
  ].join(' ');

  expect(text.replace(/\s+/g, ' ').split(SHOWN)).toHaveLength(3);
  expect(text).not.toMatch(/[^\P{Cc}\n]/u);
});

test.each([
  { type: 'parked', path: 'a', reason: WORDS },
  { type: 'offline', reason: WORDS },
] as const)('what a mount in the foreground prints ($type)', (event) => {
  const line = eventLine(event);

  expect(line).toContain(SHOWN);
  expect(line).not.toMatch(/\p{Cc}/u);
});

type Deps = ReturnType<typeof deps>;

function deps() {
  const say = (text: string): void => {
    said += text;
  };
  return { paths: pathsOf(home.env), clock: systemClock, print: say, warn: say, redraw: null };
}
