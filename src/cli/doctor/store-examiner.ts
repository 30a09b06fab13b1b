import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { ExaminationDepth, StoreExamination } from './store-examination.ts';

/** Examines a store; a function type, so that tests can read in their own process. */
export type StoreExaminer = (directory: string, depth: ExaminationDepth) => Promise<StoreExamination>;

const ANSWER_CHARACTERS_MAX = 1024 ** 2;

/**
 * Examines a store in a process of its own. LMDB maps its file into memory: a truncated or overwritten file ends the process
 * that reads it (SIGBUS, SIGSEGV) instead of causing an error.
 */
export const examineInProcess: StoreExaminer = (directory, depth) =>
  new Promise((resolve, reject) => {
    const program = fileURLToPath(new URL('./store-examination-process.js', import.meta.url));
    const child = spawn(process.execPath, [program, directory, depth], { stdio: ['ignore', 'pipe', 'ignore'] });
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(0, ANSWER_CHARACTERS_MAX);
    });
    child.once('error', reject);
    child.once('close', (code, signal) => {
      const reason = `the process that read it died (${signal ?? `exit code ${code}`})`;
      resolve(parsed(said) ?? { state: 'broken', reason });
    });
  });

function parsed(text: string): StoreExamination | null {
  try {
    return JSON.parse(text) as StoreExamination;
  } catch {
    return null;
  }
}
