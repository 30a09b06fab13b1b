import { randomUUID } from 'node:crypto';

/** 32 hexadecimal digits that name new content, in a row or in the store. */
export function newObjectName(): string {
  return randomUUID().replaceAll('-', '');
}

/** The key of a new object in the store. The first two digits spread the objects over directories. */
export function newObjectKey(): string {
  const name = newObjectName();
  return `${name.slice(0, 2)}/${name}`;
}
