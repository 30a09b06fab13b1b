import { UsageError } from '../../base/errors.ts';

/** Whether a location is a database. */
export function isDatabaseUrl(text: string): boolean {
  return /^postgres(ql)?:\/\//.test(text);
}

/** The value of a flag, by default `--database`. @throws UsageError for another form, or for a password, which other users of the machine can read */
export function databaseUrl(text: string, flag = '--database'): string {
  if (!isDatabaseUrl(text)) throw new UsageError(`${flag}: give postgres://user@host/name`);
  // Not echoed. A socket's URL has no host: `postgres://user@/name?host=/run/postgresql`, which is no URL for the parser of Node.
  if (/^[^:]+:\/\/[^/@?]*:[^/?]*@/.test(text) || /[?&]password=/.test(text))
    throw new UsageError(
      `${flag}: other users can read the command line: give the password in PGPASSWORD or PGPASSFILE`,
    );
  return text;
}
