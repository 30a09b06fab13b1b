// Brings the generated tables of the documents up to date: commands, options, exit codes and findings come from the code.
import { readFileSync, writeFileSync } from 'node:fs';

await import('./bootstrap.mjs');
const { GENERATED_SECTIONS, withGeneratedSections } = await import('../dist/cli/reference.js');
for (const document of Object.keys(GENERATED_SECTIONS)) {
  const path = new URL(`../${document}`, import.meta.url);
  const before = readFileSync(path, 'utf8');
  const after = withGeneratedSections(before, document);
  if (after !== before) writeFileSync(path, after);
  console.log(after === before ? `${document} is up to date` : `${document}: tables brought up to date`);
}
