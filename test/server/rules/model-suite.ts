import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ListingQuery, ResourceId } from '../../../src/protocol/endpoints.ts';
import type { NameRules } from '../../../src/server/repository.ts';
import type { RepositoryRules } from '../../../src/server/rules.ts';
import { newAccount, type OpenBackEnd, outcome } from './back-end.ts';

const ALL: ListingQuery = { type: null, start: null, max: null, order: null };
const BRIEFCASE = '2';
const TRASH = '9';
const SYSTEM = new Set(['1', '2', '3', '9']);

interface Entry {
  readonly local: string;
  readonly kind: 'folder' | 'file';
  readonly seq: number;
  name: string;
  parent: string;
}

/** Which resource a step means: an index into all that ever were, the dead included. */
type Step =
  | { readonly do: 'folder' | 'file'; readonly parent: number; readonly name: string }
  | { readonly do: 'move'; readonly what: number; readonly parent: number | null; readonly name: string | null }
  | { readonly do: 'delete'; readonly what: number };

const name = fc.constantFrom('a', 'A', 'b', 'ä', 'Ä', '', '.', '/', 'x'.repeat(300));
const index = fc.nat(12);
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constantFrom('folder' as const, 'file' as const), parent: index, name }),
  fc.record({ do: fc.constant('move' as const), what: index, parent: fc.option(index), name: fc.option(name) }),
  fc.record({ do: fc.constant('delete' as const), what: index }),
);

class Model {
  readonly #rules: NameRules;
  readonly #live = new Map<string, Entry>();

  constructor(rules: NameRules) {
    this.#rules = rules;
    for (const local of SYSTEM) {
      this.#live.set(local, { local, kind: 'folder', seq: Number(local), name: `system ${local}`, parent: 'folders' });
    }
  }

  get folders(): string[] {
    return [...this.#live.values()].filter(({ kind }) => kind === 'folder').map(({ local }) => local);
  }

  listing(folder: string): string[] {
    const inside = [...this.#live.values()].filter(({ parent }) => parent === folder).sort((a, b) => a.seq - b.seq);
    return [...inside.filter(({ kind }) => kind === 'folder'), ...inside.filter(({ kind }) => kind === 'file')].map(
      (entry) => `${entry.local} ${entry.name}`,
    );
  }

  kind(local: string): 'folder' | 'file' | null {
    return this.#live.get(local)?.kind ?? null;
  }

  /** @returns the status of the refusal, or null for none */
  refusesNew(parent: string, name: string): number | null {
    return this.#noFolder(parent) ?? this.#taken(null, parent, name);
  }

  refusesMove(local: string, parent: string | null, name: string | null): number | null {
    const entry = this.#live.get(local);
    if (entry === undefined) return 404;
    const [newParent, newName] = [parent ?? entry.parent, name ?? entry.name];
    if (newParent !== entry.parent) {
      const noFolder = this.#noFolder(newParent);
      if (noFolder !== null) return noFolder;
    }
    const isSame = newParent === entry.parent && newName === entry.name;
    if (SYSTEM.has(local)) return isSame ? null : 403;
    if (entry.kind === 'folder' && !isSame && this.#liesWithin(newParent, local)) return 403;
    return isSame ? null : this.#taken(local, newParent, newName);
  }

  refusesDelete(local: string): number | null {
    if (!this.#live.has(local)) return 404;
    return SYSTEM.has(local) ? 403 : null;
  }

  add(entry: Entry): void {
    this.#live.set(entry.local, entry);
  }

  move(local: string, parent: string | null, name: string | null): void {
    const entry = this.#live.get(local) as Entry;
    entry.parent = parent ?? entry.parent;
    entry.name = name ?? entry.name;
  }

  delete(local: string): void {
    this.#live.delete(local);
  }

  #noFolder(local: string): number | null {
    const entry = this.#live.get(local);
    if (entry === undefined) return 404;
    return entry.kind === 'file' ? 400 : null;
  }

  #taken(self: string | null, parent: string, name: string): number | null {
    const { uniqueNames, foldCase } = this.#rules;
    if (parent === TRASH) return null;
    const isTaken = [...this.#live.values()].some(
      (other) =>
        other.local !== self &&
        other.parent === parent &&
        ((uniqueNames && other.name === name) || (foldCase && other.name.toLowerCase() === name.toLowerCase())),
    );
    return isTaken ? 409 : null;
  }

  #liesWithin(local: string, ancestor: string): boolean {
    for (let at: string | undefined = local; at !== undefined; at = this.#live.get(at)?.parent)
      if (at === ancestor) return true;
    return false;
  }
}

const RULES: readonly NameRules[] = [
  { uniqueNames: false, foldCase: false },
  { uniqueNames: true, foldCase: false },
  { uniqueNames: true, foldCase: true },
];

/**
 * `RepositoryRules` against a model: a flat map from id to (kind, name, parent). A folder contains every entry that names it as its
 * parent. After each step, both list the same in every folder and have refused with the same status.
 */
export function modelSuite(title: string, open: OpenBackEnd, { runs = 20 } = {}): void {
  test.each(RULES)(`folders over ${title} behave as a flat map of names and parents: %o`, async (rules) => {
    const backEnd = await open(rules);
    try {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 60, size: 'max' }), async (steps) => {
          const { uid } = await newAccount(backEnd);
          await replay(backEnd.rules.repository, uid, new Model(rules), steps);
        }),
        { numRuns: runs, endOnFailure: true },
      );
    } finally {
      await backEnd.close();
    }
  });
}

