import type { Fault, FaultRule } from '../../src/server/fault-plan.ts';
import type { ReferenceServer } from '../harness/reference-server.ts';
import type { SeededRandom } from '../store/seeded-random.ts';

/** What the line and the machines do while the clients work. */
export type Weather = 'calm' | 'rough' | 'away' | 'frozen' | 'restarts' | 'first-dies' | 'second-dies';

const WEATHERS: readonly Weather[] = [
  'calm',
  'rough',
  'rough',
  'rough',
  'away',
  'away',
  'frozen',
  'restarts',
  'first-dies',
  'second-dies',
];

const METHODS = ['GET', 'POST', 'PUT', '*'];
/** Trouble that passes: whoever meets it has to come through by himself. */
const FAULTS: readonly Fault[] = [
  { delayMs: 300 },
  { hangUpBefore: true },
  { actButNeverAnswer: true },
  { hangUpAfterBytes: 1 },
  { hangUpAfterBytes: 10_000 },
  { hangUpAfterBytes: 100_000 },
  { status: 503 },
  { status: 500 },
  { status: 429, retryAfterSeconds: 1 },
  { staleListing: true },
  { expireToken: true },
  { wrongContentRange: true },
  { ignoreRange: true },
  { garbage: true },
  { acceptBytes: 500 },
];

/** What an operation on a mount may end with in any weather. */
const EVER: ReadonlySet<string> = new Set([
  // Somebody else was there first;
  ...['ENOENT', 'EEXIST', 'ENOTEMPTY', 'EISDIR', 'ENOTDIR'],
  // put the folder into one of the folder's own;
  'EINVAL',
  // or dropped the version that was being read (S-read-2).
  'ESTALE',
  // No answer within --read-timeout: a second is nothing on a busy machine, and a mount that just met no service believes that a
  // moment longer.
  'ETIMEDOUT',
]);
/**
 * Where the service is made to talk nonsense, as well: an answer that the question cannot have (S-read-3). In the round after that
 * too, where a question that was asked before was still on its way.
 */
const WHEN_ROUGH = 'EIO';
/** On a mount that is killed, as well. */
const WHEN_KILLED: ReadonlySet<string> = new Set(['ENOTCONN', 'ECONNABORTED']);

/** Whether an operation may end so in this weather and after that. Anything else is a failure of the mount. */
export function isToBeExpected(errno: string, weather: Weather, before: Weather): boolean {
  return EVER.has(errno) || (errno === WHEN_ROUGH && (weather === 'rough' || before === 'rough'));
}

/** Whether an operation ends so because its mount was killed. */
export function isOfTheKilled(errno: string): boolean {
  return WHEN_KILLED.has(errno);
}

export function forecast(random: SeededRandom): Weather {
  return random.pick(WEATHERS);
}

/** A few rules, each of which hits some of the requests that follow. */
export function roughRules(random: SeededRandom): FaultRule[] {
  return Array.from({ length: 3 + random.below(4) }, () => ({
    on: random.pick(METHODS),
    nth: 1 + random.below(15),
    times: 1 + random.below(4),
    then: random.pick(FAULTS),
  }));
}

/** What the server does of it; the mounts' part is the caller's. */
export async function begin(weather: Weather, server: ReferenceServer, random: SeededRandom): Promise<void> {
  if (weather === 'rough') await server.setFaults(roughRules(random));
  else if (weather === 'away') await server.kill9();
  else if (weather === 'frozen') await server.pause();
}

export async function end(weather: Weather, server: ReferenceServer): Promise<void> {
  if (weather === 'rough') await server.setFaults([]);
  else if (weather === 'away') await server.restart();
  else if (weather === 'frozen') server.resume();
}
