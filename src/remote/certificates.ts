import { readFileSync } from 'node:fs';

/** Bundle files with the trusted certificates of common systems. */
const BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt', // Debian, Ubuntu, Arch, Alpine
  '/etc/pki/tls/certs/ca-bundle.crt', // Fedora, RHEL
  '/etc/ssl/ca-bundle.pem', // openSUSE
  '/etc/ssl/cert.pem', // macOS, Alpine
];

/**
 * The certificates that this system trusts, as PEM, for `TransportOptions.certificates`. A private authority is
 * installed there, and Node 20 does not read it. Null if the system has no such file: Node's own list then applies.
 */
export function systemCertificates(): string | null {
  for (const bundle of BUNDLES) {
    try {
      return readFileSync(bundle, 'utf8');
    } catch {
      // Not this system's path.
    }
  }
  return null;
}