async function replay(repository: RepositoryRules, uid: string, model: Model, steps: readonly Step[]): Promise<void> {
  const ever = [BRIEFCASE, TRASH, '1'];
  const at = (index: number): string => ever[index % ever.length] as string;
  const id = (local: string): ResourceId => ({ uid, local });
  const run = async (step: Step): Promise<void> => {
    switch (step.do) {
      case 'folder':
      case 'file': {
        const parent = at(step.parent);
        const { local } =
          step.do === 'folder'
            ? await repository.createFolder(uid, id(parent), step.name)
            : await repository.createFile(uid, id(parent), step.name, 'text/plain');
        model.add({ local, kind: step.do, seq: ever.length + 100, name: step.name, parent });
        ever.push(local);
        return;
      }
      case 'move': {
        const local = at(step.what);
        const parent = step.parent === null ? null : at(step.parent);
        const change = { name: step.name ?? undefined, parent: parent === null ? undefined : id(parent) };
        if (model.kind(local) === 'file') await repository.updateFile(uid, id(local), change);
        else await repository.updateFolder(uid, id(local), change);
        return model.move(local, parent, step.name);
      }
      case 'delete': {
        const local = at(step.what);
        if (model.kind(local) === 'file') await repository.deleteFile(uid, id(local));
        else await repository.deleteFolder(uid, id(local));
        return model.delete(local);
      }
      default:
        step satisfies never;
    }
  };
  for (const [number, step] of steps.entries()) {
    const expected = refusalOf(model, step, at) ?? 'done';
    expect(await outcome(run(step)), `step ${number}: ${JSON.stringify(step)}`).toBe(expected);
    for (const local of model.folders) {
      const { entries } = await repository.list(uid, id(local), ALL);
      expect(entries.map((row) => `${row.local} ${row.name}`)).toEqual(model.listing(local));
    }
  }
}

function refusalOf(model: Model, step: Step, at: (index: number) => string): number | null {
  switch (step.do) {
    case 'folder':
    case 'file':
      return model.refusesNew(at(step.parent), step.name);
    case 'move':
      return model.refusesMove(at(step.what), step.parent === null ? null : at(step.parent), step.name);
    case 'delete':
      return model.refusesDelete(at(step.what));
    default:
      return step satisfies never;
  }
}
