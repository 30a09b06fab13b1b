import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import type { FaultRule } from '../../src/server/fault-plan.ts';
import type { AdministrationRules } from '../../src/server/rules.ts';
import { titled } from '../harness/requirement.ts';
import { signUpAt, TEST_PASSWORD, type TestUser } from '../server/raw-client.ts';
import {
  eventually,
  FAULTS,
  faultOf,
  inMount,
  onService,
  type Place,
  REQUESTS,
  type Request,
  SHARER_SHOWN,
} from './fault-matrix.ts';
import { FaultySide, LONG_WAITS, SHORT_WAITS, SOME_WAITS, type Waits } from './faulty-side.ts';

/**
 * Every kind of request meets every kind of trouble, once and for as long as it is asked: the outcome is what docs/faults.md
 * says, and when the trouble is over the service has what is here, nothing less and nothing twice.
 *
 * CFS_WRITE_FAULTS=1 writes the document anew; look at what changed before it is committed.
 */
const DOCUMENT = fileURLToPath(new URL('../../docs/faults.md', import.meta.url));
/** Whose account is mounted whole, and who shares something with him. */
const [HOLDER, SHARER] = ['holder@example.com', 'sharer@example.com'];
/** All of the account, whatever became of a listing of it. */
const ACCOUNT = [
  'Documents/',
  'Magic Briefcase/',
  'Mobile Photos/',
  'Shared with me/',
  `${SHARER_SHOWN}/`,
  `${SHARER_SHOWN}/Mobile Photos/`,
  'Web Archive/',
  'Workspaces/',
  'Workspaces/Laptop/',
  'Workspaces/Laptop/Documents -> ../../Documents',
];

interface Cell {
  readonly request: Request;
  readonly column: (typeof FAULTS)[number];
  readonly times: 1 | 'always';
  readonly waits: Waits;
}

/** A service of its own for each cell that runs: faults are the service's. */
export interface FaultyService {
  readonly origin: string;
  readonly administration: AdministrationRules;
  /** Setting them resets their counts. */
  faults: readonly FaultRule[];
  close(): Promise<void>;
}

interface Lane {
  readonly service: FaultyService;
  readonly user: TestUser;
  readonly holder: TestUser;
}

/**
 * @param options.lanes cells at a time: most of what takes time is waiting in vain
 * @param options.every runs each of so many cells, from a different one for each seed
 */
export function faultSuite(
  title: string,
  options: { missing: string | null; lanes: number; every?: number; open(): Promise<FaultyService> },
): void {
  const { missing, every = 1 } = options;
  describe.skipIf(missing !== null)(titled(title, missing), () => {
    const lanes: Lane[] = [];
    beforeAll(async () => {
      for (let lane = 0; lane < options.lanes; lane++) lanes.push(await openLane(await options.open()));
    });
    afterAll(async () => {
      for (const { service } of lanes) {
        service.faults = [];
        await service.close();
      }
    });
    const outcomes = new Map<string, string>();

    test('after a fault of any request nothing is lost or duplicated', { timeout: 1_200_000 }, async () => {
      const wrong: string[] = [];
      let next = 0;
      const cells = allCells().filter((_, at) => at % every === Number(process.env.CFS_CASES_SEED) % every);
      // What waits in vain goes first: it takes seconds, and no processor.
      cells.sort((a, b) => a.waits.readTimeoutMs - b.waits.readTimeoutMs);
      const work = async (lane: Lane): Promise<void> => {
        for (let cell = cells[next++]; cell !== undefined; cell = cells[next++]) {
          const key = keyOf(cell.request, cell.column[0], cell.times);
          outcomes.set(
            key,
            await outcomeOf(lane, cell, next).catch((error: Error) => {
              wrong.push(`${key}: ${error.message}`);
              return 'WRONG';
            }),
          );
        }
      };
      await Promise.all(lanes.map(work));

      expect(wrong).toEqual([]);
      expect(outcomes.size).toBeGreaterThan(0);
    });

    test('has the outcome that docs/faults.md says', () => {
      const text = readFileSync(DOCUMENT, 'utf8');
      const [before, rest] = split(text, '<!-- outcomes, written by test/faults -->\n');
      const [, after] = split(rest, '<!-- end of outcomes -->\n');
      const now = `${before}<!-- outcomes, written by test/faults -->\n${tablesOf(outcomes)}<!-- end of outcomes -->\n${after}`;
      if (process.env.CFS_WRITE_FAULTS === '1') writeFileSync(DOCUMENT, now);
      else expect(now).toBe(text);
    });
  });
}

async function openLane(service: FaultyService): Promise<Lane> {
  const { origin, administration } = service;
  const user = await signUpAt(origin, administration, SHARER);
  const holder = await signUpAt(origin, administration, HOLDER);
  await administration.addWorkspace(HOLDER, 'Laptop', { syncFolders: ['Documents'] });
  await administration.share(SHARER, '3', HOLDER, { writeAllowed: true });
  return { service, user, holder };
}

