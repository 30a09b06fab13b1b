import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createLogger, journalLine } from '../../src/base/log.ts';
import { LOG_FILES_KEPT, LogFile } from '../../src/base/log-file.ts';

let directory: string;
let path: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-log-'));
  path = join(directory, 'deep', 'mount.log');
});

afterEach(() => rmSync(directory, { recursive: true }));

function files(): string[] {
  return readdirSync(join(directory, 'deep')).sort();
}

test('a log is for its owner alone, and is made with its directory', () => {
  new LogFile(path).write('one\n');

  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(statSync(join(directory, 'deep')).mode & 0o777).toBe(0o700);
});

test('with any number of writers the log stays bounded and ordered, and has its newest lines', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(2), fc.integer({ min: 1, max: 40 })), { maxLength: 200 }), (writes) => {
      rmSync(join(directory, 'deep'), { recursive: true, force: true });
      mkdirSync(join(directory, 'deep'));
      const writers = [0, 1, 2].map(() => new LogFile(path, 100));
      writes.forEach(([writer, length], at) => {
        writers[writer]?.write(`${String(at).padStart(4, '0')}${'x'.repeat(length)}\n`);
      });
      for (const writer of writers) writer.close();

      const kept = files();
      expect(kept.length).toBeLessThanOrEqual(LOG_FILES_KEPT + 1);
      for (const name of kept) expect(statSync(join(directory, 'deep', name)).size).toBeLessThan(100 + 46);
      const text = kept.reverse().map((name) => readFileSync(join(directory, 'deep', name), 'utf8'));
      const numbers = text.join('').match(/^\d{4}/gm) ?? [];
      // Nothing is missing between the oldest line that is kept and the newest.
      const first = Number(numbers[0] ?? 0);
      expect(numbers.map(Number)).toEqual(Array.from({ length: numbers.length }, (_, at) => first + at));
      expect(first + numbers.length).toBe(writes.length);
    }),
    { numRuns: 50 },
  );
});

test('a lock that a dead process left holds nobody up for long, a young one is respected', () => {
  const log = new LogFile(path, 10);
  log.write('x\n');
  writeFileSync(`${path}.lock`, '');
  log.write('0123456789\n');
  expect(files()).toEqual(['mount.log', 'mount.log.lock']);

  utimesSync(`${path}.lock`, 1, 1);
  log.write('0123456789\n');
  expect(files()).toEqual(['mount.log.1']);
  log.close();
});

test('a link to a log stays one: what it leads to is put aside', () => {
  mkdirSync(join(directory, 'deep'));
  mkdirSync(join(directory, 'links'));
  const link = join(directory, 'links', 'mount.log');
  symlinkSync('../deep/mount.log', link);
  const log = new LogFile(link, 100);

  for (let line = 0; line < 50; line++) log.write(`${'x'.repeat(40)}\n`);
  log.close();

  expect(readlinkSync(link)).toBe('../deep/mount.log');
  expect(readdirSync(join(directory, 'links'))).toEqual(['mount.log']);
  expect(files().filter((name) => name !== 'mount.log')).toEqual(['mount.log.1', 'mount.log.2', 'mount.log.3']);
});

test('what leads to an open file of the process, as /dev/stdout does, is left where it is', () => {
  mkdirSync(join(directory, 'deep'));
  const output = openSync(path, 'a');
  const link = join(directory, 'stdout');
  symlinkSync(`/proc/self/fd/${output}`, link);
  const log = new LogFile(link, 100);

  for (let line = 0; line < 10; line++) log.write('0123456789012345678901234567890\n');
  log.close();
  closeSync(output);

  expect(readdirSync(directory).sort()).toEqual(['deep', 'stdout']);
  expect(statSync(path).size).toBe(320);
});

test('a log that cannot be written ends nothing', () => {
  mkdirSync(path, { recursive: true });
  const log = new LogFile(path);

  expect(() => log.write('one\n')).not.toThrow();
  rmSync(path, { recursive: true });
  log.write('two\n');
  expect(readFileSync(path, 'utf8')).toBe('two\n');
  chmodSync(path, 0o600);
  log.close();
});

test('a pipe that was full for a while stays open for who reads it', () => {
  const pipe = join(directory, 'pipe');
  spawnSync('mkfifo', [pipe]);
  const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
  const log = new LogFile(pipe);
  for (let line = 0; line < 100; line++) log.write(`${'x'.repeat(4095)}\n`);
  const buffer = Buffer.alloc(1024 * 1024);
  while (readSync(reader, buffer) === buffer.length);
  expect(() => readSync(reader, buffer)).toThrow('EAGAIN'); // and not the end of it

  log.write('later\n');
  expect(readSync(reader, buffer)).toBe(6);
  log.close();
  closeSync(reader);
});

/** [S-log-1] */
test.each(['is full', 'nobody has opened'] as const)('a pipe that %s blocks no writer of the log', async (how) => {
  const [pipe, isReading] = [join(directory, 'pipe'), join(directory, 'is-reading')];
  spawnSync('mkfifo', [pipe]);
  const held = how === 'is full' ? openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK) : null;
  if (held !== null)
    expect(() => {
      for (;;) writeSync(held, Buffer.alloc(4096));
    }).toThrow('EAGAIN');
  // Whoever waits is let go in the end, and is found out.
  const reader = spawn('sh', ['-c', 'sleep 3; : > "$1"; exec cat "$0" > /dev/null', pipe, isReading], {
    stdio: 'ignore',
  });

  new LogFile(pipe).write('a line that is lost\n');

  expect(existsSync(isReading)).toBe(false);
  if (held !== null) closeSync(held);
  reader.kill();
  await once(reader, 'close');
});

test('createLogger writes there', () => {
  createLogger({ level: 'info', file: path }).warn({ inode: 7 }, 'push postponed');

  expect(JSON.parse(readFileSync(path, 'utf8'))).toMatchObject({ level: 40, inode: 7, msg: 'push postponed' });
});

test.each([
  ['error', 3],
  ['warn', 4],
  ['info', 6],
  ['debug', 7],
  ['trace', 7],
] as const)('the journal hears of %s as priority %i', (level, priority) => {
  const lines: string[] = [];
  createLogger({ level: 'trace', destination: { write: (line) => void lines.push(journalLine(line)) } })[level]('said');

  expect(lines[0]).toMatch(new RegExp(`^<${priority}>\\{"level":`));
});
