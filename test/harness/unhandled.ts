import { onTestFinished } from 'vitest';

/** What is rejected and handled by nobody while the test runs: it would end a mount. To be called at the begin of a test. */
export function watchUnhandled(): readonly unknown[] {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);
  process.on('unhandledRejection', note);
  onTestFinished(() => void process.off('unhandledRejection', note));
  return unhandled;
}
