/**
 * Takes `MOUNT_FLAGS` of `launch.ts` back: the heap of the main thread has its size by now. Otherwise the Worker's heap would get it, and on
 * Node 20 and 22 V8 would refuse all compiled code (ADR 23).
 *
 * `scripts/bundle.mjs` puts this before all modules of the mounting process, and nothing is imported: on Node 20 and 22, V8 would compile each
 * module of Node that is loaded before, for both threads. `node:v8` alone loads 30.
 */
interface OlderProcess {
  binding(name: 'v8'): { setFlagsFromString(flag: string): void };
}

const flag = '--max-semi-space-size=0';
const { noDeprecation } = process;
process.noDeprecation = true; // Node warns of the next call
try {
  (process as unknown as OlderProcess).binding('v8').setFlagsFromString(flag);
} catch {
  process.getBuiltinModule('node:v8').setFlagsFromString(flag); // Node 24 has no such binding
} finally {
  if (noDeprecation === undefined) Reflect.deleteProperty(process, 'noDeprecation');
  else process.noDeprecation = noDeprecation;
}

export {};
