import { expect, test } from 'vitest';
import { createLogger } from '../../src/base/log.ts';

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
