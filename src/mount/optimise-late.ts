import { setFlagsFromString } from 'node:v8';

/**
 * Bytes of bytecode after which V8 optimises a function, in both threads: four times the default. With the default, TurboFan compiles a
 * hundred functions in the first seconds of a mount, most of them without benefit, on threads that a small machine lacks (ADR 28).
 */
const OPTIMISED_AFTER = 270_000;
/**
 * Approximate bytes of WebAssembly that are executed before V8 optimises a function. undici parses HTTP with one large function. With
 * the default of Node 20 (1.8 million) a few responses let V8 optimise it: 80 ms of a processor at each start (ADR 28).
 */
const WASM_OPTIMISED_AFTER = 100_000_000;

/** Sets the limits of V8's optimising compilers for all threads of the mounting process (ADR 28). */
export function optimiseLate(): void {
  setFlagsFromString(`--wasm-tiering-budget=${WASM_OPTIMISED_AFTER}`);
  // V8 of Node 22 and later has no such flag, and prints a complaint about it.
  if (process.versions.node.startsWith('20.')) setFlagsFromString(`--interrupt-budget=${OPTIMISED_AFTER}`);
}
