import type { Clock } from '../base/clock.ts';
import type { Answer } from '../kernel/binding.ts';
import { FileProcedures } from './file-procedures.ts';
import { Listing } from './listing.ts';
import { NameProcedures } from './name-procedures.ts';
import type { NfsParts } from './nfs-parts.ts';
import { Patience } from './patience.ts';
import { NFS_PROGRAM, PROCEDURE, STATUS, type Status, statusOf, VERSION } from './protocol.ts';
import type { RecordedCalls } from './recorded-calls.ts';
import { RepeatedCalls } from './repeated-calls.ts';
import type { RpcCall, RpcCaller } from './rpc-message.ts';
import type { RpcBody, RpcProgram } from './rpc-server.ts';
import { XdrReader, XdrWriter } from './xdr.ts';

interface Procedure {
  readonly run: (args: XdrReader, caller: RpcCaller, out: XdrWriter) => Answer<readonly Uint8Array[] | undefined>;
  /** How many words of value 0 follow the status of a failure: each stands for absent optional attributes. */
  readonly failureWords: number;
  /** Carried out once, however often the client sends it. It may wait for the service. */
  readonly once?: Once;
  /** May wait for the service. */
  readonly mayWait?: true;
  /** Also for callers that may not use the mount: the client's kernel asks as it mounts. */
  readonly isForAll?: true;
}

/** How a call is answered that an earlier process carried out. */
interface Once {
  /** The failure by which a second attempt shows that the first one succeeded. */
  readonly done: Status;
  /** Writes the result of a success. */
  readonly again: Procedure['run'];
}

const [NO_ATTRIBUTES, POST_OP, WCC, POST_OP_AND_WCC, TWO_WCC] = [0, 1, 2, 3, 4];

/** NFS version 3: reads arguments, chooses the procedure, and turns failures into statuses. No operation's meaning is here. */
export class NfsProgram implements RpcProgram {
  readonly number = NFS_PROGRAM;
  readonly version = VERSION;
  readonly #procedures: Readonly<Record<number, Procedure>>;
  readonly #repeated = new RepeatedCalls();
  readonly #patience: Patience;
  readonly #listing: Listing;
  readonly #isServed: (uid: number) => boolean;
  readonly #recorded: RecordedCalls | null;
  /** Pending until our own mount command has succeeded. */
  #admitted: Promise<void> | null;
  #admit!: () => void;

  /** @param deps.isServed whether a user may use the mount; `recorded`: calls for a successor, null if there will be none */
  constructor(
    parts: NfsParts,
    deps: {
      readonly clock: Clock;
      readonly isServed: (uid: number) => boolean;
      readonly recorded: RecordedCalls | null;
    },
  ) {
    this.#isServed = deps.isServed;
    this.#recorded = deps.recorded;
    this.#listing = new Listing(parts, deps.clock);
    this.#procedures = table(new NameProcedures(parts), new FileProcedures(parts), this.#listing);
    this.#patience = new Patience(deps.clock);
    this.#admitted = new Promise((resolve) => {
      this.#admit = resolve;
    });
  }

  /** The mount exists: its root was given to our own command and to no other caller. */
  admit(): void {
    this.#admit();
    this.#admitted = null;
  }

  async close(): Promise<void> {
    await this.#listing.close();
  }

  call(call: RpcCall): Answer<RpcBody> | null {
    if (call.procedure === PROCEDURE.null) return [];
    const procedure = this.#procedures[call.procedure];
    if (procedure === undefined) return null;
    return this.#call(call, procedure);
  }

  /** Only a WRITE is long, and the file system uses its bytes until the reply alone. */
  isOver({ procedure }: RpcCall): boolean {
    return procedure === PROCEDURE.write;
  }

  #call(call: RpcCall, procedure: Procedure): Answer<RpcBody> {
    if (procedure.isForAll) return this.#served(call, procedure);
    if (!this.#isServed(call.caller.uid)) return [failure(STATUS.acces, procedure.failureWords)];
    return this.#admitted === null
      ? this.#served(call, procedure)
      : this.#admitted.then(() => this.#served(call, procedure));
  }

  #served(call: RpcCall, procedure: Procedure): Answer<RpcBody> {
    const { caller, args, xid } = call;
    if (procedure.once === undefined && !procedure.mayWait) return this.#run(procedure, args, caller);
    const words = args.rest();
    const key = (): string => `${call.procedure} ${caller.uid} ${caller.gid} ${words.toString('latin1')}`;
    const later = (): RpcBody => [failure(STATUS.jukebox, procedure.failureWords)];
    const { once } = procedure;
    if (once === undefined) {
      return this.#patience.within(key, () => this.#run(procedure, args, caller), later);
    }
    const id = `${xid} ${key()}`;
    const run = (): Promise<RpcBody> => this.#runOnce({ ...procedure, once }, words, caller, id);
    return this.#repeated.once(id, async () => this.#patience.within(key, run, later));
  }

  /** Carries out a call that an earlier process of this mount may have carried out already. */
  async #runOnce(
    procedure: Procedure & { readonly once: Once },
    words: Buffer,
    caller: RpcCaller,
    id: string,
  ): Promise<RpcBody> {
    const { once, failureWords } = procedure;
    const first = async (): Promise<RpcBody> => this.#run(procedure, new XdrReader(words), caller);
    const again = async (): Promise<RpcBody> =>
      this.#run({ run: once.again, failureWords }, new XdrReader(words), caller);
    if (this.#recorded === null) return first();
    const earlier = this.#recorded.earlier(id);
    if (earlier === STATUS.ok) return again();
    if (earlier !== undefined && earlier !== null) return [failure(earlier, failureWords)];
    const run = async (): Promise<RpcBody> => {
      const reply = await first();
      return earlier === null && statusIn(reply) === once.done ? again() : reply;
    };
    return this.#recorded.around(id, run, statusIn);
  }

  #run(procedure: Pick<Procedure, 'run' | 'failureWords'>, args: XdrReader, caller: RpcCaller): Answer<RpcBody> {
    const out = new XdrWriter().u32(STATUS.ok);
    const done = (more: readonly Uint8Array[] | undefined): RpcBody =>
      more === undefined ? [out.done()] : [out.done(), ...more];
    const failed = (error: unknown): RpcBody => {
      const status = statusOf(error);
      if (status === null) throw error;
      return [failure(status, procedure.failureWords)];
    };
    try {
      const more = procedure.run(args, caller, out);
      return more instanceof Promise ? more.then(done).catch(failed) : done(more);
    } catch (error) {
      return failed(error);
    }
  }
}

