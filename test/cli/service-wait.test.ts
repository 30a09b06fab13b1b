import { expect, test } from 'vitest';
import { ServiceWait } from '../../src/cli/service-wait.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

/** What a command says while the service is silent, and when it stops waiting. */

const ORIGIN = 'https://api.example.com';
const never = () => new Promise<never>(() => {});

function waiting(timeoutMs: number | null) {
  const clock = new ManualClock();
  const said: string[] = [];
  return { clock, said, wait: new ServiceWait({ clock, warn: (text) => said.push(text) }, timeoutMs) };
}

test('after two seconds without an answer the command reports once what it waits for', async () => {
  const { clock, said, wait } = waiting(null);
  void wait.for(ORIGIN, never);

  clock.advance(1_999);
  expect(said).toEqual([]);
  clock.advance(1);
  clock.advance(60_000);

  expect(said).toEqual([
    'waiting for the service at https://api.example.com to answer; Ctrl-C stops waiting, --timeout limits the wait\n',
  ]);
});

test('each byte that arrives begins the silence anew, and after an answer nothing is said', async () => {
  const { clock, said, wait } = waiting(null);
  let resolve = (_answer: number): void => {};
  const answer = wait.for(ORIGIN, () => new Promise<number>((done) => (resolve = done)));
  for (let times = 0; times < 5; times++) {
    clock.advance(1_900);
    wait.moved();
  }
  resolve(7);

  expect(await answer).toBe(7);
  clock.advance(60_000);
  wait.moved();
  clock.advance(60_000);
  expect(said).toEqual([]);
});

test('--timeout limits the total waiting time of a command', async () => {
  const { clock, wait } = waiting(5_000);
  await wait.for(ORIGIN, async () => clock.advance(3_000));
  const aborted: unknown[] = [];
  const second = wait.for(ORIGIN, (signal) => {
    signal.addEventListener('abort', () => aborted.push(signal.reason));
    return never();
  });
  clock.advance(2_000);

  const message = 'the service at https://api.example.com did not answer within 5 s (--timeout)';
  await expect(second).rejects.toMatchObject({ message, exitCode: 7 });
  expect(aborted).toMatchObject([{ message }]);
  await expect(wait.for(ORIGIN, never)).rejects.toMatchObject({ message });
});

test('while a person is asked neither the silence nor the time counts', async () => {
  const { clock, said, wait } = waiting(5_000);

  const answer = await wait.for(ORIGIN, () =>
    wait.paused(async () => {
      clock.advance(600_000);
      return 'yes';
    }),
  );

  expect(answer).toBe('yes');
  expect(said).toEqual([]);
});
