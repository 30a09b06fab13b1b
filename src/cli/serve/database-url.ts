import { UsageError } from '../../base/errors.ts';

/** The value of `--database`. @throws UsageError for another form, or for a password, which other users of the machine can read */
export function databaseUrl(text: string): string {
  if (!/^postgres(ql)?:\/\//.test(text)) throw new UsageError('--database: give postgres://user@host/name');
  // Not echoed. A socket's URL has no host: `postgres://user@/name?host=/run/postgresql`, which is no URL for the parser of Node.
  if (/^[^:]+:\/\/[^/@?]*:[^/?]*@/.test(text) || /[?&]password=/.test(text))
    throw new UsageError(
      '--database: other users can read the command line: give the password in PGPASSWORD or PGPASSFILE',
    );
  return text;
}
