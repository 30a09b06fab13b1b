import type { Clock } from '../../src/base/clock.ts';
import type { ServerEntry, ServerReader } from '../harness/server-reader.ts';
import type { SeededRandom } from '../store/seeded-random.ts';
import type { Ledger } from './ledger.ts';

const NAMES = ['a', 'b', 'c', 'Größe', 'd', 'e'];
const SIZES = [30, 700, 17_000, 140_000];

const FILLS_MAX = 50;

type Step = 'create' | 'write' | 'version' | 'rename' | 'trash' | 'folder';
const STEPS: readonly Step[] = [
  'create',
  'create',
  'write',
  'write',
  'version',
  'version',
  'rename',
  'rename',
  'trash',
  'folder',
];

/** Somebody in a browser: random requests on the line, with nothing of our client between. */
export class WebClient {
  readonly #clock: Clock;
  readonly #name: string;
  readonly #reader: ServerReader;
  readonly #random: SeededRandom;
  readonly #ledger: Ledger;
  readonly #trace: string[];
  #count = 0;
  #unheard = 0;

  /** @param deps.name stands in all that it writes: no two have the same */
  constructor(deps: {
    clock: Clock;
    name: string;
    reader: ServerReader;
    random: SeededRandom;
    ledger: Ledger;
    trace: string[];
  }) {
    this.#clock = deps.clock;
    this.#name = deps.name;
    this.#reader = deps.reader;
    this.#random = deps.random;
    this.#ledger = deps.ledger;
    this.#trace = deps.trace;
  }

  /** How many files it may have made without hearing of it: nobody knows of them, and nobody fills them. */
  get unheard(): number {
    return this.#unheard;
  }

  /** A request that fails on the way is given up, as a person would. @returns how many were answered as wished */
  async run(steps: number): Promise<number> {
    let done = 0;
    for (let step = 0; step < steps; step++) {
      const what = this.#random.pick(STEPS);
      let outcome = '';
      await this.#clock.sleep(this.#random.below(400));
      try {
        outcome = await this.#take(what);
        done += 1;
      } catch (error) {
        outcome = `→ ${(error as Error).message.slice(0, 80)}`;
      }
      this.#trace.push(`${new Date().toISOString().slice(14, 23)} ${this.#name}: ${what} ${outcome}`);
    }
    return done;
  }

  async #take(step: Step): Promise<string> {
    const { root, trash } = await this.#reader.places();
    const entries = await this.#reader.list();
    const folders = [root, ...entries.filter(({ kind }) => kind === 'folder').map(({ url }) => url)];
    const files = entries.filter(({ kind, sizeBytes }) => kind === 'file' && sizeBytes >= 0);
    const folder = this.#random.pick(folders);
    const name = this.#random.pick(NAMES);
    if (step === 'folder')
      return this.#ask('POST', folder, `<folder><displayName>${name}</displayName></folder>`, name);
    if (step === 'create') {
      if (entries.some(({ parent, path }) => parent === folder && path.endsWith(name))) return 'taken';
      const document = `<file><displayName>${name}</displayName><mediaType/></file>`;
      const made = await this.#send('POST', folder, document).catch((error: unknown) => {
        if (!(error instanceof RefusedError)) this.#unheard += 1;
        throw error;
      });
      return await this.#fillSurely(`${made.headers.get('location')}/data`, name);
    }
    if (step === 'write' || step === 'version') {
      if (files.length === 0) return 'nothing there';
      const file = this.#random.pick(files);
      if (step === 'write') return this.#fill(`${file.url}/data`, file.path);
      const version = await this.#send('POST', `${file.url}/version`);
      return this.#fill(`${version.headers.get('location')}/data`, file.path);
    }
    if (entries.length === 0) return 'nothing there';
    const entry = this.#random.pick(entries);
    if (step === 'trash') return this.#change(entry, `<parent>${trash}</parent>`);
    const parent = this.#random.below(2) === 0 ? `<parent>${folder}</parent>` : '';
    return this.#change(entry, `<displayName>${name}</displayName>${parent}`, name);
  }

  #change(entry: ServerEntry, fields: string, told = ''): Promise<string> {
    const kind = entry.kind === 'folder' ? 'folder' : 'file';
    return this.#ask('PUT', entry.url, `<${kind}>${fields}</${kind}>`, `${entry.path} ${told}`);
  }

  /** The bytes of a file that was just made, whatever the weather: nobody else would ever fill it. */
  async #fillSurely(url: string, what: string): Promise<string> {
    for (let tries = 1; ; tries++) {
      try {
        return await this.#fill(url, what);
      } catch (error) {
        if (tries === FILLS_MAX) throw error;
        await this.#clock.sleep(100);
      }
    }
  }

  async #fill(url: string, what: string): Promise<string> {
    const mark = `${this.#name} ${++this.#count}|`;
    const bytes = Buffer.from(mark.repeat(Math.ceil(this.#random.pick(SIZES) / mark.length)));
    const digest = this.#ledger.announce(bytes, `${this.#name} ${this.#count} (${what})`);
    await this.#send('PUT', url, bytes);
    this.#ledger.accept(digest, this.#name);
    return `${what} #${this.#count}`;
  }

  async #ask(method: string, url: string, body: string, told: string): Promise<string> {
    await this.#send(method, url, body);
    return told;
  }

  async #send(method: string, url: string, body?: string | Uint8Array): Promise<Response> {
    const answer = await this.#reader.send(method, url, body);
    const text = await answer.text();
    // With 200 come a page of somebody on the way, where nothing was done, and a version of which only a part was taken.
    if (!answer.ok || (answer.status === 200 && /^<html|<presentOnServer>false</.test(text))) {
      throw new RefusedError(`${answer.status} ${text.slice(0, 60)}`);
    }
    return answer;
  }
}

/** The service, or somebody on the way, answered that it was not done. */
class RefusedError extends Error {}
