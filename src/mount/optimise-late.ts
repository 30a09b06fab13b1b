import { setFlagsFromString } from 'node:v8';

/** A flag of V8 in Node 20: its default, and its value in a running mount. */
type Limit = readonly [flag: string, normally: number, late: number];

const LIMITS: readonly Limit[] = [
  /**
   * Bytes of bytecode after which V8 optimises a function, in both threads: four times the default. With the default, TurboFan compiles a
   * hundred functions in the first seconds of a mount, most of them without benefit, on threads that a small machine lacks (ADR 28).
   */
  ['interrupt-budget', 67_584, 270_000],
  /**
   * Approximate bytes of WebAssembly that are executed before V8 optimises a function. undici parses HTTP with one large function, and
   * a few responses let V8 optimise it: 80 ms of a processor at each start (ADR 28).
   */
  ['wasm-tiering-budget', 1_800_000, 100_000_000],
];

/**
 * Sets the limits of V8's optimising compilers for all threads of the mounting process (ADR 28). V8 of Node 22 and later has no such first
 * flag, and a default of the second that is high enough.
 *
 * V8 accepts compiled code only under the flags with which it was made, that of Node's own modules too: a thread loads them
 * beforehand (ADR 23).
 */
export function optimiseLate(): void {
  if (!process.versions.node.startsWith('20.')) return;
  for (const [flag, , late] of LIMITS) setFlagsFromString(`--${flag}=${late}`);
}

/** Runs `action` with V8's own limits. */
export function withUsualLimits<T>(action: () => T): T {
  if (!process.versions.node.startsWith('20.')) return action();
  for (const [flag, normally] of LIMITS) setFlagsFromString(`--${flag}=${normally}`);
  try {
    return action();
  } finally {
    optimiseLate();
  }
}
