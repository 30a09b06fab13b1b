import { readFileSync } from 'node:fs';

/** Where systems keep the certificates that they believe, all in one file. */
const BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt', // Debian, Ubuntu, Arch, Alpine
  '/etc/pki/tls/certs/ca-bundle.crt', // Fedora, RHEL
  '/etc/ssl/ca-bundle.pem', // openSUSE
  '/etc/ssl/cert.pem', // macOS, Alpine
];

/**
 * The certificates that this system believes, as PEM, for `TransportOptions.certificates`: whoever runs a service behind a
 * company's own authority has installed it there, and Node 20 does not look. Null where the system has no such file: then Node's own
 * list counts.
 */
export function systemCertificates(): string | null {
  for (const bundle of BUNDLES) {
    try {
      return readFileSync(bundle, 'utf8');
    } catch {
      // Another system.
    }
  }
  return null;
}
