import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { filesBelow, type Import, importsOf } from './imports.ts';

/** The import rule of docs/architecture.md. Whoever needs a new line here changes the architecture, and says so there. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  base: [],
  config: ['base'],
  // Towards the service: knows HTTP and XML, has never heard of inodes.
  protocol: ['base'],
  remote: ['base', 'protocol'],
  server: ['base', 'protocol'],
  // Towards the kernel: knows inodes and blocks, has never heard of HTTP.
  store: ['base'], // the record engine: journal, LMDB, tables
  bytes: ['base', 'store'], // the byte store: drafts, blocks, eviction
  tree: ['base', 'store', 'bytes'],
  content: ['base', 'store', 'bytes'],
  sync: ['base', 'store', 'bytes', 'tree', 'content'],
  kernel: ['base'],
  nfs: ['base', 'kernel'], // a second way to the kernel: its own NFS client
  fs: ['base', 'store', 'bytes', 'tree', 'content', 'sync', 'kernel'],
  // Between the two, on the main thread.
  transfer: ['base', 'store', 'remote'],
  control: ['base'],
  // A running mount: its two threads are assembled here.
  mount: [
    'base',
    'config',
    'remote',
    'store',
    'bytes',
    'tree',
    'content',
    'sync',
    'kernel',
    'nfs',
    'fs',
    'transfer',
    'control',
  ],
  // The public interface of the package (package.json, `exports`).
  api: ['base', 'config', 'remote', 'server', 'control', 'mount'],
  // The page of `cfs web`: its server, and what runs in the browser (`web/page`).
  web: ['base', 'config', 'control', 'mount'],
  // The command line.
  cli: [
    'base',
    'config',
    'protocol',
    'remote',
    'server',
    'store',
    'bytes',
    'tree',
    'content',
    'sync',
    'kernel',
    'fs',
    'transfer',
    'control',
    'mount',
    'web',
  ],
};

/** The one home of each third-party package: a folder, or a file without its ending. */
const HOME_OF: Readonly<Record<string, readonly string[]>> = {
  undici: [
    'remote/http/connection-pool',
    'remote/http/answer-handler',
    'remote/http/paused-parser',
    'server/s3/s3-requests',
    'server/s3/s3-store',
  ],
  lmdb: ['store/', 'server/database', 'server/object-table'],
  msgpackr: ['store/'],
  saxes: ['protocol/xml', 'protocol/saxes-parser'],
  'fast-xml-parser': ['protocol/xml'],
  'fuse-native': ['kernel/fuse-native/fuse-native'],
  'lru-cache': ['store/', 'bytes/', 'tree/', 'content/'],
  pino: ['base/log'],
  commander: ['cli/'],
  'smol-toml': ['config/load'],
  sharp: ['server/'],
  pg: ['server/postgres/'],
  preact: ['web/page/'],
  htm: ['web/page/'],
  uplot: ['web/page/'],
  diff: ['web/page/'],
};

const allImports = filesBelow('src', ['.ts']).flatMap((file) => importsOf(file));

/** `src/fs/handles.ts` → `fs`. */
function folderOf(path: string): string {
  return path.split('/')[1] ?? '';
}

function brokenLayers(imports: readonly Import[]): string[] {
  return imports.flatMap(({ file, specifier }) => {
    if (!specifier.startsWith('.')) return [];
    const from = folderOf(file);
    const to = folderOf(join(dirname(file), specifier));
    if (from === to || MAY_IMPORT[from]?.includes(to)) return [];
    return [`${file}: ${from} must not import ${to}`];
  });
}

function strayPackages(imports: readonly Import[]): string[] {
  return imports.flatMap(({ file, specifier }) => {
    if (specifier.startsWith('.') || specifier.startsWith('node:')) return [];
    const name = specifier
      .split('/')
      .slice(0, specifier.startsWith('@') ? 2 : 1)
      .join('/');
    const place = file.slice('src/'.length).replace(/\.ts$/, '');
    const homes = HOME_OF[name];
    if (homes === undefined) return [`${file}: ${name} has no home yet`];
    if (homes.some((home) => (home.endsWith('/') ? place.startsWith(home) : place === home))) return [];
    return [`${file}: ${name} belongs to ${homes.join(' and ')}`];
  });
}

