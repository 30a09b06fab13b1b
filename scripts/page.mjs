// The page of `cfs web`: its modules as one file, the libraries in it as another (vendor.js), and the files beside them. Everything is in
// the package: nothing is downloaded when the page is used.
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const root = fileURLToPath(new URL('..', import.meta.url));
const source = `${root}src/web/page`;
const target = `${root}dist/web/page`;
const LIBRARIES = ['preact', 'htm', 'uplot', 'diff'];

const missing = LIBRARIES.filter((name) => !existsSync(fileURLToPath(import.meta.resolve(name))));
if (missing.length > 0) throw new Error(`not installed: ${missing.join(', ')} (npm ci)`);

mkdirSync(target, { recursive: true });
const bundle = await rolldown({
  input: `${source}/main.ts`,
  platform: 'browser',
  tsconfig: `${root}tsconfig.page.json`,
  onLog(level, log) {
    throw new Error(`${level}: ${log.message}`);
  },
});
await bundle.write({
  dir: target,
  format: 'esm',
  entryFileNames: 'page.js',
  chunkFileNames: '[name].js',
  codeSplitting: { groups: [{ name: 'vendor', test: /node_modules/ }] },
  minify: true,
  sourcemap: false, // the policy of the page lets a browser load only what it needs
});
for (const name of ['index.html', 'page.css', 'icon.svg']) copyFileSync(`${source}/${name}`, `${target}/${name}`);
copyFileSync(fileURLToPath(import.meta.resolve('uplot/dist/uPlot.min.css')), `${target}/vendor.css`);

const licences = LIBRARIES.map((name) => {
  const folder = fileURLToPath(import.meta.resolve(name)).replace(new RegExp(`(/node_modules/${name}/).*`), '$1');
  const { version, license } = JSON.parse(readFileSync(`${folder}package.json`, 'utf8'));
  return `${name} ${version} (${license})\n\n${readFileSync(`${folder}LICENSE`, 'utf8').trim()}\n`;
});
writeFileSync(`${target}/licences.txt`, `The page contains these libraries.\n\n${licences.join('\n----\n\n')}`);
