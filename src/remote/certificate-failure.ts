import { TransportError } from '../base/errors.ts';

/** Why the certificate, or TLS as a whole, was rejected. */
export type CertificateFault = 'expired' | 'not-yet-valid' | 'wrong-host' | 'unknown-authority' | 'broken';

const FAULTS: readonly (readonly [RegExp, CertificateFault])[] = [
  [/^CERT_HAS_EXPIRED$/, 'expired'],
  [/^CERT_NOT_YET_VALID$/, 'not-yet-valid'],
  [/^(ERR_TLS_CERT_ALTNAME_INVALID|HOSTNAME_MISMATCH)$/, 'wrong-host'],
  [/^(UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|CERT_UNTRUSTED|CERT_CHAIN|INVALID_CA)/, 'unknown-authority'],
  [/^(ERR_TLS_|ERR_SSL_|CERT_|INVALID_PURPOSE|PATH_LENGTH)/, 'broken'],
];

/** @param code of Node's TLS */
export function certificateFault(code: string): CertificateFault | null {
  return FAULTS.find(([pattern]) => pattern.test(code))?.[1] ?? null;
}

/**
 * The certificate fault that made this client reject a connection: retries do not help, a person must act. Null for any
 * other failure.
 */
export function certificateFaultOf(error: unknown): CertificateFault | null {
  if (!(error instanceof TransportError) || !error.neverSent) return null;
  return certificateFault(systemCode(error.cause));
}

/** The code of a Node or undici error; for an AggregateError, that of the first address (RFC 8305). */
export function systemCode(error: unknown): string {
  if (!(error instanceof Error)) return '';
  const { code } = error as { code?: unknown };
  if (typeof code === 'string' && code !== '') return code;
  return error instanceof AggregateError ? systemCode(error.errors[0]) : '';
}