function statusIn([head]: RpcBody): Status {
  return Buffer.from(head?.subarray(0, 4) ?? []).readUInt32BE(0) as Status;
}

function failure(status: Status, words: number): Buffer {
  const out = new XdrWriter(4 + 4 * words).u32(status);
  for (let word = 0; word < words; word++) out.u32(0);
  return out.done();
}

function table(names: NameProcedures, files: FileProcedures, listing: Listing): Readonly<Record<number, Procedure>> {
  const again =
    (write: (...result: Parameters<Procedure['run']>) => Promise<void>): Procedure['run'] =>
    (...result) =>
      write(...result).then(() => undefined);
  const once = (done: Status, write: Parameters<typeof again>[0]) => ({ once: { done, again: again(write) } }) as const;
  const add = once(STATUS.exist, (...result) => names.added(...result));
  const remove = once(STATUS.noent, (...result) => names.removed(...result));
  const rename = once(STATUS.noent, (...result) => names.renamed(...result));
  const change = once(STATUS.notSync, (...result) => files.changed(...result));
  const mayWait = { mayWait: true } as const;
  const isForAll = { isForAll: true } as const;
  const bound = <T extends object>(
    object: T,
    name: keyof T,
    failureWords: number,
    traits: Partial<Omit<Procedure, 'run' | 'failureWords'>> = {},
  ): Procedure => ({
    run: (args, caller, out) => (object[name] as unknown as Procedure['run']).call(object, args, caller, out),
    failureWords,
    ...traits,
  });
  return {
    [PROCEDURE.getattr]: bound(files, 'getattr', NO_ATTRIBUTES),
    [PROCEDURE.setattr]: bound(files, 'setattr', WCC, change),
    [PROCEDURE.lookup]: bound(names, 'lookup', POST_OP, mayWait),
    [PROCEDURE.access]: bound(files, 'access', POST_OP),
    [PROCEDURE.readlink]: bound(files, 'readlink', POST_OP, mayWait),
    [PROCEDURE.read]: bound(files, 'read', POST_OP, mayWait),
    [PROCEDURE.write]: bound(files, 'write', WCC),
    [PROCEDURE.create]: bound(names, 'create', WCC, add),
    [PROCEDURE.mkdir]: bound(names, 'mkdir', WCC, add),
    [PROCEDURE.symlink]: bound(names, 'symlink', WCC, add),
    [PROCEDURE.mknod]: bound(names, 'mknod', WCC, add),
    [PROCEDURE.remove]: bound(names, 'remove', WCC, remove),
    [PROCEDURE.rmdir]: bound(names, 'rmdir', WCC, remove),
    [PROCEDURE.rename]: bound(names, 'rename', TWO_WCC, rename),
    [PROCEDURE.link]: bound(names, 'link', POST_OP_AND_WCC, mayWait),
    [PROCEDURE.readdir]: bound(listing, 'readdir', POST_OP, mayWait),
    [PROCEDURE.readdirplus]: bound(listing, 'readdirplus', POST_OP, mayWait),
    [PROCEDURE.fsstat]: bound(files, 'fsstat', POST_OP),
    [PROCEDURE.fsinfo]: bound(files, 'fsinfo', POST_OP, isForAll),
    [PROCEDURE.pathconf]: bound(files, 'pathconf', POST_OP, isForAll),
    [PROCEDURE.commit]: bound(files, 'commit', WCC),
  };
}
