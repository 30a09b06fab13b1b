import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Frees the garbage of the calling thread. V8 would do so only after some idle seconds. */
export function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  setFlagsFromString('--no-expose-gc');
  collect();
}
