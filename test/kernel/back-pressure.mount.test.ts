import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { MountDriver, run, shell, started } from './mount-driver.ts';

/**
 * Callers that wait for the network hold a set amount of memory, and what is known is answered meanwhile: reads and lookups hold no
 * slot, writes hold theirs as long as some are left, then a copy of their bytes as long as these are not too many.
 */
let place: string;
let callers: string;
let driver: MountDriver;

beforeAll(async () => {
  place = mkdtempSync(join(tmpdir(), 'cfs-callers-'));
  callers = join(place, 'callers');
  const source = fileURLToPath(new URL('./waiting-callers.c', import.meta.url));
  const built = await run('cc', ['-O1', '-w', '-pthread', '-o', callers, source]);
  expect(built.stderr).toBe('');
});

afterEach(() => driver.stop());
afterAll(() => rmSync(place, { recursive: true, force: true }));

/** What the process that answers holds in memory of its own. */
function heldMiB(): number {
  const status = readFileSync(`/proc/${driver.process.pid}/status`, 'latin1');
  return Number(/^RssAnon:\s+(\d+)/m.exec(status)?.[1]) / 1024;
}

/** Asks for what is known, old and new: it must come while the others wait. */
async function expectKnownAnswers(): Promise<void> {
  expect(
    await shell(`cat ${driver.path('quick')}; stat -c %s ${driver.path('quick')}; ls ${driver.path('folder')}`, 10_000),
  ).toBe('quick5\ninside\n');
}

async function mounted(): Promise<void> {
  driver = await MountDriver.start({ fileSystem: { entryTimeoutMs: 0, attributeTimeoutMs: 0, keepCache: false } });
  await driver.do({ do: 'plant', parent: 1, name: 'quick', text: 'quick' });
  const folder = (await driver.do({ do: 'plant-folder', parent: 1, name: 'folder' })) as number;
  await driver.do({ do: 'plant', parent: folder, name: 'inside', text: '' });
}

test('ten thousand callers that wait hold less than 64 MiB, and known answers still come', async () => {
  await mounted();
  const slow = (await driver.do({ do: 'plant', parent: 1, name: 'slow', text: 'x'.repeat(65_536) })) as number;
  const names = (await driver.do({ do: 'plant-folder', parent: 1, name: 'names' })) as number;
  for (let i = 0; i < 5_000; i++) void driver.do({ do: 'plant', parent: names, name: `n${i}`, text: '' });
  await driver.do({ do: 'rule', op: 'read', ino: slow, effect: 'hang' });
  await driver.do({ do: 'rule', op: 'lookup', ino: names, effect: 'hang' });
  const before = heldMiB();

  const readers = started(callers, ['read', driver.path('slow'), '5000'], 90_000);
  const lookers = started(callers, ['stat', driver.path('names/n'), '5000'], 90_000);
  const { binding } = await driver.until(({ hanging }) => hanging === 10_000, 'all of them wait');

  // A sanitizer's shadow and redzones count as well: what it looks for is something else.
  if (process.env.CFS_TEST_SANITIZER === undefined) expect(heldMiB() - before).toBeLessThan(64);
  expect([binding.freeSmallSlots, binding.freeLargeSlots]).toEqual([256, 32]);
  await expectKnownAnswers();
  await driver.do({ do: 'release' });
  expect([(await readers.finished).stdout, (await lookers.finished).stdout]).toEqual(['5000\n', '5000\n']);
});

test('waiting writes of both sizes leave slots for what is known', async () => {
  await mounted();
  await driver.do({ do: 'rule', op: 'write', effect: 'hang' });

  // Large ones first: beside many small ones that wait, each is copied, and none holds a large slot.
  const large = started(callers, ['write', driver.path('large'), '60', '1048576'], 60_000);
  const alone = await driver.until(({ hanging }) => hanging === 60, 'the large ones wait');
  const small = started(callers, ['write', driver.path('small'), '400', '4096'], 60_000);
  const { binding } = await driver.until(({ hanging }) => hanging === 460, 'all of them wait');

  expect(alone.binding.freeLargeSlots, 'some are held').toBeLessThan(20);
  expect(binding.freeSmallSlots).toBeGreaterThan(0);
  expect(binding.freeLargeSlots).toBeGreaterThan(0);
  await expectKnownAnswers();
  await driver.do({ do: 'release' });
  expect([(await small.finished).stdout, (await large.finished).stdout]).toEqual(['400\n', '60\n']);
  const after = await driver.until((state) => state.openHandles === 0, 'all are closed');
  expect([after.binding.freeSmallSlots, after.binding.freeLargeSlots]).toEqual([256, 32]);
});

test('more waiting writes than memory is meant for wait in the kernel, and all are done in the end', async () => {
  await mounted();
  await driver.do({ do: 'rule', op: 'write', effect: 'hang' });
  const before = heldMiB();

  const writers = started(callers, ['write', driver.path('large'), '300', '1048576'], 60_000);
  const { hanging } = await driver.until(
    ({ binding }) => binding.freeLargeSlots === 0 || binding.freeSmallSlots === 0,
    'the binding reads no more',
  );

  expect(hanging).toBeLessThan(150);
  expect(heldMiB() - before).toBeLessThan(160);
  await driver.do({ do: 'release' });
  expect((await writers.finished).stdout).toBe('300\n');
  const after = await driver.until((state) => state.openHandles === 0, 'all are closed');
  expect([after.binding.freeSmallSlots, after.binding.freeLargeSlots]).toEqual([256, 32]);
});