/** The files of one import cycle, the first one again at the end; empty where there is none. */
function cycleIn(imports: readonly Import[]): string[] {
  const targets = new Map<string, string[]>();
  for (const { file, specifier } of imports) {
    if (!specifier.startsWith('.')) continue;
    targets.set(file, [...(targets.get(file) ?? []), join(dirname(file), specifier)]);
  }
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): string[] => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return [];
    for (const target of targets.get(file) ?? []) {
      const cycle = visit(target, [...path, file]);
      if (cycle.length > 0) return cycle;
    }
    done.add(file);
    return [];
  };
  for (const file of targets.keys()) {
    const cycle = visit(file, []);
    if (cycle.length > 0) return cycle;
  }
  return [];
}

test('every import goes down the layers', () => {
  expect(allImports.length).toBeGreaterThan(20);
  expect(brokenLayers(allImports)).toEqual([]);
});

/** The implementation of the service's contract; `remote/open-service` chooses it, the doctor examines its connection. */
const NAMES_HTTP: readonly string[] = ['src/remote/open-service.ts', 'src/cli/doctor/service-check.ts'];

test('outside remote/http only the place that opens a service, and the doctor, name the implementation', () => {
  const naming = allImports.filter(
    ({ file, specifier }) =>
      !file.startsWith('src/remote/http/') && join(dirname(file), specifier).startsWith('src/remote/http/'),
  );

  expect([...new Set(naming.map(({ file }) => file))].sort()).toEqual([...NAMES_HTTP].sort());
});

test('the contract of a service imports base alone', () => {
  const imports = allImports.filter(({ file }) => file === 'src/remote/contract.ts');

  expect(imports.map(({ specifier }) => dirname(specifier))).toEqual(imports.map(() => '../base'));
});

test('every third-party package stays in its home', () => {
  expect(strayPackages(allImports)).toEqual([]);
});

test('every folder of src/ has its place in the rule', () => {
  const folders = new Set(filesBelow('src', ['.ts']).map(folderOf));

  expect([...folders].filter((folder) => !(folder in MAY_IMPORT))).toEqual([]);
});

test('no file imports itself through others, not even for a type', () => {
  expect(cycleIn(allImports)).toEqual([]);
  // A type import closes a cycle like any other; a diamond is none.
  const imports = (edges: string) =>
    edges.split(' ').map((edge) => ({ file: `src/fs/${edge[0]}.ts`, specifier: `./${edge[2]}.ts` }));
  expect(cycleIn(imports('a>b b>c c>b'))).toEqual(['src/fs/b.ts', 'src/fs/c.ts', 'src/fs/b.ts']);
  expect(cycleIn(imports('a>b a>c b>d c>d'))).toEqual([]);
});

test('an import within the project names the file with its ending', () => {
  const wrong = allImports.filter(({ specifier }) => specifier.startsWith('.') && !specifier.endsWith('.ts'));

  expect(wrong).toEqual([]);
});

/** The rules above are only worth what the search for imports finds. */
test('an import is found in each of its forms, and only there', () => {
  const text = [
    "import { a } from '../remote/one.ts';",
    "import type { B } from '../remote/two.ts';",
    "import '../remote/three.ts';",
    "export { c } from '../remote/four.ts';",
    "const five = await import('../remote/five.ts');",
    "// import '../remote/not-in-a-comment.ts';",
    "/** as in `from '../remote/nor-here.ts'` */",
    "import {\n  d,\n} from '../remote/six.ts';",
    "const sentence = 'comes from \\'somewhere else\\'';",
    "import { Agent } from 'undici';",
    "const Client = commonJs('undici/lib/dispatcher/client.js');",
  ].join('\n');

  const found = importsOf('src/fs/example.ts', text);

  expect(found.map(({ specifier }) => specifier.replace(/^.*\//, ''))).toEqual([
    'one.ts',
    'two.ts',
    'three.ts',
    'four.ts',
    'five.ts',
    'six.ts',
    'undici',
    'client.js',
  ]);
  expect(brokenLayers(found)).toHaveLength(6);
  const stray =
    'src/fs/example.ts: undici belongs to remote/http/connection-pool and remote/http/answer-handler and remote/http/paused-parser and server/s3/s3-requests and server/s3/s3-store';
  expect(strayPackages(found)).toEqual([stray, stray]);
});
