import { UsageError } from '../base/errors.ts';
import { systemCertificates } from '../remote/certificates.ts';
import { visible } from './mount-event.ts';

/**
 * The authorities that may vouch for `origin`, as PEM: the file that SSL_CERT_FILE names, as OpenSSL's programs and curl take
 * it, or what this system believes. Null where none are needed (plain HTTP), or the system has no such file.
 *
 * @throws UsageError when SSL_CERT_FILE names a file that cannot be read
 */
export function believedCertificates(env: Readonly<Record<string, string | undefined>>, origin: string): string | null {
  if (!origin.startsWith('https:')) return null;
  const named = env.SSL_CERT_FILE ?? '';
  try {
    return systemCertificates(named === '' ? null : named);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UsageError(`SSL_CERT_FILE names ${visible(named)}, which cannot be read (${code})`, undefined, {
      cause: error,
    });
  }
}
