import { expect, test } from 'vitest';
import { createLogger } from '../../src/base/log.ts';

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
