import { release } from 'node:os';

/** FUSE_NOTIFY_RESEND is in Linux 6.9. */
export function missingResend(): string | null {
  const [major = 0, minor = 0] = release().split('.').map(Number);
  return major > 6 || (major === 6 && minor >= 9) ? null : 'Linux 6.9';
}
