import type { Ablation } from '../harness/ablation.ts';

/** One safeguard of `--continuity`, and the test that fails without it. */
export interface ContinuityAblation extends Ablation {
  /** A part of the names of the tests that fail; default: any test of the file. */
  readonly names?: string;
}

const STATE = { file: 'src/kernel/handover-state.ts', test: 'test/kernel/handover-state.test.ts' };
const SESSION = { file: 'src/kernel/linux-session.ts', test: 'test/kernel/linux-session.test.ts' };
const REMOVED = { file: 'src/kernel/removed-rows.ts', test: 'test/kernel/removed-rows.test.ts' };
const DRAFTS = { file: 'src/kernel/draft-rows.ts', test: 'test/kernel/draft-rows.test.ts' };
const NOTICES = { file: 'src/kernel/notice-rows.ts', test: 'test/kernel/notice-rows.test.ts' };
const NAMES = 'test/crash/continuity-names.mount.test.ts';
const CONNECTION = { file: 'native-deps/fuse-kernel/connection.c', test: 'test/kernel/native.test.ts' };
const KEEPER = 'native-deps/keeper/keeper.c';
const CONTINUITY = 'test/crash/continuity.mount.test.ts';
const UPGRADE = 'test/crash/upgrade.mount.test.ts';
const STANDBY = 'test/crash/standby.mount.test.ts';
const STORE = 'test/crash/descriptor-store.mount.test.ts';

