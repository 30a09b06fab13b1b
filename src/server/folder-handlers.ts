import { ProtocolError, systemCodeOf } from '../base/errors.ts';
import type { ListingQuery, ResourceId } from '../protocol/endpoints.ts';
import { parseListingQuery } from '../protocol/endpoints.ts';
import {
  decodeFileCopy,
  decodeFolderUpdate,
  decodeNewFile,
  decodeNewFolder,
  encodeCollectionContents,
  encodeFolder,
  type SharingDocument,
} from '../protocol/messages.ts';
import type { FileRow, FolderRow, VersionRow } from './database.ts';
import { decodedOr400, rootOr400 } from './exchange.ts';
import type { HandlerTable, Service } from './handler-table.ts';
import { mediaTypeOf } from './media-type.ts';
import { malformed, notFound, Refusal } from './refusal.ts';

/** Folders and their contents (docs/service.md 5). */
export function folderHandlers(service: Service): HandlerTable {
  const { database, histories, repository, documents } = service;

  const create = async (caller: string, parent: ResourceId, body: Uint8Array): Promise<string> => {
    const withRoom = <T>(make: () => T): Promise<T> =>
      histories.withRoom(roomBeside(caller, parent.uid), () => database.changeTogether(make));
    switch (rootOr400(body)) {
      case 'folder': {
        const { displayName } = decodedOr400(body, decodeNewFolder);
        const id = await withRoom(() => repository.createFolder(caller, parent, displayName));
        return documents.url({ kind: 'folder', id });
      }
      case 'file': {
        const { displayName, mediaType } = decodedOr400(body, decodeNewFile);
        const type = mediaTypeOf(displayName, mediaType);
        const id = await withRoom(() => repository.createFile(caller, parent, displayName, type));
        return documents.url({ kind: 'file', id });
      }
      case 'fileCopy': {
        const { source, displayName } = decodedOr400(body, decodeFileCopy);
        return documents.url({ kind: 'file', id: await copyFile(service, caller, parent, source, displayName) });
      }
      default:
        throw malformed();
    }
  };

  return {
    folder: {
      GET: async ({ exchange, endpoint, caller }) => {
        const row = repository.folder(caller, endpoint.id);
        const document = documents.folder(row, sharingOf(service, caller, row), showsParent(service, caller, row));
        await exchange.sendXml(200, encodeFolder(document));
      },
      POST: async ({ exchange, endpoint, caller }) => {
        const location = await create(caller, endpoint.id, await exchange.document());
        await exchange.sendEmpty(201, { Location: location });
      },
      PUT: async ({ exchange, endpoint, caller }) => {
        const update = await exchange.decoded(decodeFolderUpdate);
        const change = {
          name: update.displayName,
          parent: update.parent === undefined ? undefined : documents.parentOf(update.parent),
        };
        await database.changeTogether(() => repository.updateFolder(caller, endpoint.id, change));
        await exchange.sendEmpty(204);
      },
      DELETE: async ({ exchange, endpoint, caller }) => {
        await database.changeTogether(() => repository.deleteFolder(caller, endpoint.id));
        await exchange.sendEmpty(204);
      },
    },
    folderContents: {
      GET: async ({ exchange, endpoint, query, caller }) => {
        const row = repository.folder(caller, endpoint.id);
        const page = repository.list(row, listingQuery(query, repository.pageMax));
        await exchange.sendXml(200, encodeCollectionContents(documents.contents(page)));
      },
    },
  };
}

/** A receiver of a share drops no versions of other files. */
function roomBeside(caller: string, uid: string): { uid: string; file?: string } {
  return caller === uid ? { uid } : { uid, file: '' };
}

/** A page has at most `pageMax` entries, whatever is asked for. @throws Refusal 400 that names the parameter */
export function listingQuery(query: URLSearchParams, pageMax: number): ListingQuery {
  try {
    const parsed = parseListingQuery(query);
    return parsed.max !== null && parsed.max > pageMax ? { ...parsed, max: pageMax } : parsed;
  } catch (error) {
    if (error instanceof ProtocolError) throw malformed(error.message);
    throw error;
  }
}

/**
 * Stores the bytes of the copy before its row: as a second blob, or with the row if they are few. A file without data
 * is copied without data.
 */
async function copyFile(
  service: Service,
  caller: string,
  parent: ResourceId,
  source: string,
  name: string,
): Promise<ResourceId> {
  const { database, repository, histories, blobs, documents, sealer } = service;
  const named = documents.parse(source);
  if (named?.kind !== 'file') throw notFound();
  const blob = blobs.newName();
  const { original, version, bytes } = await duplicated(service, () => repository.file(caller, named.id), blob);
  if (original.newest === null) {
    return database.changeTogether(() => repository.createFile(caller, parent, name, original.mediaType));
  }
  if (version === null) throw notFound();
  try {
    const { sizeBytes, sha256 } = version;
    const { row, version: copied } = await histories.withRoom(roomBeside(caller, parent.uid), () =>
      database.changeTogether(() => {
        const file = repository.createFile(caller, parent, name, original.mediaType);
        return { row: file, ...histories.add(file, { blob, sizeBytes, sha256, bytes }) };
      }),
    );
    sealer.add(copied);
    return row;
  } catch (error) {
    await blobs.remove([blob]);
    throw error;
  }
}

/**
 * The newest version of the file returned by `look` (null: no data), with its bytes copied to `blob`, or returned if
 * they are few. If the version is deleted meanwhile, the then newest one is copied.
 */
async function duplicated(
  { blobs, histories, uploads }: Service,
  look: () => FileRow,
  blob: string,
): Promise<{ original: FileRow; version: VersionRow | null; bytes: Uint8Array | null }> {
  for (let original = look(); ; ) {
    const version = histories.newest(original);
    if (version === null) return { original, version, bytes: null };
    try {
      const bytes = blobs.small(version.blob) ?? (await uploads.duplicate(version.blob, blob, version.sizeBytes));
      return { original, version, bytes };
    } catch (error) {
      original = look();
      // A version without its bytes is damage.
      if (systemCodeOf(error) !== 'ENOENT' || original.newest?.blob === version.blob) throw error;
    }
  }
}

function sharingOf(service: Service, caller: string, row: FolderRow): SharingDocument {
  const { repository } = service;
  if (row.uid === caller && !repository.isShared(row)) return { enabled: false };
  return { enabled: true, readAllowed: true, writeAllowed: repository.permission(caller, row) === 'write' };
}

function showsParent(service: Service, caller: string, row: FolderRow): boolean {
  if (row.uid === caller) return true;
  try {
    service.repository.folder(caller, { uid: row.uid, local: row.parent });
    return true;
  } catch (error) {
    if (error instanceof Refusal) return false;
    throw error;
  }
}
