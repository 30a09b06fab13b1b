import { constants } from 'node:fs';
import type { OpenFlags } from './binding.ts';

const { O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY } = constants;

/** open(2)'s flags by the letters of fopen(3), as in node:fs. */
const FLAGS_OF_LETTERS = {
  r: O_RDONLY,
  'r+': O_RDWR,
  w: O_WRONLY | O_CREAT | O_TRUNC,
  wx: O_WRONLY | O_CREAT | O_TRUNC | O_EXCL,
  'w+': O_RDWR | O_CREAT | O_TRUNC,
  'wx+': O_RDWR | O_CREAT | O_TRUNC | O_EXCL,
  a: O_WRONLY | O_CREAT | O_APPEND,
  ax: O_WRONLY | O_CREAT | O_APPEND | O_EXCL,
  'a+': O_RDWR | O_CREAT | O_APPEND,
} as const;
export type OpenLetters = keyof typeof FLAGS_OF_LETTERS;

/** open(2)'s number, from letters or unchanged. */
export function rawFlags(flags: OpenLetters | number): number {
  return typeof flags === 'number' ? flags : FLAGS_OF_LETTERS[flags];
}

/** Whether O_APPEND is set. */
export function isAppending(raw: number): boolean {
  return (raw & O_APPEND) !== 0;
}

/** Whether a descriptor with these flags may write. */
export function mayWrite(raw: number): boolean {
  return (raw & (O_WRONLY | O_RDWR)) !== 0;
}

/** The flags that reach a file system, decoded. */
export function openFlags(raw: number): OpenFlags {
  const access = raw & (O_WRONLY | O_RDWR);
  return {
    access: access === O_RDONLY ? 'read' : access === O_WRONLY ? 'write' : 'read-write',
    append: isAppending(raw),
    truncate: (raw & O_TRUNC) !== 0,
    raw,
  };
}
