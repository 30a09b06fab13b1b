// Writes the manual pages into man/, made from the tables in src/cli and src/config: `node scripts/manual.mjs`, after a build.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { built } from './built.mjs';

/** @type {typeof import('../src/cli/manual.ts')} */
const { MANUAL_PAGES } = await import(built('cli/manual.js'));
const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const folder = new URL('../man/', import.meta.url);
mkdirSync(folder, { recursive: true });
for (const [name, make] of Object.entries(MANUAL_PAGES)) writeFileSync(new URL(name, folder), make(version));
console.error(`manual pages written: ${Object.keys(MANUAL_PAGES).join(', ')}`);
