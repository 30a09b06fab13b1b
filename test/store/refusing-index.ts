import type { RootDatabase } from 'lmdb';
import { openIndex } from '../../src/store/index-file.ts';

/** LMDB that refuses transactions of more rows than there is room for, whole, as it does. */
export class RefusingIndex {
  /** For how many rows there is room; what a transaction says of itself counts as one. */
  rowsMax = Number.POSITIVE_INFINITY;
  /** How it says so. The map of ours grows by itself; one that may not says this. */
  message = 'MDB_MAP_FULL: Environment mapsize limit reached';
  /** Transactions so far, and those of them that were refused. */
  asked = 0;
  refused = 0;

  readonly open = (path: string): RootDatabase<Buffer, Buffer> => {
    const index = openIndex(path);
    let counted: number | null = null;
    const change = (act: 'put' | 'remove') =>
      function (this: unknown, ...row: never[]) {
        if (counted === null) return (index[act] as (...args: never[]) => Promise<boolean>)(...row);
        counted++;
        return Promise.resolve(true);
      };
    const batch = (action: () => void): Promise<boolean> => {
      this.asked++;
      counted = 0;
      action();
      const rows = counted;
      counted = null;
      if (rows <= this.rowsMax) return index.batch(action);
      this.refused++;
      return Promise.reject(new Error(this.message));
    };
    const own = { put: change('put'), remove: change('remove'), batch };
    return new Proxy(index, {
      get: (target, name) => {
        if (Object.hasOwn(own, name)) return own[name as keyof typeof own];
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  };
}