/** Those that need no mount first. */
export const ABLATIONS: readonly ContinuityAblation[] = [
  {
    ...{ safeguard: 'a recorded change counts only with its journal record', ...STATE },
    ...{
      from: 'if ((numbers[row + RECORD] as number) > lastRecord) numbers[row + UNIQUE] = 0;',
      to: 'if (lastRecord < 0) continue;',
    },
  },
  {
    ...{ safeguard: 'a refused record is none', ...STATE },
    ...{ from: 'this.#numbers[this.#writing + UNIQUE] = 0;', to: '' },
  },
  {
    ...{ safeguard: 'the first record of a request counts', ...STATE },
    ...{ from: 'request !== null && request !== this.#recorded && ONCE', to: 'request !== null && ONCE' },
  },
  {
    ...{ safeguard: 'a request that two processes died of fails', ...STATE },
    ...{ from: '(this.#numbers[SUSPECT_DEATHS] as number) >= POISON_DEATHS', to: 'unique < 0' },
  },
  {
    ...{ safeguard: 'no handle number is used twice', ...STATE },
    ...{ from: 'this.firstHandle = generation * HANDLES_OF_GENERATION + 1;', to: 'this.firstHandle = 1;' },
  },
  {
    ...{ safeguard: 'pages that were read before a write arrived are dropped once more', ...SESSION },
    ...{ from: 'if (opcode !== Opcode.WRITE) return answer;', to: 'return answer;' },
  },
  {
    ...{ safeguard: 'a kept request holds its slot while it waits', ...SESSION },
    ...{
      from: '} else if (request.opcode === Opcode.WRITE || this.#keepsRequests) {',
      to: '} else if (request.opcode === Opcode.WRITE) {',
    },
  },
  {
    ...{ safeguard: 'a kept request holds its slot while the pool answers', ...SESSION },
    ...{
      from: 'if (this.#keepsRequests && length === N.TAKEN && this.#pending.has(request.unique)) this.#hold(request, item);',
      to: '',
    },
  },
  {
    ...{ safeguard: 'nothing of an inherited request is taken back', ...SESSION },
    ...{ from: 'if (!request.isInherited) this.#undelivered.answer', to: 'this.#undelivered.answer' },
  },
  {
    ...{ safeguard: 'a request that timed out is answered', ...SESSION },
    ...{ from: 'if (request.held !== null) this.#connection.answered(request.held[0]);', to: '' },
  },
  {
    ...{ safeguard: 'a repeated open gets the handle of the first one', ...SESSION },
    ...{
      from: 'const opened = handover.undelivered(request);',
      to: 'const opened = null as ReturnType<typeof handover.undelivered>;',
    },
  },
  {
    ...{ safeguard: 'a removed node has its former state until the next one is written', ...REMOVED },
    ...{
      from: 'const before = this.#rows.get(ino);',
      to: 'const before = this.#rows.get(ino);\n    if (before !== undefined) this.#freeRow(before);',
    },
  },
  {
    ...{ safeguard: 'of two states of a removed node the later one counts', ...REMOVED },
    ...{
      from: '(this.#numbers[nodeAt(other) + VERSION] as number) < version',
      to: '(this.#numbers[nodeAt(other) + VERSION] as number) > version',
    },
  },
  {
    ...{ safeguard: 'a draft has its former state until the next one is written', ...DRAFTS },
    ...{ from: 'const next = !isNew && this.#head(row, VALID) === 1 ? 2 : 1;', to: 'const next = 1;' },
  },
  {
    ...{ safeguard: 'a draft is stored only with its journal record', ...DRAFTS },
    ...{
      from: 'if (storedBy > 0 && storedBy <= lastRecord) this.dropped(content);',
      to: 'if (storedBy > 0) this.dropped(content);',
    },
  },
  {
    ...{ safeguard: 'a notification about a record that was not made is none', ...NOTICES },
    ...{ from: 'if ((numbers[at + RECORD] as number) > lastRecord) {', to: 'if (lastRecord < 0) {' },
  },
  {
    ...{ safeguard: 'a notification is recorded until it is written', ...NOTICES },
    ...{ from: 'numbers[at + ORDER] = order;', to: '' },
  },
  {
    ...{
      safeguard: 'a successor sends the notifications of its predecessor',
      file: 'src/kernel/linux.ts',
      test: NAMES,
    },
    ...{ from: 'this.invalidator.inherit(notices);', to: 'notices.slice();', names: 'is visible after a death' },
  },
  {
    ...{
      safeguard: 'a folder without a name that reappears after a death gets another node id',
      file: 'src/fs/inherited-handles.ts',
      test: NAMES,
    },
    ...{
      from: "if (kind === 'folder') cache.folderRemoved(ino);",
      to: "if (kind === 'folder') continue;",
      names: 'reappeared',
    },
  },
  {
    ...{
      safeguard: 'the node ids of folders that reappeared outlive the process',
      file: 'src/kernel/node-ids.ts',
      test: NAMES,
    },
    ...{ from: 'if (isDead) this.#removed.add(nodeId);', to: 'if (nodeId > 0) continue;', names: 'reappeared' },
  },
  {
    ...{ safeguard: 'names are noted before their record', file: STATE.file, test: NAMES },
    ...{
      from: 'if (request === null) this.#noteNames(sequence, names());',
      to: '',
      names: 'is visible after a death',
    },
  },
  {
    ...{ safeguard: 'a notification that was written is not sent again', ...CONNECTION },
    ...{
      from: 'uint64_t *cell = row == 0 ? NULL : (uint64_t *)(c->region + row);',
      to: 'uint64_t *cell = NULL;',
      names: 'sets its row in the region',
    },
  },
  {
    ...{ safeguard: 'an append is made once', ...DRAFTS },
    ...{ from: 'if (this.#appended.has(unique)) return false;', to: '' },
  },
  {
    ...{ safeguard: 'a slot is mapped before the kernel copies into it', ...CONNECTION },
    ...{ from: 'if (c->page == NULL || c->touched[index]) return;', to: 'return;' },
  },
  {
    ...{ safeguard: 'a reply is not encoded over its request', ...CONNECTION },
    ...{
      from: '(uint32_t)(c->out_start + (size_t)(item - c->control) / ITEM_WORDS * SMALL_BYTES)',
      to: '(uint32_t)item_offset(c, request)',
    },
  },
  {
    ...{ safeguard: 'a FORGET that an earlier process has read is not lost', ...CONNECTION },
    ...{ from: 'if (header->opcode == FUSE_OP_INTERRUPT || (', to: 'if (!takes_reply(header->opcode) || (' },
  },
  {
    ...{ safeguard: 'kept requests are served in the order of the kernel', ...CONNECTION },
    ...{ from: 'at > 0 && unique_of(c, slots[at - 1]) > unique_of(c, slot)', to: 'at > count' },
  },
  {
    ...{ safeguard: 'a slot that is released has no request', ...CONNECTION },
    ...{
      from: 'static void free_slots(struct connection *c, uint32_t slot, uint32_t large) {\n  mark_answered(c, slot);',
      to: 'static void free_slots(struct connection *c, uint32_t slot, uint32_t large) {',
    },
  },
  {
    ...{ safeguard: 'a connection of the descriptor store is continued only for its own mount', file: KEEPER },
    ...{ from: 'if (!is_same || poll', to: 'if (poll', test: 'test/kernel/keeper.test.ts' },
  },
  {
    // Late, not never: only an abort would end the mount.
    ...{ safeguard: 'the mutex shows the end of the thread that answers', file: KEEPER },
    ...{
      from: 'while (sem_wait(&served) != 0) continue;',
      to: 'while (sem_wait(&served) != 0) continue;\n    sleep(90);',
    },
    ...{ test: CONTINUITY, names: 'blocked by a page' },
  },
  {
    ...{ safeguard: 'INTERRUPT finds a resent request', file: 'src/kernel/request.ts' },
    ...{ from: '((wire.u32(at + 4) & ~RESENT) >>> 0) * 0x1_0000_0000', to: 'wire.u32(at + 4) * 0x1_0000_0000' },
    ...{ test: CONTINUITY, names: 'SIGINT of its caller' },
  },
  {
    ...{ safeguard: 'the keeper ends a process whose thread has ended', file: KEEPER },
    ...{ from: 'reaped meanwhile */\n      kill(active.pid, SIGKILL);', to: 'reaped meanwhile */' },
    ...{ test: CONTINUITY, names: 'ends by itself' },
  },
  {
    ...{ safeguard: 'a mount whose process dies again and again ends', file: KEEPER },
    ...{
      from: 'if (is_limited && short_lives > SHORT_LIVES_MAX) {',
      to: 'if (is_limited && short_lives > 1000) {',
    },
    ...{ test: CONTINUITY, names: 'six processes in a row' },
  },
  {
    ...{ safeguard: 'deaths of processes that served do not end a mount', file: KEEPER },
    ...{ from: 'short_lives = has_lived ? 0 : short_lives + 1;', to: 'short_lives += has_lived ? 1 : 1;' },
    ...{ test: CONTINUITY, names: 'serve for a second' },
  },
  {
    ...{ safeguard: 'a signal during a takeover reaches the successor', file: KEEPER },
    ...{ from: 'if (stop_signal != 0) kill(process->pid, stop_signal);', to: '' },
    ...{ test: CONTINUITY, names: 'SIGTERM to the keeper' },
  },
  {
    ...{ safeguard: 'the former version continues after an upgrade that fails', file: KEEPER },
    ...{ from: 'if (standby.command != command) former = command;', to: '' },
    ...{ test: UPGRADE, names: 'the former version continues' },
  },
  {
    ...{ safeguard: 'an upgrade is no death', file: KEEPER },
    ...{ from: 'if (active.hands_over) {', to: 'if (active.hands_over && active.pid == 0) {' },
    ...{ test: UPGRADE, names: 'no call fails' },
  },
  {
    ...{ safeguard: 'only a version with the same layouts continues a mount', file: 'src/mount/upgrade.ts' },
    ...{ from: 'if (isSame) return;', to: 'if (isSame || offered !== running) return;' },
    ...{ test: UPGRADE, names: 'another layout' },
  },
  {
    ...{ safeguard: 'an upgrade changes no option of the kernel', file: 'src/mount/upgrade.ts' },
    ...{ from: 'if (differs !== null)', to: "if (differs === '')" },
    ...{ test: UPGRADE, names: 'an option that a mount cannot change' },
  },
  {
    ...{ safeguard: 'the standby continues', file: KEEPER },
    ...{ from: 'standby.is_waiting = true;', to: '' },
    ...{ test: STANDBY, names: 'is replaced by the process that waits' },
  },
  {
    ...{ safeguard: 'the end of a standby is told', file: KEEPER },
    ...{ from: 'tell(&active, "failed\\n");', to: '' },
    ...{ test: STANDBY, names: 'a standby that ends is noticed' },
  },
  {
    ...{ safeguard: 'a standby ends with its keeper', file: 'src/kernel/keeper-line.ts' },
    ...{ from: "lines.on('close', () => resolve(null));", to: '' },
    ...{ test: STANDBY, names: 'ends with its mount' },
  },
  {
    ...{ safeguard: 'the process of a killed keeper ends before another one continues', file: KEEPER },
    ...{
      from: 'if (failure == EBUSY) failure = pthread_mutex_timedlock(&page->serving, &until);',
      to: 'if (failure == EBUSY) failure = 0;',
    },
    ...{ test: 'test/kernel/keeper.test.ts', names: 'still serves' },
  },
  {
    ...{ safeguard: 'a connection that was aborted is not continued', file: KEEPER },
    ...{ from: '(connection.revents & (POLLERR | POLLNVAL)) != 0', to: 'connection.fd < 0' },
    ...{ test: STORE, names: 'that was aborted' },
  },
  {
    ...{ safeguard: 'a mount that ends leaves no connection in the descriptor store', file: KEEPER },
    ...{ from: 'static void leave(int code) {\n  forget_descriptors();', to: 'static void leave(int code) {' },
    ...{ test: STORE, names: 'outlives its keeper' },
  },
];
