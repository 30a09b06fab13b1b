// Modules of dist/ for scripts. The path is not a literal, so the type check needs no build: a script names the type of the source
// instead, as in `@type {typeof import('../src/cli/manual.ts')}`.

/** @param {string} path below dist/: `cli/manual.js` @returns {string} for `import()` */
export function built(path) {
  return new URL(`../dist/${path}`, import.meta.url).href;
}
