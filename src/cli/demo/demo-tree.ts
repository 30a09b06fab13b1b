import type { RemoteEntry } from '../../base/resources.ts';
import type { ResourceUrl } from '../../base/vocabulary.ts';
import { needed } from '../../remote/capability.ts';
import type { RemoteService } from '../../remote/contract.ts';
import { demoPhoto } from './demo-photo.ts';

/** The initial demo account: names of files with their versions, and of folders with their contents. */
export interface DemoFolder {
  readonly [name: string]: DemoFolder | readonly Uint8Array[];
}

/** The demo tree; built on each call because the photo is drawn. */
export function demoTree(): DemoFolder {
  return {
    'Welcome.txt': [
      text(
        'This folder lives on a server, and on this machine.',
        '',
        'Whatever you save here is on this disk at once, and on the server a moment',
        'later, as a new version of the same file. Nothing waits for the network.',
      ),
    ],
    Letters: {
      'To the reader.txt': [text('Dear reader,', '', 'please change me, with whatever program you like.', '')],
      'Ünïcode – 手紙.txt': [text('Names may be in any script.')],
    },
    Photos: { '2026': { 'Evening over the hills.png': [demoPhoto()] } },
    Recipes: {
      'Bread.md': [
        text(
          '# Bread',
          '',
          '- 500 g flour',
          '- 350 ml water',
          '- 10 g salt',
          '- 3 g yeast',
          '',
          'Let the dough rise overnight.',
        ),
      ],
      Soups: { 'Lentils.md': [text('# Lentil soup', '', '- 250 g red lentils', '- 1 onion', '- cumin, lemon', '')] },
    },
    Reports: {
      // Three versions, to show that each save makes one.
      'Report.txt': [
        text('Report', '', 'First draft.'),
        text('Report', '', 'Second draft, with a number: 41.'),
        text('Report', '', 'Third draft, with the right number: 42.'),
      ],
    },
  };
}

/**
 * Uploads a tree into a folder of the service. Existing entries are kept, so a second call after an interrupted
 * first one completes it.
 */
export async function plantTree(service: RemoteService, parent: ResourceUrl, tree: DemoFolder): Promise<void> {
  const there = await entriesIn(service, parent);
  for (const [name, content] of Object.entries(tree)) {
    const known = there.get(name);
    if (isVersions(content)) {
      const file = known?.url ?? (await service.createFile(parent, name, mediaTypeOf(name)));
      const held = known === undefined ? 0 : (await service.versions(file)).filter(({ complete }) => complete).length;
      for (const bytes of content.slice(held)) {
        const body = {
          length: bytes.byteLength,
          chunks: async function* () {
            yield bytes;
          },
        };
        await needed(service.uploads, 'takes no uploads').putFileData(file, body, mediaTypeOf(name));
      }
    } else {
      await plantTree(service, known?.url ?? (await service.createFolder(parent, name)), content);
    }
  }
}

async function entriesIn(service: RemoteService, folder: ResourceUrl): Promise<ReadonlyMap<string, RemoteEntry>> {
  const entries = new Map<string, RemoteEntry>();
  for (let start = 0; ; ) {
    const page = await service.listPage(folder, start);
    for (const entry of page.entries) entries.set(entry.name, entry);
    start += page.entries.length;
    if (!page.hasMore) return entries;
  }
}

function isVersions(content: DemoFolder | readonly Uint8Array[]): content is readonly Uint8Array[] {
  return Array.isArray(content);
}

function mediaTypeOf(name: string): string {
  return name.endsWith('.png') ? 'image/png' : 'text/plain';
}

function text(...lines: readonly string[]): Uint8Array {
  return Buffer.from(`${lines.join('\n')}\n`);
}
