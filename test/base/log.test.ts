import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createLogger, journalDestination, lineDestination } from '../../src/base/log.ts';

/** Live: `cfs log-level`. */
test('the level is that of all parts, also when it is changed later', () => {
  const lines: string[] = [];
  const log = createLogger({ level: 'info', destination: { write: (line) => void lines.push(line) } });
  const part = log.child({ part: 'remote' });
  const deeper = part.child({ request: 1 });
  const sayAll = (): void => {
    for (const one of [log, part, deeper]) one.debug('said');
  };

  sayAll();
  expect(lines).toHaveLength(0);
  log.level = 'debug';
  sayAll();
  expect(lines).toHaveLength(3);
  log.level = 'silent';
  sayAll();
  expect(lines).toHaveLength(3);
  expect([log.level, part.level, deeper.level]).toEqual(['silent', 'silent', 'silent']);
});

test('no secret gets into a log line, at the top or nested', () => {
  const lines: string[] = [];
  const log = createLogger({ level: 'trace', destination: { write: (line) => void lines.push(line) } });
  const secrets = { password: 'S3CRET-1', privateAccessKey: 'S3CRET-2', refreshToken: 'S3CRET-3', token: 'S3CRET-4' };

  log.info(secrets, 'account');
  log.info({ account: secrets }, 'account');
  log.info({ request: { headers: { authorization: 'S3CRET-5' } } }, 'request');
  log.child({ part: 'remote' }).warn({ account: secrets }, 'account');

  expect(lines).toHaveLength(4);
  expect(lines.join('')).not.toContain('S3CRET');
});

test('a journal that stalls, or is gone, ends nothing: the line is lost, the next one is written', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-log-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const pipe = join(directory, 'journal');
  execFileSync('mkfifo', [pipe]);
  const open = (flags: number): number => openSync(pipe, flags | constants.O_NONBLOCK);
  const reader = open(constants.O_RDONLY);
  const writer = open(constants.O_WRONLY);
  onTestFinished(() => closeSync(writer));
  const log = createLogger({ level: 'info', destination: journalDestination(writer) });
  const bytes = Buffer.alloc(1024 * 1024);
  const read = (): string => bytes.toString('utf8', 0, readSync(reader, bytes));

  for (const length of [4096, 1]) expect(() => endlessly(() => writeSync(writer, bytes, 0, length))).toThrow('EAGAIN');
  expect(() => log.warn('said to one that stalls')).not.toThrow();
  expect(read()).not.toContain('said');
  log.warn('said to one that reads again');
  expect(read()).toContain('said to one that reads again');

  closeSync(reader);
  // A child that another thread starts at this moment has the reader until its exec(2).
  await expect.poll(() => failureOf(() => writeSync(writer, '.'))).toContain('EPIPE');
  expect(() => log.warn('said to nobody')).not.toThrow();
});

test('a log on a full disk ends nothing either', () => {
  const full = openSync('/dev/full', constants.O_WRONLY);
  onTestFinished(() => closeSync(full));
  expect(failureOf(() => writeSync(full, '.'))).toContain('ENOSPC');
  const log = createLogger({ level: 'info', destination: lineDestination(full) });

  expect(() => log.warn('said to a full disk')).not.toThrow();
});

function endlessly(act: () => void): never {
  for (;;) act();
}

/** What `act` throws, in words; nothing where it does not. */
function failureOf(act: () => void): string {
  try {
    act();
    return '';
  } catch (error) {
    return String(error);
  }
}
