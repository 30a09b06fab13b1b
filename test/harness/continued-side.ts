import type { Inode } from '../../src/base/vocabulary.ts';
import type { Invalidator, OpContext } from '../../src/kernel/binding.ts';
import { HANDOVER_BYTES, HandoverState } from '../../src/kernel/handover-state.ts';
import type { Opcode } from '../../src/kernel/protocol.ts';
import { FileSystemSide, type SideOptions } from './file-system-side.ts';

const noInvalidations: Invalidator = { inode: () => {}, entry: () => {}, deleted: () => {} };

/** A request of the kernel: what `HandoverState` and an operation need of it. */
export interface TestRequest extends OpContext {
  readonly opcode: number;
  readonly unique: number;
  readonly nodeId: number;
}

/**
 * A file system with `--continuity`, without a kernel: `die` leaves what SIGKILL would leave at this moment, and starts a successor on it. The
 * dead process is not closed before the end: that would change the keeper's memory.
 */
export class ContinuedSide {
  readonly #region = new ArrayBuffer(HANDOVER_BYTES);
  readonly #options: SideOptions;
  readonly #dead: FileSystemSide[] = [];
  #generation = 0;
  #next = 0;
  #side!: FileSystemSide;
  #state!: HandoverState;

  readonly #begins: (side: FileSystemSide, state: HandoverState) => void;

  private constructor(options: SideOptions, begins: (side: FileSystemSide, state: HandoverState) => void) {
    this.#options = options;
    this.#begins = begins;
  }

  /** @param begins called with each process, before its file system takes over */
  static async start(
    options: SideOptions = {},
    begins: (side: FileSystemSide, state: HandoverState) => void = () => {},
  ): Promise<ContinuedSide> {
    const life = new ContinuedSide(options, begins);
    await life.#start(options);
    return life;
  }

  get side(): FileSystemSide {
    return this.#side;
  }

  get state(): HandoverState {
    return this.#state;
  }

  async die(): Promise<void> {
    this.#dead.push(this.#side);
    const directory = this.#side.snapshot();
    this.#generation++;
    await this.#start({ ...this.#options, directory });
  }

  request(opcode: Opcode, ino: Inode): TestRequest {
    this.#next += 2;
    const unique = this.#next;
    return {
      ...{ opcode, unique, nodeId: ino },
      ...{ uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal },
      appends: (content) => this.#state.drafts.appends(unique, content),
      appendFailed: (content) => this.#state.drafts.appendFailed(content),
    };
  }

  /** Carries out an operation as the one of `request`. */
  serve<T>(request: TestRequest, act: (ctx: TestRequest) => T): T {
    this.#state.begin(request);
    try {
      return act(request);
    } finally {
      this.#state.end();
    }
  }

  async close(): Promise<void> {
    for (const each of [...this.#dead, this.#side]) await each.close();
  }

  async #start(options: SideOptions): Promise<void> {
    this.#side = await FileSystemSide.build(options);
    const { store, fileSystem } = this.#side;
    this.#state = new HandoverState(this.#region, 0, this.#generation);
    this.#state.judge(store.foundRecord);
    store.witness = this.#state;
    this.#begins(this.#side, this.#state);
    fileSystem.init(noInvalidations, this.#state);
  }
}
