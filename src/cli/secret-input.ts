import { readFileSync } from 'node:fs';
import { UsageError } from '../base/errors.ts';
import { visible } from '../mount/mount-event.ts';

/** Longer than any password or key. */
const SECRET_BYTES_MAX = 64 * 1024;

/** The first line of standard input. @throws UsageError if it is empty */
export async function secretFromInput(input: AsyncIterable<Uint8Array>, flag: string): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of input) {
    bytes += chunk.byteLength;
    if (bytes > SECRET_BYTES_MAX) throw new UsageError(`${flag}: the password is longer than 64 KiB`);
    chunks.push(chunk);
    if (chunk.includes(0x0a)) break;
  }
  const line = Buffer.concat(chunks).toString('utf8').split(/\r?\n/, 1)[0] ?? '';
  if (line === '') throw new UsageError(`${flag}: standard input is empty`);
  return line;
}

/** The first line of a file. @throws UsageError if it cannot be read or is empty */
export function secretFromFile(path: string, flag: string): string {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`${flag}: cannot read ${visible(path)} (${(error as NodeJS.ErrnoException).code})`);
  }
  const line = text.split(/\r?\n/, 1)[0] ?? '';
  if (line === '') throw new UsageError(`${flag}: ${visible(path)} is empty`);
  return line;
}

/**
 * A secret from the environment: from the variable itself, or from the file that NAME_FILE names, as container engines mount secrets.
 *
 * @returns null if neither is set or both are empty @throws UsageError if both are set, or the file cannot be read or is empty
 */
export function secretFromEnvironment(env: Readonly<Record<string, string | undefined>>, name: string): string | null {
  const [value, path] = [env[name] ?? '', env[`${name}_FILE`] ?? ''];
  if (value !== '' && path !== '') throw new UsageError(`${name} and ${name}_FILE are both set: unset one of them`);
  if (path !== '') return secretFromFile(path, `${name}_FILE`);
  return value === '' ? null : value;
}