function allCells(): Cell[] {
  return REQUESTS.flatMap((request) =>
    FAULTS.flatMap((column) =>
      ([1, 'always'] as const).map((times): Cell => {
        return { request, column, times, waits: waitsOf(request, column[0], times) };
      }),
    ),
  );
}

async function outcomeOf(lane: Lane, { request, column, times, waits }: Cell, number: number): Promise<string> {
  const fault = faultOf(column, request);
  if (fault === null) return '–';
  const { service } = lane;
  service.faults = [];
  const { shows = 'folder', deletion, isDownLimited = false } = request;
  const user = shows === 'account' ? lane.holder : lane.user;
  const folder =
    shows === 'account'
      ? `${service.origin}/user/${user.uid}/folders`
      : await user.client.createFolder(user.folder('2'), `cell ${number}`);
  const { origin } = service;
  const root = folder as ResourceUrl;
  const side = await FaultySide.build({ origin, user, root, shows, waits, deletion, isDownLimited });
  try {
    const signIn = () => side.service.signIn({ username: user.email, password: TEST_PASSWORD });
    const there: Place = { side, client: user.client, folder, signIn };
    await request.prepare?.(there);
    const { on, path, after } = request;
    service.faults = [...(after === undefined ? [] : [after]), { on, path, times, then: fault }];
    const outcome = await request.act(there);
    service.faults = [];
    if (request.group === 'login') return outcome;
    await side.recover();
    await request.again?.(there);
    await eventually(async () => {
      const here = await inMount(side);
      const there = shows === 'account' ? ACCOUNT : await onService(user.client, folder);
      expect(there, 'what the service has, and what is here').toEqual(here);
    });
    return outcome;
  } finally {
    service.faults = [];
    await side.close();
  }
}

/** How long a line may be silent: longer than a service that is well is, on a busy machine. */
const SILENCE_MS = 5_000;

/**
 * Silence ends by somebody's patience, and so does what the document says ends with ETIMEDOUT, or with EIO however often it is asked.
 * Everything else has all the time that a busy machine takes: short of it, what is tried again would be given up too early.
 */
function waitsOf(request: Request, column: string, times: 1 | 'always'): Waits {
  // Whoever reads gives up before the line does, as in life, and not at about the same time.
  if (column === 'hang' && request.group === 'read') return { ...SHORT_WAITS, silenceMs: LONG_WAITS.silenceMs };
  const outcome = documented(request, column, times);
  // What comes of it is asked of a service that may have a second's work to do for the answer.
  if (column === 'hang') return outcome === '✓' ? { ...LONG_WAITS, silenceMs: SILENCE_MS } : SHORT_WAITS;
  if (outcome === 'ETIMEDOUT' || outcome === undefined) return SHORT_WAITS;
  return outcome === 'EIO' && times === 'always' ? SOME_WAITS : LONG_WAITS;
}

/** What the document says, by request and trouble: once, and whenever it is asked. */
const DOCUMENTED = ['### Once', '### Whenever it is asked'].map((title) => {
  const [, table] = split(readFileSync(DOCUMENT, 'utf8'), `${title}\n\n`);
  const [columns = [], , ...rows] = (table.split('\n\n')[0] ?? '')
    .split('\n')
    .map((line) => line.split('|').map((cell) => cell.trim()));
  return new Map(rows.map((cells) => [cells[1], new Map(columns.map((column, at) => [column, cells[at]]))]));
});

function documented(request: Request, column: string, times: 1 | 'always'): string | undefined {
  return DOCUMENTED[times === 1 ? 0 : 1]?.get(nameOf(request))?.get(column);
}

function nameOf({ group, name }: Request): string {
  return `${group}: ${name}`;
}

function keyOf(request: Request, column: string, times: 1 | 'always'): string {
  return `${nameOf(request)} × ${column} × ${times}`;
}

function tablesOf(outcomes: ReadonlyMap<string, string>): string {
  const table = (times: 1 | 'always'): string => {
    const rows = REQUESTS.map((request) => {
      const cells = FAULTS.map(([column]) => {
        const outcome = outcomes.get(keyOf(request, column, times));
        return outcome === undefined ? documented(request, column, times) : shown(outcome);
      });
      return `| ${nameOf(request)} | ${cells.join(' | ')} |`;
    });
    const head = `| | ${FAULTS.map(([column]) => column).join(' | ')} |`;
    return [head, `|${' --- |'.repeat(FAULTS.length + 1)}`, ...rows, ''].join('\n');
  };
  return `\n### Once\n\n${table(1)}\n### Whenever it is asked\n\n${table('always')}\n`;
}

/** In the words of docs/faults.md. */
const SHOWN: ReadonlyMap<string, string> = new Map([
  ['works', '✓'],
  ['done', '✓'],
  ['offline', 'waits'],
  ['TransportError', 'no answer'],
  ['SignInError', 'refused'],
  ['ApiError', 'not now'],
]);

function shown(outcome: string): string {
  return SHOWN.get(outcome) ?? outcome;
}

function split(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark);
  if (at < 0) throw new Error(`docs/faults.md lacks ${mark}`);
  return [text.slice(0, at), text.slice(at + mark.length)];
}
