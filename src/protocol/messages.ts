/**
 * Every document of the interface, in both directions. For each: `interface FooDocument`, `decodeFoo(text or stream)`,
 * `encodeFoo(document)`. Which root element may come where is in `docs/service.md`.
 */
export * from './file-messages.ts';
export * from './folder-messages.ts';
export * from './token-messages.ts';
export * from './user-messages.ts';
