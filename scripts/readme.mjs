// Brings the generated tables of the documents up to date: commands, options, exit codes and findings come from the code.
import { readFileSync, writeFileSync } from 'node:fs';
import { built } from './built.mjs';

await import('./bootstrap.mjs');
/** @type {typeof import('../src/cli/reference.ts')} */
const { GENERATED_SECTIONS, withGeneratedSections } = await import(built('cli/reference.js'));
for (const document of /** @type {(keyof typeof GENERATED_SECTIONS)[]} */ (Object.keys(GENERATED_SECTIONS))) {
  const path = new URL(`../${document}`, import.meta.url);
  const before = readFileSync(path, 'utf8');
  const after = withGeneratedSections(before, document);
  if (after !== before) writeFileSync(path, after);
  console.log(after === before ? `${document} is up to date` : `${document}: tables brought up to date`);
}
