/** A flag of V8: its default, and its value in a running mount. `only`: the version of Node that has the flag, and needs it. */
interface Limit {
  readonly flag: string;
  readonly normally: number;
  readonly mounted: number;
  readonly only?: string;
}

const LIMITS: readonly Limit[] = [
  /**
   * How much V8 lets the heap of each thread grow, in percent of what is in use, before it collects all garbage. By default it grows to three
   * or four times: 214 MiB for the first listing of 100,000 entries instead of 114, in the same time (ADR 28).
   */
  { flag: 'heap-growing-percent', normally: 0, mounted: 50 },
  /**
   * Bytes of bytecode after which V8 optimises a function, in both threads: four times the default. With the default, TurboFan compiles a
   * hundred functions in the first seconds of a mount, most of them without benefit, on threads that a small machine lacks (ADR 28).
   */
  { flag: 'interrupt-budget', normally: 67_584, mounted: 270_000, only: '20.' },
  /**
   * Approximate bytes of WebAssembly that are executed before V8 optimises a function. undici parses HTTP with one large function, and
   * a few responses let V8 optimise it: 80 ms of a processor at each start with Node 20, 16 ms with Node 22 (ADR 28).
   */
  { flag: 'wasm-tiering-budget', normally: 1_800_000, mounted: 100_000_000, only: '20.' },
  { flag: 'wasm-tiering-budget', normally: 13_000_000, mounted: 100_000_000, only: '22.' },
  { flag: 'wasm-tiering-budget', normally: 13_000_000, mounted: 100_000_000, only: '24.' },
];

/**
 * Sets the limits of V8 for all threads of the mounting process (ADR 28).
 *
 * V8 accepts compiled code only under the flags with which it was made, that of Node's own modules too: a thread loads them
 * beforehand (ADR 23).
 */
export function limitV8(): void {
  for (const { flag, mounted } of ours()) set(flag, mounted);
}

/** Runs `action` with V8's own limits. */
export function withUsualLimits<T>(action: () => T): T {
  for (const { flag, normally } of ours()) set(flag, normally);
  try {
    return action();
  } finally {
    limitV8();
  }
}

function set(flag: string, value: number): void {
  // Not imported: the first file of each thread contains this module, and needs it when it stores code.
  process.getBuiltinModule('node:v8').setFlagsFromString(`--${flag}=${value}`);
}

function ours(): readonly Limit[] {
  return LIMITS.filter(({ only }) => only === undefined || process.versions.node.startsWith(only));
}
