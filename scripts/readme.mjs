// Brings the generated tables of README.md up to date: options and exit codes come from the code.
import { readFileSync, writeFileSync } from 'node:fs';

await import('./bootstrap.mjs');
const { withGeneratedSections } = await import('../dist/cli/reference.js');
const readme = new URL('../README.md', import.meta.url);
const before = readFileSync(readme, 'utf8');
const after = withGeneratedSections(before);
if (after !== before) writeFileSync(readme, after);
console.log(after === before ? 'README.md is up to date' : 'README.md: tables brought up to date');
